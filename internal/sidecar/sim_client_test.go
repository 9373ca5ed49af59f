package sidecar

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"strings"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/front"
)

const (
	// simSlack is how much longer a request may take than its call: the patience for an owner, one dial, and the pings
	// that find out that the owner is lost.
	simSlack = 12 * time.Second
	// simConnect is how long clients wait for a connection.
	simConnect = 2 * time.Second
)

// simClient is a client of the cluster's Service.
type simClient struct {
	c      *simCluster
	number int
	random *rand.Rand
	host   *simHost
	http   *http.Client

	session string
	process string   // that has the session
	owner   [16]byte // the pod of the process
	count   int      // of the last answer
	calls   int

	answers map[int]int // by status; 0 is a connection that broke
}

func newSimClient(c *simCluster, number int, seed uint64) *simClient {
	k := &simClient{
		c: c, number: number, random: rand.New(rand.NewPCG(seed, uint64(number)+10)), answers: map[int]int{},
		host: c.net.attach(fmt.Sprint("client ", number), netip.AddrFrom4([4]byte{10, 1, 0, byte(number + 1)})),
	}
	k.reconnect()
	return k
}

// reconnect drops all connections, like a program that restarts.
func (k *simClient) reconnect() {
	if k.http != nil {
		k.http.CloseIdleConnections()
	}
	k.http = &http.Client{Transport: &http.Transport{
		DisableCompression: true, DisableKeepAlives: k.number%2 == 0, ResponseHeaderTimeout: 0,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, simConnect)
			defer cancel()
			return k.c.net.dial(ctx, k.host, netip.AddrPortFrom(k.c.endpoint(), simClientPort))
		},
	}}
}

// endpoint is a pod that the Service leads to.
func (c *simCluster) endpoint() netip.Addr {
	var ready []*simPod
	for _, p := range c.snapshot() {
		p.mu.Lock()
		if p.adapter != nil && !p.terminating {
			ready = append(ready, p)
		}
		p.mu.Unlock()
	}
	if len(ready) == 0 {
		return netip.MustParseAddr("10.255.0.1")
	}
	return ready[c.net.pick(len(ready))].host.address
}

// simAnswer is what became of a request.
type simAnswer struct {
	status  int
	session string
	message []byte // with the id that was asked for
	entry   *simHost
	err     error
}

// post sends a message and reads its answer.
func (k *simClient) post(ctx context.Context, body string) (a simAnswer) {
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		a.entry = info.Conn.(*simConn).peer.local
	}})
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://server"+Path, bytes.NewReader([]byte(body)))
	if err != nil {
		a.err = err
		return a
	}
	request.GetBody = nil // net/http sends nothing twice
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	if k.session != "" {
		request.Header.Set(front.HeaderSession, k.session)
		request.Header.Set(front.HeaderRevision, front.Revision20251125)
	}
	response, err := k.http.Do(request)
	if err != nil {
		a.err = err
		return a
	}
	defer func() { _ = response.Body.Close() }()
	a.status, a.session = response.StatusCode, response.Header.Get(front.HeaderSession)
	if strings.HasPrefix(response.Header.Get("Content-Type"), front.TypeEvents) {
		a.message, a.err = messageInEvents(response.Body)
	} else {
		a.message, a.err = io.ReadAll(response.Body)
	}
	return a
}

// messageInEvents returns the only message of a stream.
func messageInEvents(stream io.Reader) (message []byte, err error) {
	lines := bufio.NewScanner(stream)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), "data: {"); ok {
			message = []byte("{" + text)
		}
	}
	if lines.Err() == nil && message == nil {
		return nil, io.ErrUnexpectedEOF
	}
	return message, lines.Err()
}

var errNotNow = errors.New("the request was not answered by the session")

// open opens a session.
func (k *simClient) open(ctx context.Context) error {
	k.session = ""
	ctx, cancel := context.WithTimeout(ctx, 2*simSlack)
	defer cancel()
	a := k.post(ctx, initializeMessage)
	k.answers[a.status]++
	var reply struct {
		Result struct {
			ServerInfo struct {
				Name string `json:"name"`
			} `json:"serverInfo"`
		} `json:"result"`
	}
	if a.err != nil || a.status != http.StatusOK || json.Unmarshal(a.message, &reply) != nil || a.session == "" {
		return fmt.Errorf("%w: initialize: %d %s %w", errNotNow, a.status, a.message, a.err)
	}
	k.session, k.process, k.count = a.session, reply.Result.ServerInfo.Name, 0
	owner, err := k.c.keys.Parse(k.session)
	if err != nil {
		k.c.t.Errorf("client %d: a session has the id of none: %v", k.number, err)
	}
	k.owner = owner.UID
	if a := k.post(ctx, `{"jsonrpc":"2.0","method":"notifications/initialized"}`); a.status == http.StatusNotFound {
		k.lost(&a)
		return fmt.Errorf("%w: the session is over at once", errNotNow)
	}
	return nil
}

