// Package remotetest has MCP servers that speak HTTP, and their clients, for tests.
package remotetest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/test/hang"
)

// Bodies of requests.
const (
	Ping       = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	Initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
)

// Revisions are those with sessions that Streamable HTTP has.
var Revisions = []string{"2025-03-26", "2025-06-18", "2025-11-25"}

// Seen is a request as the server in the pod saw it.
type Seen struct {
	Method, Host, Query string
	Header              http.Header
}

// Backend is a server in the pod, at one address over several lives.
type Backend struct {
	t       *testing.T
	Address string
	mu      sync.Mutex
	http    *http.Server
	got     []Seen
}

// NewBackend starts a server in the pod, until the test ends.
func NewBackend(t *testing.T, handler http.Handler) *Backend {
	t.Helper()
	b := &Backend{t: t, Address: "127.0.0.1:0"}
	b.Start(handler)
	t.Cleanup(b.Stop)
	return b
}

// Start has a handler serve at the address.
func (b *Backend) Start(handler http.Handler) {
	b.t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(b.t.Context(), "tcp", b.Address)
	if err != nil {
		b.t.Fatalf("listen: %v", err)
	}
	b.Address = listener.Addr().String()
	b.http = &http.Server{ReadHeaderTimeout: hang.Guard, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		b.got = append(b.got, Seen{r.Method, r.Host, r.URL.RawQuery, r.Header.Clone()})
		b.mu.Unlock()
		handler.ServeHTTP(w, r)
	})}
	go func(server *http.Server) { _ = server.Serve(listener) }(b.http)
}

// Stop ends the server, and all of its connections.
func (b *Backend) Stop() { _ = b.http.Close() }

// Requests are those with a method that the server has seen.
func (b *Backend) Requests(method string) (got []Seen) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.got {
		if s.Method == method {
			got = append(got, s)
		}
	}
	return got
}

// URL is that of a path at the server.
func (b *Backend) URL(path string) *url.URL {
	return &url.URL{Scheme: "http", Host: b.Address, Path: path}
}

// Front is an endpoint that clients use.
type Front struct {
	T   *testing.T
	URL string
}

// Do makes a request. Headers are names, each with a value after it.
func (e *Front) Do(method, body string, headers ...string) *http.Response {
	e.T.Helper()
	return e.DoContext(e.T.Context(), method, body, headers...)
}

// DoContext is Do with a context.
func (e *Front) DoContext(ctx context.Context, method, body string, headers ...string) *http.Response {
	e.T.Helper()
	request, err := http.NewRequestWithContext(ctx, method, e.URL, strings.NewReader(body))
	if err != nil {
		e.T.Fatalf("make request: %v", err)
	}
	request.Header.Set("Accept", front.TypeJSON+", "+front.TypeEvents)
	if method == http.MethodPost {
		request.Header.Set("Content-Type", front.TypeJSON)
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
		e.T.Fatalf("%s: %v", method, err)
	}
	e.T.Cleanup(func() { _ = response.Body.Close() })
	return response
}

// Open opens a session by hand and returns its id.
func (e *Front) Open(headers ...string) string {
	e.T.Helper()
	response := e.Do("POST", Initialize, headers...)
	id, body := response.Header.Get(front.HeaderSession), Text(e.T, response)
	if response.StatusCode != http.StatusOK || id == "" {
		e.T.Fatalf("initialize: %s, session %q: %s", response.Status, id, body)
	}
	return id
}

// Text is the body of a response.
func Text(t *testing.T, response *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("read body: %v", err)
	}
	return string(body)
}

// Input is that of every tool.
type Input struct {
	Text string `json:"text,omitempty"`
}

