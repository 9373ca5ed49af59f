package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/remote/remotetest"
	"github.com/slipway-mcp/slipway/test/hang"
)

// A real client does everything that there is, through the proxy and at every
// revision with sessions.
func TestClientUsesServer(t *testing.T) {
	for _, revision := range revisions {
		for name, options := range map[string]*mcp.StreamableHTTPOptions{
			"stateful":      {},
			"stateful JSON": {JSONResponse: true},
			"resumable":     {EventStore: mcp.NewMemoryEventStore(nil)},
		} {
			t.Run(revision+" "+name, func(t *testing.T) {
				b := newBackend(t, streamableServer(options))
				e := newEndpoint(t, b, nil)
				c := connect(t, e.URL, revision)
				if e.proxy.Sessions.Len() != 1 || !strings.HasPrefix(c.ID(), "ours-") {
					t.Errorf("%d sessions, id %q", e.proxy.Sessions.Len(), c.ID())
				}
				if got := c.Call(t, "echo", "hello"); got != "hello" {
					t.Errorf("echo: %q", got)
				}
				if !options.JSONResponse {
					remotetest.UseStreams(t, c)
				}
				if err := c.Close(); err != nil {
					t.Errorf("T-18 close: %v", err)
				}
				deleted := b.Requests("DELETE")
				if e.proxy.Sessions.Len() != 0 || len(deleted) != 1 {
					t.Fatalf("%d sessions, %d DELETE", e.proxy.Sessions.Len(), len(deleted))
				}
				if got := deleted[0].Header.Get(headerSession); got == "" || strings.HasPrefix(got, "ours-") {
					t.Errorf("DELETE of %q", got)
				}
			})
		}
	}
}

// R26: a server without session ids gets requests that belong to none.
func TestServerWithoutSessionIDsR26(t *testing.T) {
	for _, revision := range revisions {
		t.Run(revision, func(t *testing.T) {
			e := newEndpoint(t, newBackend(t, streamableServer(&mcp.StreamableHTTPOptions{Stateless: true})), nil)
			c := connect(t, e.URL, revision)
			if c.ID() != "" || e.proxy.Sessions.Len() != 0 {
				t.Errorf("id %q, %d sessions", c.ID(), e.proxy.Sessions.Len())
			}
			if got := c.Call(t, "echo", "hello"); got != "hello" {
				t.Errorf("echo: %q", got)
			}
			if got := e.Do("GET", ""); got.StatusCode != http.StatusMethodNotAllowed {
				t.Errorf("R35 GET: %s", got.Status)
			}
		})
	}
}

// L-22, L-28: requests of the stateless revision are the server's to answer. A
// session that they name is not used for them (M-08).
func TestStatelessRevision(t *testing.T) {
	const list = `{"jsonrpc":"2.0","id":"m","method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	for name, test := range map[string]struct {
		options mcp.StreamableHTTPOptions
		status  int
		want    string
	}{
		"spoken":     {mcp.StreamableHTTPOptions{Stateless: true}, 200, `"resultType":"complete"`},
		"not spoken": {mcp.StreamableHTTPOptions{}, 400, `-32022`},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBackend(t, streamableServer(&test.options))
			e := newEndpoint(t, b, nil)
			response := e.Do("POST", list, headerRevision, front.Revision20260728, "Mcp-Method", "tools/list", headerSession, "whatever")
			if body := text(t, response); response.StatusCode != test.status || !strings.Contains(body, test.want) || response.Header.Get(headerSession) != "" {
				t.Errorf("got %s %v: %s", response.Status, response.Header, body)
			}
			if got := b.Requests("POST")[0].Header; got.Get(headerSession) != "" || got.Get("Mcp-Method") != "tools/list" {
				t.Errorf("the server saw %v", got)
			}
			if got := e.Do("GET", "", headerRevision, front.Revision20260728); got.StatusCode != http.StatusMethodNotAllowed || got.Header.Get("Allow") != "POST" {
				t.Errorf("M-01 GET: %s", got.Status)
			}
		})
	}
	t.Run("by a client", func(t *testing.T) {
		e := newEndpoint(t, newBackend(t, streamableServer(&mcp.StreamableHTTPOptions{Stateless: true})), nil)
		if got := connect(t, e.URL, front.Revision20260728).Call(t, "echo", "hello"); got != "hello" {
			t.Errorf("echo: %q", got)
		}
	})
}

// R37, R39, R40, R43: what is large arrives, both ways and byte by byte.
func TestLargePayloads(t *testing.T) {
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"text":"` + strings.Repeat("9007199254740993\\u00a0\u00a0\u200d\u3000\\\\", 2<<20/32) + `"}}`
	e := newEndpoint(t, newBackend(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.ContentLength != int64(len(body)) {
			http.Error(w, "read", http.StatusInternalServerError)
		}
		w.Header().Set("Content-Type", r.URL.RawQuery)
		if r.URL.RawQuery == typeEvents {
			body = fmt.Appendf(nil, "data: %s\n\n", body)
		}
		_, _ = w.Write(body)
	})), nil)
	path := e.URL
	for contentType, want := range map[string]string{typeJSON: call, typeEvents: "data: " + call + "\n\n"} {
		e.URL = path + "?" + contentType
		got := e.Do("POST", call)
		if body := strings.ReplaceAll(text(t, got), rpc.KeepAlive, ""); got.Header.Get("Content-Type") != contentType || body != want {
			t.Errorf("%s: %d bytes came back of %d, or others", contentType, len(body), len(want))
		}
	}
	e = newEndpoint(t, newBackend(t, streamableServer(nil)), nil)
	sent := remotetest.Big(256 << 10)
	if got := connect(t, e.URL, "2025-11-25").Call(t, "echo", sent); got != sent {
		t.Errorf("client: %d bytes came back of %d, or others", len(got), len(sent))
	}
}

