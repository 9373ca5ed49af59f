package sidecar

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/listener"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/relay"
	"github.com/slipway-mcp/slipway/test/hang"
)

// Every request of every client reaches the server of its own session, at whichever replica it arrives.
func TestAnyEntry(t *testing.T) {
	t.Parallel()
	const clients, rounds = 12, 4
	replicas := startReplicas(t, 3, func(c *config.Config) { c.MaxSessions = clients })
	var owners [4]atomic.Int32
	var running sync.WaitGroup
	for n := range clients {
		running.Go(func() {
			transport := &http.Transport{DisableCompression: true, DisableKeepAlives: n%2 == 0}
			defer transport.CloseIdleConnections()
			turns := &spread{replicas: replicas, over: transport}
			turns.next.Store(uint32(n))
			c := &client{url: "http://server" + Path, http: &http.Client{Transport: turns}}
			err := c.initialize(t.Context())
			if err == nil {
				owner, _ := replicas[0].env.Keys.Parse(c.session)
				owners[owner.UID[0]].Add(1)
				err = c.chat(t.Context(), n, rounds)
			}
			if err != nil {
				t.Errorf("client %d: %v", n, err)
			}
		})
	}
	running.Wait()
	for i, r := range replicas {
		if opened := owners[i+1].Load(); opened == 0 || r.forwarded() == 0 {
			t.Errorf("replica %d opened %d sessions and passed on %d requests", i, opened, r.forwarded())
		}
	}
}

