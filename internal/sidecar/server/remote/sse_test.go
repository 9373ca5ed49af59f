package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge/edgetest"
	"github.com/slipway-mcp/slipway/internal/sidecar/front/streamable"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/remote/remotetest"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/test/hang"
)

// sseStage is the Streamable HTTP front end with a server behind it that speaks HTTP+SSE.
type sseStage struct {
	*remotetest.Front
	server   *Server
	limits   session.Limits
	registry *session.Registry
}

func newSSEStage(t *testing.T, b *backend, change func(*Options)) *sseStage {
	t.Helper()
	options := Options{URL: b.URL("/sse"), MessageBytes: 32 << 20, Calls: 64, SendTimeout: hang.Guard, AcceptTimeout: hang.Guard}
	if change != nil {
		change(&options)
	}
	s := &sseStage{
		server: New(options),
		limits: session.Limits{
			Calls: 64, Streams: 4, ReplayBytes: 1 << 20, PendingBytes: 1 << 20, TotalBytes: 64 << 20,
			CommitAfter: 100 * time.Millisecond, CallTimeout: hang.Guard, CancelGrace: time.Second, DeliveryTimeout: hang.Guard,
		},
		registry: session.NewRegistry(session.Policy{Max: 8, IdleTimeout: time.Hour, MaxLifetime: time.Hour}),
	}
	next := 0
	front := httptest.NewServer(edgetest.At(streamable.New(streamable.Options{
		Sessions: s.registry, Open: func(ctx context.Context, _ *caller.Caller) (*session.Session, error) { return s.open(ctx) }, MintID: func() string { next++; return fmt.Sprintf("ours-%d", next) },
		OpenTimeout: hang.Guard, WriteTimeout: hang.Guard,
		KeepAlive: time.Second, Retry: time.Second,
	}).Route()))
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		s.registry.Drain(ctx)
		front.CloseClientConnections()
		front.Close()
	})
	s.Front = &remotetest.Front{T: t, URL: front.URL}
	return s
}

// open opens a session with the server.
func (s *sseStage) open(ctx context.Context) (*session.Session, error) {
	c, err := s.server.DialSSE(ctx, nil)
	if err != nil {
		return nil, err
	}
	opened := session.New(c, s.limits, &session.Metrics{})
	c.Serve(opened.Deliver, opened.End)
	return opened, nil
}

func sseServer() http.Handler {
	server := testServer()
	return mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return server }, &mcp.SSEOptions{MaxRequestBodyBytes: -1})
}

// E-01 to E-07: clients of every revision use a server that speaks HTTP+SSE.
func TestClientUsesSSEServer(t *testing.T) {
	for _, revision := range revisions {
		t.Run(revision, func(t *testing.T) {
			b := newBackend(t, sseServer())
			e := newSSEStage(t, b, nil)
			if err := e.server.Check(t.Context()); err != nil {
				t.Errorf("check: %v", err)
			}
			one, two := connect(t, e.URL, revision), connect(t, e.URL, revision)
			if got := one.Call(t, "echo", "hello"); got != "hello" {
				t.Errorf("echo: %q", got)
			}
			remotetest.UseStreams(t, one)
			within(t, "list change of the other client", two.Changed)
			sent := remotetest.Big(128 << 10)
			if got := two.Call(t, "echo", sent); got != sent {
				t.Errorf("R43: %d bytes came back of %d, or others", len(got), len(sent))
			}
			_ = one.Close()
			if got := two.Call(t, "echo", "still here"); got != "still here" || e.registry.Len() != 1 {
				t.Errorf("echo: %q, %d sessions", got, e.registry.Len())
			}
		})
	}
}