// call makes one call in the session. The error is errNotNow if the call has no answer of the session.
func (k *simClient) call(ctx context.Context, wait time.Duration) error {
	k.calls++
	call := simCall{Name: fmt.Sprintf("client %d call %d", k.number, k.calls), Wait: wait}
	arguments, err := json.Marshal(call)
	if err != nil {
		return err
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, wait+2*simSlack)
	defer cancel()
	a := k.post(ctx, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"count","arguments":%s}}`, k.calls, arguments))
	k.answers[a.status]++
	if took := time.Since(began); took > wait+simSlack && a.entry != nil && !k.c.net.wasLost(a.entry, took) {
		k.c.t.Errorf("client %d: %s took %s at %s until %s, and needs %s: %d %v", k.number, call.Name, took, a.entry.name, time.Since(k.c.began), wait, a.status, a.err)
	}
	switch {
	case a.err != nil:
		return fmt.Errorf("%w: %w", errNotNow, a.err)
	case a.status == http.StatusNotFound:
		k.lost(&a)
		return fmt.Errorf("%w: the session is over", errNotNow)
	case a.status == http.StatusBadGateway, a.status == http.StatusServiceUnavailable:
		return fmt.Errorf("%w: %d %s", errNotNow, a.status, a.message)
	case a.status != http.StatusOK:
		k.c.t.Errorf("client %d: %s: %d %s", k.number, call.Name, a.status, a.message)
		return errNotNow
	}
	return k.check(&call, &a)
}

// check says whether an answer is that of the call, by the session's process.
func (k *simClient) check(call *simCall, a *simAnswer) error {
	var reply struct {
		ID     int `json:"id"`
		Result struct {
			Content []struct {
				Text string `json:"text"`
			} `json:"content"`
		} `json:"result"`
		Error json.RawMessage `json:"error"`
	}
	var result simResult
	switch err := json.Unmarshal(a.message, &reply); {
	case err == nil && reply.Error != nil && !k.c.ledger.isRunning(k.process):
		return fmt.Errorf("%w: %s", errNotNow, reply.Error)
	case err != nil || len(reply.Result.Content) != 1 || json.Unmarshal([]byte(reply.Result.Content[0].Text), &result) != nil:
		k.c.t.Errorf("client %d: %s: got %q", k.number, call.Name, a.message)
		return errNotNow
	}
	if reply.ID != k.calls || result.Call != call.Name || result.Process != k.process || result.Count <= k.count {
		k.c.t.Errorf("client %d: %s of %s, after %d calls: got %+v with id %d", k.number, call.Name, k.process, k.count, result, reply.ID)
	}
	k.count = result.Count
	return nil
}

// lost gives a session up after a 404, and says whether that may be.
func (k *simClient) lost(a *simAnswer) {
	k.session = ""
	if !k.c.ledger.isRunning(k.process) {
		return
	}
	p := k.c.pod(k.owner)
	p.mu.Lock()
	gone := p.gone
	p.mu.Unlock()
	// Without a word of the manager, the entry must have found no way for 15 s. It does not notice a way that was there for less than
	// half of that.
	if gone || k.c.net.blockedFor(a.entry, p.host, 17*time.Second) >= 8*time.Second {
		return
	}
	k.c.t.Errorf("client %d: 404 at %s for %s, which lives in %s: %s", k.number, a.entry.name, k.process, p.host.name, a.message)
}

func (c *simCluster) pod(uid [16]byte) *simPod {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.all {
		if p.uid == uid {
			return p
		}
	}
	return nil
}

// use calls in sessions until the context ends.
func (k *simClient) use(ctx context.Context) {
	waits := []time.Duration{0, 20 * time.Millisecond, 500 * time.Millisecond, 3 * time.Second, 8 * time.Second}
	for ctx.Err() == nil {
		if k.session == "" && k.open(ctx) != nil {
			sleepUntil(ctx, time.Second)
			continue
		}
		_ = k.call(ctx, waits[k.random.IntN(len(waits))]) // what is wrong with an answer is told
		if k.random.IntN(8) == 0 {
			k.forge(ctx)
		}
		sleepUntil(ctx, time.Duration(k.random.Int64N(int64(3*time.Second))))
	}
}

// forge sends an ID that no adapter has minted.
func (k *simClient) forge(ctx context.Context) {
	own := k.session
	if own == "" {
		return
	}
	altered := []byte(own)
	at := k.random.IntN(len(altered))
	if altered[at] == 'A' {
		altered[at] = 'B'
	} else {
		altered[at] = 'A'
	}
	k.session = string(altered)
	ctx, cancel := context.WithTimeout(ctx, simSlack)
	defer cancel()
	if a := k.post(ctx, pingMessage); a.err == nil && a.status != http.StatusNotFound {
		k.c.t.Errorf("client %d: a forged id is answered %d %s", k.number, a.status, a.message)
	}
	k.session = own
}

// mustWork checks that a client that starts over gets an answer from its session, or from a new one, in time.
func (k *simClient) mustWork(ctx context.Context) {
	within := simWorksWithin
	if k.session != "" && !k.c.ledger.isRunning(k.process) {
		within = simKnowsWithin
	}
	k.reconnect()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var err error
	for ctx.Err() == nil {
		if k.session == "" {
			if failed := k.open(ctx); failed != nil {
				err = failed
				sleepUntil(ctx, 100*time.Millisecond)
				continue
			}
		}
		failed := k.call(ctx, 0)
		if failed == nil {
			return
		}
		err = failed
		sleepUntil(ctx, 100*time.Millisecond)
	}
	k.c.t.Errorf("client %d of %s does not work again within %s: %v", k.number, k.process, within, err)
}

func sleepUntil(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