// A stream elsewhere carries every event as it happens, and can be resumed at yet another replica.
func TestForwardedStream(t *testing.T) {
	t.Parallel()
	replicas := startReplicas(t, 3, nil)
	c := clientOf(t, replicas)
	ctx, cancel := context.WithTimeout(t.Context(), hang.Guard)
	defer cancel()
	response, err := c.post(ctx, call(1, "ask", `"text":"still there?"`))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	question, id := nextEvent(t, response.Body)
	if !strings.Contains(question, "elicitation/create") || id == "" {
		t.Fatalf("got %q with id %q", question, id)
	}
	_ = response.Body.Close() // the stream breaks off
	answer := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"answer":"yes"}}}`, idIn(t, question))
	if response, err := c.post(ctx, answer); err != nil || response.StatusCode != http.StatusAccepted {
		t.Fatalf("answer: %v, %v", response, err)
	}
	c.headers = map[string]string{"Last-Event-ID": id}
	resumed, err := c.do(ctx, http.MethodGet, "")
	if err != nil || resumed.StatusCode != http.StatusOK {
		t.Fatalf("resume: %v, %v", resumed, err)
	}
	defer func() { _ = resumed.Body.Close() }()
	if result, _ := nextEvent(t, resumed.Body); !strings.Contains(result, `"id":1`) || !strings.Contains(result, "result") {
		t.Errorf("got %q", result)
	}
}

// nextEvent reads a stream up to the end of the next event with a message, and returns message and id.
func nextEvent(t *testing.T, stream io.Reader) (message, id string) {
	t.Helper()
	lines := bufio.NewScanner(stream)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "id: "):
			id = line[len("id: "):]
		case strings.HasPrefix(line, "data: {"):
			message = line[len("data: "):]
		case line == "" && message != "":
			return message, id
		}
	}
	t.Fatalf("the stream ends: %v", lines.Err())
	return "", ""
}

func idIn(t *testing.T, message string) string {
	t.Helper()
	var request struct {
		ID json.RawMessage `json:"id"`
	}
	if err := json.Unmarshal([]byte(message), &request); err != nil {
		t.Fatal(err)
	}
	return string(request.ID)
}

// A client ends its session at another replica. After that it is over at every one.
func TestForwardedDelete(t *testing.T) {
	t.Parallel()
	replicas := startReplicas(t, 3, nil)
	c := clientOf(t, replicas)
	response, err := c.do(t.Context(), http.MethodDelete, "")
	if err != nil || response.StatusCode != http.StatusNoContent {
		t.Fatalf("got %v, %v", response, err)
	}
	if n := replicas[0].env.Sessions.Len(); n != 0 {
		t.Errorf("the owner has %d sessions", n)
	}
	for range replicas {
		c.must(t, http.StatusNotFound)
	}
}

// must posts a request, and checks the status of the answer.
func (c *client) must(t *testing.T, status int) {
	t.Helper()
	response, err := c.post(t.Context(), call(rand.IntN(1000), "echo", `"text":"x"`))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil || response.StatusCode != status {
		t.Errorf("got %s %s (%v), want %d", response.Status, body, err, status)
	}
}

// The sessions of a pod that has ended are over everywhere, at once: nothing listens at its address.
func TestOwnerEnds(t *testing.T) {
	t.Parallel()
	replicas := startReplicas(t, 3, nil)
	c := clientOf(t, replicas)
	c.must(t, http.StatusOK)
	replicas[0].stop()
	for range 4 {
		c.must(t, http.StatusNotFound)
	}
	if err := c.initialize(t.Context()); err != nil { // although it names the session that is over
		t.Error(err)
	}
	c.must(t, http.StatusOK)
}

// Another pod has the owner's address by now. It gets no byte of a request.
func TestOwnersAddressReused(t *testing.T) {
	t.Parallel()
	replicas := startReplicas(t, 2, nil)
	c := clientOf(t, replicas)
	address := replicas[0].env.Owner.Address.String()
	replicas[0].stop()
	l, err := listener.Listen(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	cfg := replicas[1].env.Config
	cfg.Owner.UID[0], cfg.Owner.Address = 99, netip.MustParseAddrPort(address)
	cfg.Settings, cfg.Access = nil, nil
	usurper := startReplica(t, cfg, l)
	for range 3 {
		c.must(t, http.StatusNotFound)
	}
	if dials := replicas[1].dials(); dials > 2 { // one that was refused may come first
		t.Errorf("%d connections to a pod that is gone", dials)
	}
	if usurper.env.Sessions.Len() != 0 {
		t.Error("the other pod has a session")
	}
}

// A pod that the manager's list had and has no more is over as soon as it does not answer. So is one of which the first
// list says that it is gone: the pod that replaces the only one of a server had no list before. Other pods get the benefit
// of the doubt.
func TestPodRemovedFromList(t *testing.T) {
	t.Parallel()
	for name, tell := range map[string]func(t *testing.T, r *replica, own, other adapterapi.PeerPod){
		"it was there, and is gone": func(t *testing.T, r *replica, own, other adapterapi.PeerPod) {
			t.Helper()
			r.list(t, 1, own, other)
			r.list(t, 2, own)
		},
		"it is named as gone": func(t *testing.T, r *replica, own, other adapterapi.PeerPod) {
			t.Helper()
			r.take(t, adapterapi.Peers{Generation: 1, Pods: []adapterapi.PeerPod{own}, Gone: []string{other.UID}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			replicas := startReplicas(t, 2, nil)
			c := clientOf(t, replicas)
			tell(t, replicas[1], adapterapi.PeerPod{UID: hex.EncodeToString(replicas[1].env.Owner.UID[:])}, adapterapi.PeerPod{UID: hex.EncodeToString(replicas[0].env.Owner.UID[:])})
			c.must(t, http.StatusOK) // it answers, whatever the list says
			c.must(t, http.StatusOK)
			address := replicas[0].env.Owner.Address.String()
			replicas[0].stop()
			mute, err := listener.Listen(t.Context(), address) // it accepts connections and says nothing
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = mute.Close() })
			c.must(t, http.StatusNotFound)
			dials := replicas[1].dials()
			c.must(t, http.StatusNotFound)
			if more := replicas[1].dials() - dials; more != 0 {
				t.Errorf("%d more connections to a pod that is gone", more)
			}
		})
	}
}

// list gives the replica the manager's list of pods.
func (r *replica) list(t *testing.T, generation int64, pods ...adapterapi.PeerPod) {
	t.Helper()
	r.take(t, adapterapi.Peers{Generation: generation, Pods: pods})
}

func (r *replica) take(t *testing.T, peers adapterapi.Peers) {
	t.Helper()
	peers.Version = adapterapi.PeersVersion
	list, err := peers.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.peers.roster.Take([]byte(list.Text)); err != nil {
		t.Fatal(err)
	}
}

// Ids that no key of this server has made are answered here, without a connection to any pod.
func TestForgedIDs(t *testing.T) {
	t.Parallel()
	replicas := startReplicas(t, 2, nil)
	c := clientOf(t, replicas)
	genuine := c.session
	altered := []byte(genuine)
	altered[len(altered)/2] ^= 1
	for _, forged := range []string{"x", strings.Repeat("A", len(genuine)), string(altered), genuine[:len(genuine)-1], genuine + "A", "../" + genuine} {
		c.session = forged
		c.must(t, http.StatusNotFound)
	}
	if dials := replicas[1].dials(); dials != 0 {
		t.Errorf("%d connections for forged ids", dials)
	}
	c.session = genuine
	c.must(t, http.StatusOK)
}

// A request that a pod has passed on is answered where it arrives: no pod passes it on once more.
func TestOneHop(t *testing.T) {
	t.Parallel()
	replicas := startReplicas(t, 3, nil)
	c := clientOf(t, replicas)
	owner, entry, third := replicas[0], replicas[1], replicas[2]
	// A pod that took the id for one of the third pod's would send it there.
	request := &relay.Request{
		Method: http.MethodDelete, Target: Path, Host: third.host, Header: http.Header{"Mcp-Session-Id": {c.session}},
	}
	answer := httptest.NewRecorder()
	if err := entry.peers.relay.Forward(t.Context(), answer, third.env.Owner, request); err != nil || answer.Code != http.StatusNotFound {
		t.Errorf("got %d, %v", answer.Code, err)
	}
	if third.dials() != 0 || owner.env.Sessions.Len() != 1 {
		t.Errorf("the third pod made %d connections, and the owner has %d sessions", third.dials(), owner.env.Sessions.Len())
	}
}

// Clients of the HTTP+SSE transport post their messages to any replica.
func TestForwardedMessages(t *testing.T) {
	t.Parallel()
	replicas := startReplicas(t, 2, func(c *config.Config) { c.LegacySSE = true })
	ctx, cancel := context.WithTimeout(t.Context(), hang.Guard)
	defer cancel()
	stream := get(ctx, t, "http://"+replicas[0].host+"/sse")
	defer func() { _ = stream.Close() }()
	lines := bufio.NewScanner(stream)
	endpoint := ""
	for endpoint == "" && lines.Scan() {
		endpoint, _ = strings.CutPrefix(lines.Text(), "data: ")
		if !strings.HasPrefix(lines.Text(), "data: ") {
			endpoint = ""
		}
	}
	response, err := http.Post("http://"+replicas[1].host+endpoint, "application/json", strings.NewReader(initializeMessage))
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusAccepted {
		t.Fatalf("got %s", response.Status)
	}
	for lines.Scan() {
		if strings.Contains(lines.Text(), "protocolVersion") {
			return
		}
	}
	t.Errorf("the stream ends without an answer: %v", lines.Err())
}

func get(ctx context.Context, t *testing.T, url string) io.ReadCloser {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "text/event-stream")
	response, err := http.DefaultClient.Do(request)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("got %v, %v", response, err)
	}
	return response.Body
}

// An entry that drains ends the streams that it passes on, which clients resume elsewhere, and lets calls finish.
func TestDrainOfEntry(t *testing.T) {
	t.Parallel()
	replicas := startReplicas(t, 2, nil)
	entry := replicas[1]
	c := clientOf(t, replicas)
	stream, err := c.do(t.Context(), http.MethodGet, "")
	if err != nil || stream.StatusCode != http.StatusOK {
		t.Fatalf("got %v, %v", stream, err)
	}
	defer func() { _ = stream.Body.Close() }()
	asked, err := c.post(t.Context(), call(1, "ask", `"text":"still there?"`)) // in flight until it is answered
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = asked.Body.Close() }()
	question, _ := nextEvent(t, asked.Body)
	entry.Drain()
	if _, err := io.Copy(io.Discard, stream.Body); err == nil {
		t.Error("the stream ends as if that were all")
	}
	select {
	case <-entry.Drained():
		t.Fatal("drained with a call in flight")
	default:
	}
	answer := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"answer":"yes"}}}`, idIn(t, question))
	if response, err := c.post(t.Context(), answer); err != nil || response.StatusCode != http.StatusAccepted {
		t.Fatalf("answer: %v, %v", response, err)
	}
	if result, _ := nextEvent(t, asked.Body); !strings.Contains(result, `"id":1`) {
		t.Errorf("got %q", result)
	}
	select {
	case <-entry.Drained():
	case <-time.After(hang.Guard):
		t.Error("not drained without calls")
	}
	if replicas[0].env.Sessions.Len() != 1 {
		t.Error("the session ended with the entry")
	}
}