// R20, T-17, T-27: the server restarts; the client is told that its session is gone
// and begins again. Some servers say 400 to an id that they do not know.
func TestServerRestarts(t *testing.T) {
	sloppy := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if id := r.Header.Get(headerSession); id != "" {
				http.Error(w, "Bad Request: No valid session ID provided", http.StatusBadRequest)
				return
			}
			h.ServeHTTP(w, r)
		})
	}
	for name, again := range map[string]func(http.Handler) http.Handler{
		"404": func(h http.Handler) http.Handler { return h }, "400": sloppy,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBackend(t, streamableServer(nil))
			e := newEndpoint(t, b, nil)
			c := connect(t, e.URL, "2025-11-25", remotetest.WithoutGET)
			c.Call(t, "echo", "before")
			id := e.Open()
			b.Stop()

			var down *http.Response
			gomega.NewWithT(t).Eventually(func() int { // until no connection is left that is about to close
				down = e.Do("POST", ping, headerSession, id)
				return down.StatusCode
			}).WithTimeout(hang.Guard).ShouldNot(gomega.Equal(http.StatusBadGateway))
			if body := text(t, down); down.StatusCode != 503 || down.Header.Get("Retry-After") == "" || !strings.Contains(body, `"id":1`) || !strings.Contains(body, "connection refused") {
				t.Errorf("while it is down: %s: %s", down.Status, body)
			}
			if err := e.proxy.Reach(t.Context()); err == nil || !strings.Contains(err.Error(), "refused") {
				t.Errorf("check: %v", err)
			}
			if got := e.Do("POST", initializeBody); got.StatusCode != 503 || e.proxy.Sessions.Len() != 2 {
				t.Errorf("initialize: %s, %d sessions", got.Status, e.proxy.Sessions.Len())
			}

			b.Start(again(streamableServer(nil)))
			if err := e.proxy.Reach(t.Context()); err != nil {
				t.Errorf("check: %v", err)
			}
			if got := e.Do("POST", ping, headerSession, id); got.StatusCode != http.StatusNotFound {
				t.Errorf("after: %s: %s", got.Status, text(t, got))
			}
			_, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: input{}})
			if !errors.Is(err, mcp.ErrSessionMissing) {
				t.Errorf("the client got %v", err)
			}
			if e.proxy.Sessions.Len() != 0 || e.proxy.Metrics.Forgotten.Value() != 2 {
				t.Errorf("%d sessions, %d forgotten", e.proxy.Sessions.Len(), e.proxy.Metrics.Forgotten.Value())
			}
			e.Open()
		})
	}
}

// A 400 of a server that never was away means what it says.
func TestBadRequestKeepsTheSession(t *testing.T) {
	e := newEndpoint(t, newBackend(t, streamableServer(nil)), nil)
	e.proxy.noteOutage() // before the session
	id := e.Open()
	if got := e.Do("POST", `[`+ping+`]`, headerSession, id, headerRevision, "2025-11-25"); got.StatusCode != 400 {
		t.Errorf("J-09 batch: %s", got.Status)
	}
	if got := e.Do("POST", ping, headerSession, id); got.StatusCode != 200 {
		t.Errorf("afterwards: %s", got.Status)
	}
}