// Said is the result of a tool that returns a text.
func Said(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

// NewServer has a tool for each thing that can happen during a call.
func NewServer() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	add := func(name string, run func(context.Context, *mcp.CallToolRequest, string) (string, error)) {
		mcp.AddTool(server, &mcp.Tool{Name: name}, func(ctx context.Context, r *mcp.CallToolRequest, in Input) (*mcp.CallToolResult, any, error) {
			out, err := run(ctx, r, in.Text)
			if err != nil {
				return nil, nil, err
			}
			return Said(out), nil, nil
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
		server.AddTool(&add, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return Said(""), nil })
		return "", nil
	})
	return server
}

// NewStreamable is a NewServer that speaks Streamable HTTP.
func NewStreamable(options *mcp.StreamableHTTPOptions) http.Handler {
	server := NewServer()
	if options == nil {
		options = &mcp.StreamableHTTPOptions{}
	}
	options.MaxRequestBodyBytes = -1
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, options)
}

// Client is a real client and what it was told without asking.
type Client struct {
	*mcp.ClientSession
	Progress chan float64
	Changed  chan struct{}
}

// Connect returns a client that has opened a session in a revision.
func Connect(t *testing.T, endpoint, revision string, change ...func(*mcp.StreamableClientTransport)) *Client {
	t.Helper()
	c := &Client{Progress: make(chan float64, 16), Changed: make(chan struct{}, 16)}
	real := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{}}, nil
		},
		CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Model: "a model", Role: "assistant", Content: &mcp.TextContent{Text: "hi"}}, nil
		},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { c.Progress <- r.Params.Progress },
		ToolListChangedHandler:      func(context.Context, *mcp.ToolListChangedRequest) { c.Changed <- struct{}{} },
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

// WithoutGET is a client that opens no stream of its own.
func WithoutGET(t *mcp.StreamableClientTransport) { t.DisableStandaloneSSE = true }

// Call calls a tool and returns the text of its result.
func (c *Client) Call(t *testing.T, tool, text string) string {
	t.Helper()
	params := &mcp.CallToolParams{Name: tool, Arguments: Input{text}}
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

// Within receives, or fails.
func Within[T any](t *testing.T, what string, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(hang.Guard):
		t.Fatalf("%s: nothing came", what)
	}
	return value
}

// Big is a text of at least n bytes that JSON and event streams must escape in many ways.
func Big(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%d\u00a0\u200d\u3000\"\\\n9007199254740993;", i)
	}
	return b.String()
}

// Script is a server that says what it was told to say.
func Script(answer string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		connection, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer func() { _ = connection.Close() }()
		_, _ = io.WriteString(connection, answer)
	})
}

// OK is an answer for Script.
func OK(contentType, body string, headers ...string) string {
	return "HTTP/1.1 200 OK\r\nContent-Type: " + contentType + "\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n" + strings.Join(headers, "") + "\r\n" + body
}

// UseStreams makes the server send messages that are not answers (R28, T-07, Q-02, T-11).
func UseStreams(t *testing.T, c *Client) {
	t.Helper()
	if got := c.Call(t, "progress", ""); got != "done" {
		t.Errorf("progress: %q", got)
	}
	for want := range 3 {
		if got := Within(t, "progress", c.Progress); got != float64(want) {
			t.Errorf("progress %v, want %d", got, want)
		}
	}
	if got := c.Call(t, "elicit", ""); got != "accept" {
		t.Errorf("elicit: %q", got)
	}
	if got := c.Call(t, "sample", ""); got != "a model" {
		t.Errorf("sample: %q", got)
	}
	c.Call(t, "grow", "new")
	Within(t, "list change over GET", c.Changed)
}

// Left are the goroutines of this package that belong to a connection, and those of HTTP
// clients. The servers of a test have some of their own, which may stay a while.
func Left() string {
	stacks := make([]byte, 16<<20)
	var found strings.Builder
	for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if !strings.Contains(stack, "_test.go") && (strings.Contains(stack, "/sidecar/proxy.") || strings.Contains(stack, "/server/remote.") || strings.Contains(stack, "net/http.(*persistConn)")) {
			found.WriteString(stack + "\n\n")
		}
	}
	return found.String()
}