// A call that another replica answers holds no memory for its body once its answer has begun.
func TestForwardedBodyIsGivenBack(t *testing.T) {
	t.Parallel()
	replicas := startReplicas(t, 2, nil)
	c := clientOf(t, replicas)
	asked, err := c.post(t.Context(), call(1, "ask", `"text":"`+strings.Repeat("x", 40<<10)+`"`)) // in flight until the test ends
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = asked.Body.Close() }()
	nextEvent(t, asked.Body)
	if used := replicas[1].env.Memory.Used(); used != 0 {
		t.Errorf("the entry holds %d bytes", used)
	}
}

// Strangers that hold all connections of the port for other pods, silent or in the middle of a handshake, keep no pod
// from connecting.
func TestStrangersMakeRoomForPods(t *testing.T) {
	t.Parallel()
	for name, sent := range map[string][]byte{"silent": nil, "in the handshake": {0x16, 3}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			replicas := startReplicas(t, 2, func(c *config.Config) {
				c.MaxSessions, c.BodyBytes, c.LineBytes, c.MemoryLimit = 1, 1<<10, 1<<10, 2*16*64<<10
			})
			port := replicas[0].peers.server
			if port.Limit() > 32 { // so many may shake hands at a time
				t.Fatalf("the limit is %d", port.Limit())
			}
			for range port.Limit() {
				c, err := net.Dial("tcp", replicas[0].env.Owner.Address.String())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close() }()
				if _, err := c.Write(sent); err != nil {
					t.Fatal(err)
				}
			}
			gomega.NewWithT(t).Eventually(port.Connections).WithTimeout(hang.Guard).Should(gomega.Equal(port.Limit()))
			c := clientOf(t, replicas) // of a session at the first replica, by the port of the second one
			c.must(t, http.StatusOK)
			gomega.NewWithT(t).Eventually(port.Connections).WithTimeout(hang.Guard).Should(gomega.BeNumerically("<=", port.Limit()))
			if port.Evicted() == 0 {
				t.Error("no stranger has made room")
			}
		})
	}
}

