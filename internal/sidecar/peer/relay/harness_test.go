package relay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/trust"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

var (
	testUID = [16]byte{1, 2, 3}
	testKey = adapterapi.NewKey()
	// handshake is that of a pod which the owners know.
	handshake = newPod([16]byte{0xee}, testKey).Handshake
)

// newPod returns the trust of a pod that has these keys.
func newPod(uid [16]byte, current adapterapi.Key, accepted ...adapterapi.Key) *trust.Trust {
	return trust.New(func() adapterapi.Keyring { return adapterapi.Keyring{Current: current, Accepted: accepted} }, uid)
}

// owner is a pod that answers.
type owner struct {
	sessionid.Owner
	server *http.Server

	mu    sync.Mutex
	conns map[net.Conn]http.ConnState
	total int // connections so far
}

func addressOf(l net.Listener) netip.AddrPort { return l.Addr().(*net.TCPAddr).AddrPort() }

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func startOwner(t testing.TB, handler http.HandlerFunc) *owner {
	t.Helper()
	return startPod(t, newPod(testUID, testKey), handler)
}

// startPod starts a pod that may be another one than the owner, at the owner's address.
func startPod(t testing.TB, pod *trust.Trust, handler http.HandlerFunc) *owner {
	t.Helper()
	l := listen(t)
	o := &owner{Owner: sessionid.Owner{UID: testUID, Address: addressOf(l)}, conns: map[net.Conn]http.ConnState{}}
	o.server = &http.Server{
		Handler: handler, ErrorLog: log.New(io.Discard, "", 0),
		ConnState: func(c net.Conn, state http.ConnState) {
			o.mu.Lock()
			defer o.mu.Unlock()
			if state == http.StateNew {
				o.total++
			}
			o.conns[c] = state
		},
	}
	go func() { _ = o.server.Serve(trust.Listen(l, pod, logr.Discard())) }()
	t.Cleanup(func() { _ = o.server.Close() })
	return o
}

// closeIdle closes the connections without a request, once there are some.
func (o *owner) closeIdle(t *testing.T) {
	t.Helper()
	eventually(t, "connection becomes idle", func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		closed := false
		for c, state := range o.conns {
			if state == http.StateIdle {
				_ = c.Close()
				closed = true
			}
		}
		return closed
	})
}

func (o *owner) accepted() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.total
}

// entry is a pod that clients send requests to.
type entry struct {
	*httptest.Server
	relay  *Relay
	errors chan error // of Forward
}

func startEntry(t testing.TB, to sessionid.Owner, options Options) *entry {
	t.Helper()
	if options.WriteTimeout == 0 {
		options.WriteTimeout = 30 * time.Second
	}
	options.Limits = patient(options.Limits)
	e := &entry{relay: New(options), errors: make(chan error, 10000)}
	e.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request := requestOf(r)
		err := e.relay.Forward(r.Context(), w, to, request)
		select {
		case e.errors <- err:
		default: // a benchmark
		}
		answerFor(w, err)
	}))
	e.Config.ErrorLog = log.New(io.Discard, "", 0)
	e.Start()
	t.Cleanup(e.relay.Close)
	t.Cleanup(e.Close)
	return e
}

// patient are limits that do not take a busy machine for a black hole. Handlers of tests count requests and
// connections, so no ping may come between them while a request takes long.
func patient(l Limits) Limits {
	l.DialTimeout, l.PingTimeout, l.PingInterval = time.Minute, time.Minute, time.Minute
	return l
}

// requestOf reads the beginning of the body, as entries do.
func requestOf(r *http.Request) *Request {
	request := &Request{Method: r.Method, Target: r.URL.RequestURI(), Host: r.Host, Header: r.Header, ContentLength: r.ContentLength}
	if r.ContentLength == 0 {
		return request
	}
	var head bytes.Buffer
	n, _ := io.CopyN(&head, r.Body, 64<<10)
	request.Body = head.Bytes()
	if n == 64<<10 && n != r.ContentLength {
		request.Rest = r.Body
	}
	return request
}

func answerFor(w http.ResponseWriter, err error) {
	switch {
	case err == nil:
	case errors.Is(err, ErrCut), errors.Is(err, ErrClient):
		panic(http.ErrAbortHandler)
	default:
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
}

// forwarded is the error of the next Forward.
func (e *entry) forwarded(t *testing.T) error {
	t.Helper()
	select {
	case err := <-e.errors:
		return err
	case <-time.After(10 * time.Second):
		t.Fatal("Forward does not return")
		return nil
	}
}

// pair starts an owner and an entry that trust each other.
func pair(t testing.TB, handler http.HandlerFunc) (*owner, *entry) {
	t.Helper()
	o := startOwner(t, handler)
	return o, startEntry(t, o.Owner, Options{Handshake: handshake})
}

// do sends a request of a client, and returns status, body and the error of reading the body.
func do(t *testing.T, method, target string, body io.Reader) (*http.Response, string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, target, body)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return response, string(text), err
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("time is up: " + what)
		}
	}
}

// direct calls Forward without an entry.
func direct(ctx context.Context, r *Relay, to sessionid.Owner, request *Request) (*httptest.ResponseRecorder, error) {
	w := httptest.NewRecorder()
	err := r.Forward(ctx, w, to, request)
	return w, err
}

func wantDialError(t *testing.T, err error, want Outcome) {
	t.Helper()
	var dial *DialError
	if !errors.As(err, &dial) || dial.Outcome != want {
		t.Errorf("error is %v, want DialError %v", err, want)
	}
}