// T-27: the server goes away. The call in flight gets an error that says why, and then the
// session is over.
func TestSSEServerGoesAway(t *testing.T) {
	b := newBackend(t, sseServer())
	e := newSSEStage(t, b, nil)
	waiting := make(chan struct{}, 16)
	c := connect(t, e.URL, "2025-11-25", remotetest.WithoutGET, func(transport *mcp.StreamableClientTransport) {
		transport.HTTPClient = &http.Client{Transport: noting(waiting)}
	})
	answered := make(chan error, 1)
	go func() {
		_, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "wait", Arguments: input{}})
		answered <- err
	}()
	// Once the client is answered by a stream the server has taken the call. One that is
	// gone before that has not, and is another story.
	for _, what := range []string{"initialize", "initialized", "the call"} {
		within(t, what, waiting)
	}
	b.Stop()
	if err := within(t, "answer", answered); err == nil || !strings.Contains(err.Error(), "event stream") {
		t.Errorf("got %v", err)
	}
	gomega.NewWithT(t).Eventually(e.registry.Len).WithTimeout(hang.Guard).Should(gomega.BeZero())
	if _, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: input{}}); !errors.Is(err, mcp.ErrSessionMissing) {
		t.Errorf("T-17: got %v", err)
	}
	if got := e.Do("POST", initializeBody); got.StatusCode != 503 || !strings.Contains(text(t, got), "refused") {
		t.Errorf("initialize: %s", got.Status)
	}
	if err := e.server.Check(t.Context()); err == nil {
		t.Error("check: no error")
	}
	b.Start(sseServer())
	if got := connect(t, e.URL, "2025-11-25").Call(t, "echo", "again"); got != "again" {
		t.Errorf("echo: %q", got)
	}
}

// noting is told when an answer begins.
type noting chan<- struct{}

func (n noting) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := http.DefaultTransport.RoundTrip(r)
	n <- struct{}{}
	return response, err
}

// scripted is a server whose stream and answers to POST are made up by the test.
type scripted struct {
	stream string // sent at once
	more   chan string
	post   func(w http.ResponseWriter, r *http.Request, body string)
	gone   chan struct{}
}

func newScripted(stream string) *scripted {
	return &scripted{stream: stream, more: make(chan string, 16), gone: make(chan struct{}, 16)}
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		body, _ := io.ReadAll(r.Body)
		s.post(w, r, string(body))
		return
	}
	w.Header().Set("Content-Type", typeEvents)
	_, _ = io.WriteString(w, s.stream)
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case text, ok := <-s.more:
			if !ok {
				return
			}
			_, _ = io.WriteString(w, text)
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			s.gone <- struct{}{}
			return
		}
	}
}

// E-02, X-08: a server may only name a place on itself.
func TestSSEEndpointEvent(t *testing.T) {
	for name, test := range map[string]struct {
		event, want string // an error, if want begins with !
	}{
		"path":           {"/messages?session=1", "/messages?session=1"},
		"relative":       {"messages", "/messages"},
		"query only":     {"?s=1", "/sse?s=1"},
		"absolute":       {"http://127.0.0.1:PORT/m", "/m"},
		"other loopback": {"http://localhost:PORT/m", "/m"},
		"other host":     {"http://evil.example:PORT/m", "!not on the server itself"},
		"no scheme":      {"//evil.example/m", "!not on the server itself"},
		"other port":     {"http://127.0.0.1:1/m", "!not on the server itself"},
		"other scheme":   {"https://127.0.0.1:PORT/m", "!not on the server itself"},
		"credentials":    {"http://a:b@127.0.0.1:PORT/m", "!not on the server itself"},
		"no URL":         {"http://[::1/m", "!no URL"},
	} {
		t.Run(name, func(t *testing.T) {
			server := newScripted("")
			b := newBackend(t, server)
			port := b.URL("").Port()
			server.stream = "event: endpoint\ndata: " + strings.ReplaceAll(test.event, "PORT", port) + "\n\n"
			got, err := resolveEndpoint(b.URL("/sse"), strings.ReplaceAll(test.event, "PORT", port))
			if text, refused := strings.CutPrefix(test.want, "!"); refused {
				if err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("got %v, %v", got, err)
				}
				e := newSSEStage(t, b, nil)
				if got := e.Do("POST", initializeBody); got.StatusCode != 503 || len(b.Requests("POST")) != 0 {
					t.Errorf("initialize: %s, %d POST", got.Status, len(b.Requests("POST")))
				}
				within(t, "the connection is given up", server.gone)
				return
			}
			if err != nil || got.Host != b.Address || got.RequestURI() != test.want {
				t.Errorf("got %v, %v, want %s", got, err, test.want)
			}
		})
	}
}