// A client that names the session of an owner that drains gets a new session elsewhere, if that one is over.
func TestInitializeWhileTheOwnerDrains(t *testing.T) {
	t.Parallel()
	replicas := startReplicas(t, 2, nil)
	busy, idle := clientOf(t, replicas), clientOf(t, replicas)
	asked, err := busy.post(t.Context(), call(1, "ask", `"text":"still there?"`)) // in flight until the test ends
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = asked.Body.Close() }()
	nextEvent(t, asked.Body)
	replicas[0].Drain()
	replicas[0].listOwn(t, adapterapi.PeerPod{Closing: true})
	replicas[0].awaitSessions(t, 1)
	before := idle.session
	if err := idle.initialize(t.Context()); err != nil || idle.session == before {
		t.Errorf("session %q: %v", idle.session, err)
	}
	idle.must(t, http.StatusOK)
	if n := replicas[1].env.Sessions.Len(); n != 1 {
		t.Errorf("the entry has %d sessions", n)
	}
	response, err := busy.post(t.Context(), initializeMessage)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusBadRequest {
		t.Errorf("with a session that is open: %s", response.Status)
	}
}

// Methods that the endpoint does not have are refused at once, at every replica.
func TestForwardedMethods(t *testing.T) {
	t.Parallel()
	c := clientOf(t, startReplicas(t, 2, nil))
	for _, method := range []string{http.MethodHead, http.MethodPut, http.MethodOptions} {
		response, err := c.do(t.Context(), method, "")
		if err != nil || response.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s: %v, %v", method, response, err)
		}
	}
}
