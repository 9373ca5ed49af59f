package upstream

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge/edgetest"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/origin"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/test/hang"
)

// Short names for tests.
const (
	headerSession  = front.HeaderSession
	headerRevision = front.HeaderRevision
	typeJSON       = front.TypeJSON
	typeEvents     = front.TypeEvents
)

const (
	ping           = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	initializeBody = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
)

var revisions = []string{"2025-03-26", "2025-06-18", "2025-11-25"}

var testLimits = Limits{
	Calls: 8, Streams: 4, Single: 8, Listens: 8, AnswerBytes: 16 << 20,
	MaxLifetime: time.Hour,
	OpenTimeout: hang.Guard, CallTimeout: hang.Guard, WriteTimeout: hang.Guard, KeepAlive: 50 * time.Millisecond,
}

// seen is a request as the server in the pod saw it.
type seen struct {
	method, host, query string
	header              http.Header
}

// backend is a server in the pod, at one address over several lives.
type backend struct {
	t       *testing.T
	address string
	mu      sync.Mutex
	http    *http.Server
	got     []seen
}

func newBackend(t *testing.T, handler http.Handler) *backend {
	t.Helper()
	b := &backend{t: t, address: "127.0.0.1:0"}
	b.start(handler)
	t.Cleanup(b.stop)
	return b
}

func (b *backend) start(handler http.Handler) {
	b.t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(b.t.Context(), "tcp", b.address)
	if err != nil {
		b.t.Fatalf("listen: %v", err)
	}
	b.address = listener.Addr().String()
	b.http = &http.Server{ReadHeaderTimeout: hang.Guard, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		b.got = append(b.got, seen{r.Method, r.Host, r.URL.RawQuery, r.Header.Clone()})
		b.mu.Unlock()
		handler.ServeHTTP(w, r)
	})}
	go func(server *http.Server) { _ = server.Serve(listener) }(b.http)
}

func (b *backend) stop() { _ = b.http.Close() }

func (b *backend) requests(method string) (got []seen) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.got {
		if s.method == method {
			got = append(got, s)
		}
	}
	return got
}

func (b *backend) url(path string) *url.URL {
	return &url.URL{Scheme: "http", Host: b.address, Path: path}
}

// endpoint is a Proxy in front of a backend.
type endpoint struct {
	t     *testing.T
	proxy *Proxy
	door  *edge.Door
	url   string
}

func newEndpoint(t *testing.T, b *backend, change func(*Options), doors ...func(*edge.Options)) *endpoint {
	t.Helper()
	options := Options{
		URL:    b.url("/mcp"),
		MintID: func() string { return "ours-" + rand.Text() }, Number: func() string { return "1" },
		Limits: testLimits, Sessions: newRegistry(8, time.Hour),
	}
	if change != nil {
		change(&options)
	}
	proxy := NewProxy(options)
	door := edgetest.At(proxy.Route(), append([]func(*edge.Options){admitExamples}, doors...)...)
	front := httptest.NewServer(door)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		proxy.Sessions.Drain(ctx)
		front.CloseClientConnections()
		front.Close()
	})
	return &endpoint{t: t, proxy: proxy, door: door, url: front.URL + "/mcp"}
}

func newRegistry(most int, lifetime time.Duration) *session.Registry {
	return session.NewRegistry(session.Policy{Max: most, IdleTimeout: time.Hour, MaxLifetime: lifetime})
}

func admitExamples(o *edge.Options) {
	policy := &origin.Policy{Hosts: []string{"mcp.example"}, Origins: []string{"https://chat.example"}}
	o.Admit = &edge.Origins{Policy: func() *origin.Policy { return policy }}
}

func (e *endpoint) do(method, body string, headers ...string) *http.Response {
	e.t.Helper()
	return e.doContext(e.t.Context(), method, body, headers...)
}

func (e *endpoint) doContext(ctx context.Context, method, body string, headers ...string) *http.Response {
	e.t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, e.url, strings.NewReader(body))
	if err != nil {
		e.t.Fatalf("make request: %v", err)
	}
	request.Header.Set("Accept", acceptBoth)
	if method == http.MethodPost {
		request.Header.Set("Content-Type", typeJSON)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			request.Host = headers[i+1]
			continue
		}
		request.Header.Add(headers[i], headers[i+1])
	}
	if values := request.Header.Values("Content-Type"); len(values) > 1 {
		request.Header["Content-Type"] = values[1:]
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		e.t.Fatalf("%s: %v", method, err)
	}
	e.t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

