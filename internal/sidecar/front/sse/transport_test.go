package sse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/places"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/test/hang"
)

// E-01, E-02, E-03, E-09: what goes over the wire.
func TestWire(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, nil)
	c, other := e.connect(), e.connect()
	if got := c.header.Get("Content-Type"); got != typeEvents {
		t.Errorf("content type %q", got)
	}
	for _, name := range []string{"Mcp-Session-Id", "Mcp-Protocol-Version"} {
		if got := c.header.Get(name); got != "" {
			t.Errorf("E-09 %s is %q", name, got)
		}
	}
	token, ok := strings.CutPrefix(c.postTo, "/messages?token=")
	if !ok || len(token) < 26 || c.postTo == other.postTo {
		t.Errorf("E-02 clients are told %q and %q", c.postTo, other.postTo)
	}
	if e.registry.Find(token) != nil {
		t.Error("the session can be found by its token, through other transports too")
	}
	c.say(initializeBody)
	wantIn(t, c.hear(), `"id":0,"result":{"protocolVersion":"2024-11-05"`)
	c.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	c.say("{\n  \"jsonrpc\": \"2.0\",\r\n  \"id\": \"two\",\n  \"method\": \"ping\"\n}") // S-01
	wantIn(t, c.hear(), `{"jsonrpc":"2.0","id":"two","result":{}}`)
}

// R33: silence does not look like a dead connection.
func TestKeepAlive(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, func(_ *endpoint, o *Options) { o.KeepAlive = 10 * time.Millisecond })
	c := e.connect()
	for range 3 {
		line, err := c.lines.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, ":") {
			t.Fatalf("got %q, %v; want a comment", line, err)
		}
		if _, err := c.lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	c.call(1, "echo", `"text":"still here"`)
	wantIn(t, c.hear(), "still here")
}