// J-07: batches are passed on, and the server says what it makes of them.
func TestBatch(t *testing.T) {
	e := newEndpoint(t, newBackend(t, streamableServer(nil)), nil)
	response := e.Do("POST", strings.Replace(initializeBody, "2025-11-25", "2025-03-26", 1))
	_ = text(t, response)
	id := response.Header.Get(headerSession)
	e.Do("POST", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, headerSession, id)
	got := e.Do("POST", "[\n"+ping+",\n"+strings.Replace(ping, "1", "2", 1)+"]", headerSession, id)
	if body := text(t, got); got.StatusCode != 200 || !strings.Contains(body, `"id":1`) {
		t.Errorf("got %s: %s", got.Status, body)
	}
}

// X-01, R25, R55: what one client knows does not open another's session.
func TestProxySessionsAreIsolated(t *testing.T) {
	b := newBackend(t, streamableServer(nil))
	e := newEndpoint(t, b, nil)
	one, two := connect(t, e.URL, "2025-11-25"), connect(t, e.URL, "2025-11-25")
	if one.ID() == two.ID() {
		t.Fatal("two sessions have one id")
	}
	gomega.NewWithT(t).Eventually(func() int { return len(b.Requests("GET")) }).WithTimeout(hang.Guard).Should(gomega.Equal(2))
	for _, got := range b.Requests("GET") {
		serverID := got.Header.Get(headerSession)
		if serverID == one.ID() || serverID == two.ID() {
			t.Error("a client knows the server's id")
		}
		for _, method := range []string{"POST", "GET", "DELETE"} {
			if response := e.Do(method, ping, headerSession, serverID); response.StatusCode != http.StatusNotFound {
				t.Errorf("%s with the server's id: %s", method, response.Status)
			}
		}
	}
	_ = one.Close()
	if got := two.Call(t, "echo", "still here"); got != "still here" {
		t.Errorf("the other session: %q", got)
	}
}

// Draining: new sessions are refused, idle ones end at the server too, calls in
// flight are answered.
func TestDrain(t *testing.T) {
	b := newBackend(t, streamableServer(nil))
	e := newEndpoint(t, b, nil)
	idle := e.Open()
	stream := e.Do("GET", "", headerSession, idle)
	release := make(chan struct{})
	asking := make(chan struct{}, 1)
	busy := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			asking <- struct{}{}
			<-release
			return &mcp.ElicitResult{Action: "decline"}, nil
		},
	})
	session, err := busy.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: e.URL, DisableStandaloneSSE: true},
		&mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "elicit", Arguments: input{}})
		answered <- err
	}()
	within(t, "question", asking)

	drained := make(chan struct{})
	go func() {
		e.proxy.Sessions.Drain(t.Context())
		close(drained)
	}()
	if body := text(t, stream); strings.Contains(body, "data") {
		t.Errorf("the idle session's stream had %q", body)
	}
	for name, response := range map[string]*http.Response{
		"initialize": e.Do("POST", initializeBody), "without a session": e.Do("POST", ping),
	} {
		if response.StatusCode != 503 || response.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %s", name, response.Status)
		}
	}
	if len(b.Requests("DELETE")) != 1 || e.proxy.Sessions.Len() != 1 {
		t.Errorf("%d DELETE, %d sessions", len(b.Requests("DELETE")), e.proxy.Sessions.Len())
	}
	select {
	case <-drained:
		t.Fatal("drained while a call is in flight")
	default:
	}
	close(release)
	if err := within(t, "R13 answer", answered); err != nil {
		t.Errorf("R13: the call in flight: %v", err)
	}
	within(t, "drained", drained)
	if len(b.Requests("DELETE")) != 2 || e.proxy.Sessions.Len() != 0 {
		t.Errorf("%d DELETE, %d sessions", len(b.Requests("DELETE")), e.proxy.Sessions.Len())
	}
}

// R22: sessions that are opened and dropped leave nothing behind.
func TestNothingIsLeftBehind(t *testing.T) {
	e := newEndpoint(t, newBackend(t, streamableServer(nil)), nil)
	for range 50 {
		id := e.Open()
		ctx, cancel := context.WithCancel(t.Context())
		stream := e.DoContext(ctx, "GET", "", headerSession, id)
		e.Do("DELETE", "", headerSession, id)
		cancel()
		_ = stream.Body.Close()
	}
	gomega.NewWithT(t).Eventually(func() string {
		e.proxy.server.Transport.CloseIdleConnections()
		http.DefaultClient.CloseIdleConnections()
		return remotetest.Left()
	}).WithTimeout(hang.Guard).Should(gomega.BeEmpty())
}