// open opens a session by hand and returns its id.
func (e *endpoint) open(headers ...string) string {
	e.t.Helper()
	response := e.do("POST", initializeBody, headers...)
	id, body := response.Header.Get(headerSession), text(e.t, response)
	if response.StatusCode != http.StatusOK || id == "" {
		e.t.Fatalf("initialize: %s, session %q: %s", response.Status, id, body)
	}
	return id
}

func text(t *testing.T, response *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("read body: %v", err)
	}
	return string(body)
}

type input struct {
	Text string `json:"text,omitempty"`
}

func said(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

// testServer has a tool for each thing that can happen during a call.
func testServer() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	add := func(name string, run func(context.Context, *mcp.CallToolRequest, string) (string, error)) {
		mcp.AddTool(server, &mcp.Tool{Name: name}, func(ctx context.Context, r *mcp.CallToolRequest, in input) (*mcp.CallToolResult, any, error) {
			out, err := run(ctx, r, in.Text)
			if err != nil {
				return nil, nil, err
			}
			return said(out), nil, nil
		})
	}
	add("echo", func(_ context.Context, _ *mcp.CallToolRequest, text string) (string, error) { return text, nil })
	add("progress", func(ctx context.Context, r *mcp.CallToolRequest, _ string) (string, error) {
		for i := range 3 {
			if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(i)}); err != nil {
				return "", err
			}
		}
		return "done", nil
	})
	add("elicit", func(ctx context.Context, r *mcp.CallToolRequest, _ string) (string, error) {
		answer, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "sure?"})
		if err != nil {
			return "", err
		}
		return answer.Action, nil
	})
	add("sample", func(ctx context.Context, r *mcp.CallToolRequest, _ string) (string, error) {
		answer, err := r.Session.CreateMessage(ctx, &mcp.CreateMessageParams{MaxTokens: 1})
		if err != nil {
			return "", err
		}
		return answer.Model, nil
	})
	add("wait", func(ctx context.Context, _ *mcp.CallToolRequest, _ string) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	})
	add("grow", func(_ context.Context, _ *mcp.CallToolRequest, name string) (string, error) {
		add := mcp.Tool{Name: name, InputSchema: map[string]any{"type": "object"}}
		server.AddTool(&add, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return said(""), nil })
		return "", nil
	})
	return server
}

func streamableServer(options *mcp.StreamableHTTPOptions) http.Handler {
	server := testServer()
	if options == nil {
		options = &mcp.StreamableHTTPOptions{}
	}
	options.MaxRequestBodyBytes = -1
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, options)
}

// client is a real client and what it was told without asking.
type client struct {
	*mcp.ClientSession
	progress chan float64
	changed  chan struct{}
}

func connect(t *testing.T, endpoint, revision string, change ...func(*mcp.StreamableClientTransport)) *client {
	t.Helper()
	c := &client{progress: make(chan float64, 16), changed: make(chan struct{}, 16)}
	real := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{}}, nil
		},
		CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Model: "a model", Role: "assistant", Content: &mcp.TextContent{Text: "hi"}}, nil
		},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { c.progress <- r.Params.Progress },
		ToolListChangedHandler:      func(context.Context, *mcp.ToolListChangedRequest) { c.changed <- struct{}{} },
	})
	transport := &mcp.StreamableClientTransport{Endpoint: endpoint, MaxRetries: -1, MaxEventSize: -1}
	for _, change := range change {
		change(transport)
	}
	session, err := real.Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatalf("connect with %s: %v", revision, err)
	}
	t.Cleanup(func() { _ = session.Close() })
	if got := session.InitializeResult().ProtocolVersion; got != revision {
		t.Fatalf("agreed on %s, want %s", got, revision)
	}
	c.ClientSession = session
	return c
}

func withoutGET(t *mcp.StreamableClientTransport) { t.DisableStandaloneSSE = true }

func (c *client) call(t *testing.T, tool, text string) string {
	t.Helper()
	params := &mcp.CallToolParams{Name: tool, Arguments: input{text}}
	params.SetProgressToken("token")
	result, err := c.CallTool(t.Context(), params)
	if err != nil {
		t.Fatalf("call %s: %v", tool, err)
	}
	content, ok := result.Content[0].(*mcp.TextContent)
	if !ok || result.IsError {
		t.Fatalf("call %s: got %+v", tool, result.Content[0])
	}
	return content.Text
}

// within receives, or fails.
func within[T any](t *testing.T, what string, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(hang.Guard):
		t.Fatalf("%s: nothing came", what)
	}
	return value
}

func big(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%d\u00a0\u200d\u3000\"\\\n9007199254740993;", i)
	}
	return b.String()
}