// E-04, E-05, R17, R38: what is not taken, and how that is said.
func TestRefusals(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, nil)
	c := e.connect()
	json := map[string]string{"Content-Type": "application/json; charset=utf-8"}
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	large := `{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", 1<<20) + `"}`
	for name, test := range map[string]struct {
		method, path, body string
		headers            map[string]string
		status             int
		text               string
	}{
		"unknown token":         {"POST", MessagesPath + "?token=guessed", ping, json, 404, "connect again"},
		"no token":              {"POST", MessagesPath, ping, json, 400, "token is missing"},
		"no JSON":               {"POST", c.postTo, `{`, json, 400, "-32700"},
		"no message":            {"POST", c.postTo, `{}`, json, 400, "-32600"},
		"no body":               {"POST", c.postTo, ``, json, 400, "-32700"},
		"empty batch":           {"POST", c.postTo, `[]`, json, 400, "-32600"},
		"J-08":                  {"POST", c.postTo, `[` + initializeBody + `]`, json, 400, "batch"},
		"other content type":    {"POST", c.postTo, ping, map[string]string{"Content-Type": "text/plain"}, 415, typeJSON},
		"no content type":       {"POST", c.postTo, ping, nil, 415, typeJSON},
		"too large":             {"POST", c.postTo, large, json, 413, "1048576 bytes"},
		"too large, in chunks":  {"POST", c.postTo, large, map[string]string{"Content-Type": typeJSON, "Transfer-Encoding": "chunked"}, 413, "1048576 bytes"},
		"stateless, not asked":  {"POST", c.postTo, `{"jsonrpc":"2.0","method":"n","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, json, 400, "stateless"},
		"origin of a stream":    {"GET", StreamPath, "", map[string]string{"Origin": "https://evil.example"}, 403, "evil.example"},
		"origin of a message":   {"POST", c.postTo, ping, map[string]string{"Content-Type": typeJSON, "Origin": "https://evil.example"}, 403, "evil.example"},
		"host that was rebound": {"GET", StreamPath, "", map[string]string{"Host": "evil.example"}, 403, "evil.example"},
		"unacceptable":          {"GET", StreamPath, "", map[string]string{"Accept": "application/json, text/html;q=0.9"}, 406, typeEvents},
		"POST to the stream":    {"POST", StreamPath, initializeBody, json, 405, "GET"}, // clients fall back on this
		"DELETE of the stream":  {"DELETE", StreamPath, "", nil, 405, "GET"},
		"HEAD of the stream":    {"HEAD", StreamPath, "", nil, 405, ""},
		"GET of messages":       {"GET", c.postTo, "", nil, 405, "POST"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := e.do(test.method, test.path, test.body, test.headers)
			if err != nil || got.status != test.status {
				t.Errorf("got %d, %v, want %d", got.status, err, test.status)
			}
			wantIn(t, got.body, test.text)
		})
	}
	// None of it reached the server, which would have died of some of it.
	c.call(1, "echo", `"text":"alive"`)
	wantIn(t, c.hear(), "alive")
	e.eventuallyRunning(1)
}

// J-07, J-10, J-12: a batch is taken apart, and answered one by one.
func TestBatch(t *testing.T) {
	e := newEndpoint(t, nil)
	c := e.connect()
	c.say(`[{"jsonrpc":"2.0","method":"notifications/initialized"},{"jsonrpc":"2.0","id":1,"method":"ping"},` +
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"text":"two"}}}]`)
	wantIn(t, c.hear(), `"id":1,"result":{}`)
	wantIn(t, c.hear(), `"id":2`, `"text":"two"`)
	if got := c.post(`[{"jsonrpc":"2.0","id":3,"method":"ping"},{"jsonrpc":"2.0","id":3,"method":"ping"}]`); got.status != http.StatusBadRequest {
		t.Errorf("an id twice: %d", got.status)
	}
}

// E-07: the stateless protocol is refused where its client listens, and goes on
// being refused after initialize.
func TestStateless(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, nil)
	c := e.connect()
	discover := `{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	refusal := `{"jsonrpc":"2.0","id":"d","error":{"code":-32022,"message":"unsupported protocol version",` +
		`"data":{"supported":["2024-11-05","2025-03-26","2025-06-18","2025-11-25"],"requested":"2026-07-28"}}}`
	c.say(discover)
	if got := c.hear(); got != refusal {
		t.Errorf("got %s", got)
	}
	c.say(initializeBody)
	wantIn(t, c.hear(), `"id":0,"result"`)
	c.say(discover)
	if got := c.hear(); got != refusal {
		t.Errorf("after initialize: got %s", got)
	}
	c.say(strings.Replace(initializeBody, `"id":0`, `"id":1`, 1))
	wantIn(t, c.hear(), `"id":1,"error":{"code":-32600`)
}

// E-06, R02, R15: when a client goes, with or without a call in flight, its server ends, and
// no other one.
func TestClientGone(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, nil)
	stays, goes, idle := e.connect(), e.connect(), e.connect()
	goes.call(1, "sleep", `"ms":600000`)
	goes.call(2, "ask", `"text":"anybody?"`)
	wantIn(t, goes.hear(), "anybody?")
	e.eventuallyRunning(3)
	goes.leave()
	e.eventuallyRunning(2)
	if got := goes.post(`{"jsonrpc":"2.0","id":3,"method":"ping"}`); got.status != http.StatusNotFound {
		t.Errorf("E-04 post afterwards: %d", got.status)
	}
	idle.leave()
	e.eventuallyRunning(1)
	stays.call(1, "echo", `"text":"stays"`)
	wantIn(t, stays.hear(), "stays")
}

// R14: clients beside one another, and one after the other.
func TestManyConnections(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, nil)
	first := e.connect()
	for range 5 {
		c := e.connect()
		c.call(1, "count", "")
		wantIn(t, c.hear(), `"text":"1"`) // no other session's state
		c.leave()
		e.eventuallyRunning(1)
	}
	first.call(1, "count", "")
	wantIn(t, first.hear(), `"text":"1"`)
}

// The server's messages arrive in its order, also those that belong to no call or
// to one of several.
func TestOrder(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, nil)
	c := e.connect()
	c.call(0, "ask", `"text":"wait"`)
	wantIn(t, c.hear(), "wait")
	for id := 1; id <= 100; id++ {
		c.call(id, "log", `"text":"logged"`)
		wantIn(t, c.hear(), "notifications/message")
		wantIn(t, c.hear(), fmt.Sprintf(`"id":%d,`, id), "done")
	}
}

// Q-04, R25, R55: each client gets its own messages and no others, though all use the same
// ids at the same time.
func TestOwnAnswersOnly(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, nil)
	const clients, calls = 8, 40
	var running sync.WaitGroup
	for number := range clients {
		c := e.connect()
		running.Go(func() {
			for id := range calls {
				body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":{"text":"client %d call %d"}}}`, id, number, id)
				if got, err := e.do(http.MethodPost, c.postTo, body, map[string]string{"Content-Type": typeJSON}); err != nil || got.status != http.StatusAccepted {
					t.Errorf("client %d: post: %+v, %v", number, got, err)
				}
			}
		})
		running.Go(func() {
			open := map[string]bool{}
			for id := range calls {
				open[fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"client %d call %d"}]}}`, id, number, id)] = true
			}
			for range calls {
				got, err := c.next()
				if err != nil || !open[got.data] {
					t.Errorf("client %d got %q, %v", number, got.data, err)
					return
				}
				delete(open, got.data)
			}
		})
	}
	running.Wait()
}

// R06, R31, T-27: when the server dies every call is answered, the last event is
// flushed, and the connection ends.
func TestServerDies(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, nil)
	c := e.connect()
	c.call(1, "sleep", `"ms":600000`)
	c.call(2, "exit", `"n":3`)
	answers := c.hear() + c.hear()
	wantIn(t, answers, `"id":1,"error"`, `"id":2,"error"`, "exit code 3", "told to exit")
	if got, err := c.next(); !errors.Is(err, io.EOF) {
		t.Errorf("then: %+v, %v", got, err)
	}
	e.eventuallyRunning(0)
	if got := c.post(`{"jsonrpc":"2.0","id":3,"method":"ping"}`); got.status != http.StatusNotFound {
		t.Errorf("post afterwards: %d", got.status)
	}
}

// R05: no place or no server is a 503 to the one who asked, and takes no place.
func TestUnavailable(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*endpoint, *Options)
		command []string
		text    string
	}{
		"full": {func(e *endpoint, o *Options) {
			e.registry = session.NewRegistry(session.Policy{Max: 0})
			o.Sessions = e.registry
		}, nil, places.ErrFull.Error()},
		"draining":       {func(e *endpoint, _ *Options) { e.registry.Drain(e.t.Context()) }, nil, fault.ErrDraining.Error()},
		"no such server": {nil, []string{"/does/not/exist"}, "/does/not/exist"},
		"no stream":      {func(e *endpoint, _ *Options) { e.limits.Streams = 0 }, nil, session.ErrTooManyStreams.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEndpoint(t, test.change, test.command...)
			for range 20 { // more often than there are places
				got, err := e.do(http.MethodGet, StreamPath, "", nil)
				if err != nil || got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
					t.Fatalf("got %+v, %v", got, err)
				}
				wantIn(t, got.body, test.text)
				e.eventuallyRunning(0)
			}
		})
	}
}

// Calls beyond the limit, and ids in use, are refused without harm to the others.
func TestCallsRefused(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, func(e *endpoint, _ *Options) { e.limits.Calls = 1 })
	c := e.connect()
	c.call(1, "ask", `"text":"wait"`)
	wantIn(t, c.hear(), `"method":"elicitation/create"`)
	if got := c.post(`{"jsonrpc":"2.0","id":2,"method":"ping"}`); got.status != http.StatusServiceUnavailable {
		t.Errorf("one too many: %d", got.status)
	}
	c.say(`{"jsonrpc":"2.0","id":77,"result":{}}`) // the server did not ask
	c.say(`{"jsonrpc":"2.0","id":1,"result":{"action":"accept"}}`)
	wantIn(t, c.hear(), `"id":1,"result"`, `\"action\":\"accept\"`)
	if got := e.metrics.UnmatchedAnswers.Value(); got != 1 {
		t.Errorf("%d unmatched answers, want 1", got)
	}

	e = newEndpoint(t, nil)
	c = e.connect()
	c.call(1, "ask", `"text":"wait"`)
	c.hear()
	if got := c.post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`); got.status != http.StatusBadRequest {
		t.Errorf("id in use: %d", got.status)
	}
}

// R13: an instance that goes away lets calls finish, and then ends connections.
func TestDrain(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, nil)
	busy, idle := e.connect(), e.connect()
	busy.call(1, "ask", `"text":"busy"`)
	busy.hear()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		ctx, cancel := context.WithTimeout(context.Background(), hang.Guard)
		defer cancel()
		e.registry.Drain(ctx)
	}()
	if got, err := idle.next(); !errors.Is(err, io.EOF) {
		t.Errorf("idle: %+v, %v", got, err)
	}
	busy.say(`{"jsonrpc":"2.0","id":1,"result":{"action":"decline"}}`)
	wantIn(t, busy.hear(), `\"decline\"`)
	if got, err := busy.next(); !errors.Is(err, io.EOF) {
		t.Errorf("busy: %+v, %v", got, err)
	}
	gomega.NewWithT(t).Eventually(drained).WithTimeout(hang.Guard).Should(gomega.BeClosed())
}