// Servers that are none of this kind are refused with what is wrong.
func TestSSEServerIsNoSuchServer(t *testing.T) {
	for name, test := range map[string]struct {
		handler http.Handler
		want    string
	}{
		"404":         {http.NotFoundHandler(), "status 404"},
		"JSON":        {script(ok(typeJSON, "{}")), "application/json"},
		"redirect":    {http.RedirectHandler("/other", http.StatusFound), "redirection"},
		"first event": {script(ok(typeEvents, "data: {}\n\n")), "not endpoint"},
		"no event":    {script(ok(typeEvents, "")), "endpoint event"},
		"endless":     {script(ok(typeEvents, strings.Repeat("x", 1<<20))), "larger than the limit of 1000"},
		"silent":      {newScripted(""), "canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			b := newBackend(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if name == "silent" {
					cancel() // the session is not wanted any more, and nothing else ends the waiting
				}
				test.handler.ServeHTTP(w, r)
			}))
			e := newSSEStage(t, b, func(o *Options) { o.MessageBytes = 1000 })
			if _, err := e.open(ctx); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// What a server may say to a message, and when.
func TestSSEPost(t *testing.T) {
	const answer = "event: message\ndata: {\"jsonrpc\":\"2.0\",\ndata: \"id\":0,\"result\":{\"protocolVersion\":\"2024-11-05\"}}\n\n"
	for name, test := range map[string]struct {
		post   func(s *scripted, w http.ResponseWriter, r *http.Request)
		status int
		want   string
	}{
		"E-04 202": {func(s *scripted, w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusAccepted)
			s.more <- answer
		}, 200, `"result"`},
		"200 with a text": {func(s *scripted, w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "Accepted")
			s.more <- answer
		}, 200, `"result"`},
		"answered before it is accepted": {func(s *scripted, _ http.ResponseWriter, _ *http.Request) { s.more <- answer }, 200, `"result"`},
		"never accepted": {func(s *scripted, _ http.ResponseWriter, r *http.Request) {
			s.more <- answer
			<-r.Context().Done()
		}, 200, `"result"`},
		"refused":         {func(_ *scripted, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(413) }, 503, "status 413"},
		"session unknown": {func(_ *scripted, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, 503, "does not know the session"},
		"redirected": {func(_ *scripted, w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://evil.example/", http.StatusTemporaryRedirect)
		}, 503, "redirection"},
		"refused late": {func(_ *scripted, w http.ResponseWriter, _ *http.Request) {
			time.Sleep(8 * ackWait) // as a server does that takes its time
			w.WriteHeader(500)
		}, 200, `"id":0,"error":{"code":-32603,"message":"the server refuses the message with status 500"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newScripted("event: endpoint\ndata: /m\n\n")
			server.post = func(w http.ResponseWriter, r *http.Request, _ string) { test.post(server, w, r) }
			e := newSSEStage(t, newBackend(t, server), nil)
			got := e.Do("POST", initializeBody)
			if body := text(t, got); got.StatusCode != test.status || !strings.Contains(body, test.want) {
				t.Errorf("got %s: %s, want %d with %q", got.Status, body, test.status, test.want)
			}
		})
	}
}

// R39, R40, R43: what is large arrives, both ways and byte by byte.
func TestSSELargePayloads(t *testing.T) {
	call := `{"jsonrpc":"2.0","id":1,"method":"x","params":{"text":"` + strings.Repeat("9007199254740993\\u00a0\u00a0\u200d\u3000\\\\", 2<<20/32) + `"}}`
	reply := strings.Replace(call, `"method":"x","params"`, `"result"`, 1)
	server := newScripted("event: endpoint\ndata: /m\n\n")
	server.post = func(w http.ResponseWriter, _ *http.Request, body string) {
		w.WriteHeader(http.StatusAccepted)
		if strings.Contains(body, "initialize") {
			server.more <- "data: {\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{\"protocolVersion\":\"2025-11-25\"}}\n\n"
			return
		}
		server.more <- "data: " + strings.Replace(body, `"method":"x","params"`, `"result"`, 1) + "\n\n"
	}
	e := newSSEStage(t, newBackend(t, server), nil)
	got := e.Do("POST", call, headerSession, e.Open())
	body := text(t, got)
	if _, data, ok := strings.Cut(body, "data: {"); ok { // it took long enough to become a stream
		body = "{" + strings.TrimSpace(data)
	}
	if body != reply {
		t.Errorf("%d bytes came back of %d, or others", len(body), len(reply))
	}
}

// R22: sessions that are opened and dropped leave nothing behind.
func TestSSELeavesNothingBehind(t *testing.T) {
	stage := newSSEStage(t, newBackend(t, sseServer()), nil)
	for range 50 {
		opened, err := stage.open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		opened.End(session.ErrClient)
	}
	gomega.NewWithT(t).Eventually(func() string {
		stage.server.endpoint.Transport.CloseIdleConnections()
		http.DefaultClient.CloseIdleConnections()
		return remotetest.Left()
	}).WithTimeout(hang.Guard).Should(gomega.BeEmpty())
}

// E-06: the end of the session ends the connection; junk on it does not.
func TestSSEStream(t *testing.T) {
	server := newScripted("event: endpoint\ndata: /m\n\n")
	accept := func(w http.ResponseWriter, _ *http.Request, body string) {
		w.WriteHeader(http.StatusAccepted)
		server.more <- "data: not JSON\n\nevent: other\ndata: " + body + "\n\n"
		server.more <- "data: {\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{\"protocolVersion\":\"2024-11-05\"}}\n\n"
	}
	server.post = accept
	e := newSSEStage(t, newBackend(t, server), nil)
	id := e.Open()
	if e.server.Junk.Value() != 2 {
		t.Errorf("%d are junk", e.server.Junk.Value())
	}
	if got := e.Do("DELETE", "", headerSession, id); got.StatusCode != http.StatusNoContent {
		t.Errorf("DELETE: %s", got.Status)
	}
	within(t, "the connection ends", server.gone)

	// T-17: the server forgets the session while its stream is open.
	id = e.Open()
	server.post = func(w http.ResponseWriter, _ *http.Request, _ string) { w.WriteHeader(http.StatusNotFound) }
	for range 2 {
		if got := e.Do("POST", ping, headerSession, id); got.StatusCode != http.StatusNotFound {
			t.Errorf("T-17: %s: %s", got.Status, text(t, got))
		}
	}
	server.post = accept
	id = e.Open()
	close(server.more)
	gomega.NewWithT(t).Eventually(e.registry.Len).WithTimeout(hang.Guard).Should(gomega.BeZero())
	if got := e.Do("POST", ping, headerSession, id); got.StatusCode != http.StatusNotFound {
		t.Errorf("after the stream has ended: %s", got.Status)
	}
}

// A server that takes messages and does not say so holds up a number of them only.
func TestUnacceptedMessagesAreBounded(t *testing.T) {
	accept := make(chan struct{})
	server := newScripted("event: endpoint\ndata: /m\n\n")
	server.post = func(w http.ResponseWriter, r *http.Request, _ string) {
		select {
		case <-accept:
		case <-r.Context().Done():
		}
		w.WriteHeader(http.StatusAccepted)
	}
	e := newSSEStage(t, newBackend(t, server), func(o *Options) { o.Calls = 1 })
	opened, err := e.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer opened.End(session.ErrClient)
	tell := func() error {
		text := []byte(`{"jsonrpc":"2.0","method":"n"}`)
		envelope, err := rpc.Scan(text)
		if err != nil {
			t.Fatal(err)
		}
		return opened.Tell(t.Context(), session.Message{Bytes: text, Envelope: envelope})
	}
	for range postsPerCall {
		if err := tell(); err != nil {
			t.Fatal(err)
		}
	}
	if err := tell(); !errors.Is(err, session.ErrTooManyCalls) {
		t.Errorf("one too many: %v", err)
	}
	close(accept)
	gomega.NewWithT(t).Eventually(tell).WithTimeout(hang.Guard).Should(gomega.Succeed())
}

// R44: a message with bytes that are no UTF-8 is received, as valid JSON.
func TestSSEInvalidUTF8(t *testing.T) {
	server := newScripted("event: endpoint\ndata: /m\n\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"n\",\"params\":{\"text\":\"\xff\"}}\n\n")
	dialed, err := newSSEStage(t, newBackend(t, server), nil).server.DialSSE(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := within(t, "notification", converse(t, dialed).others); !strings.Contains(got, "\"text\":\"\ufffd\"") {
		t.Errorf("got %q", got)
	}
}
