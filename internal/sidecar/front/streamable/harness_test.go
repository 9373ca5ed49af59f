package streamable

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge/edgetest"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Short names for tests.
const (
	headerSession     = front.HeaderSession
	headerRevision    = front.HeaderRevision
	headerLastEventID = front.HeaderLastEventID
	typeJSON          = front.TypeJSON
	typeEvents        = front.TypeEvents
	revision20241105  = front.Revision20241105
	revision20250326  = front.Revision20250326
	revision20250618  = front.Revision20250618
	revision20251125  = front.Revision20251125
)

// endpoint is a Handler behind a real HTTP server, with an MCP server of the
// official SDK, on pipes, for each session.
type endpoint struct {
	t        *testing.T
	url      string
	handler  *Handler
	registry *session.Registry

	mu      sync.Mutex
	servers []*pipeServer
}

// testLimits have no time that a slow machine can reach.
var testLimits = session.Limits{
	Calls: 64, Streams: 4, ReplayBytes: 1 << 20, PendingBytes: 1 << 20, TotalBytes: 64 << 20,
	CommitAfter: time.Hour, CallTimeout: time.Hour, CancelGrace: time.Second, DeliveryTimeout: time.Hour,
}

func newEndpoint(t *testing.T, change func(*Options), doors ...func(*edge.Options)) *endpoint {
	t.Helper()
	e := &endpoint{t: t, registry: session.NewRegistry(session.Policy{Max: 8, IdleTimeout: time.Hour, MaxLifetime: time.Hour})}
	ids := 0
	options := Options{
		Sessions: e.registry,
		Open:     e.open,
		MintID: func() string {
			e.mu.Lock()
			defer e.mu.Unlock()
			ids++
			return fmt.Sprintf("session-%d", ids)
		},
		OpenTimeout: time.Hour, WriteTimeout: time.Hour,
		KeepAlive: 50 * time.Millisecond, Retry: 200 * time.Millisecond,
	}
	if change != nil {
		change(&options)
	}
	e.handler = New(options)
	server := httptest.NewServer(edgetest.At(e.handler.Route(), append([]func(*edge.Options){func(o *edge.Options) { o.Admit = edgetest.Hosts("localhost") }}, doors...)...))
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		e.registry.Drain(ctx)
		server.Close()
	})
	e.url = server.URL
	return e
}

// bodies bounds bodies.
func bodies(bytes int64, timeout time.Duration) func(*edge.Options) {
	return func(o *edge.Options) {
		o.Budget = edgetest.Bodies(edge.BodyLimits{BodyBytes: bytes, ReadTimeout: timeout})
	}
}

// pipeServer is an MCP server at the other end of two pipes.
type pipeServer struct {
	stdin io.WriteCloser
	mu    sync.Mutex
	seen  []string // lines that it was sent
}

func (p *pipeServer) Send(_ context.Context, sent session.Message) error {
	message := sent.Bytes
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, string(message))
	_, err := p.stdin.Write(rpc.AppendFrame(nil, message, rpc.Newline))
	return err
}

func (p *pipeServer) Close() { _ = p.stdin.Close() }

func (p *pipeServer) lines() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.seen, "\n")
}

func (e *endpoint) open(context.Context, *caller.Caller) (*session.Session, error) {
	stdin, toServer := io.Pipe()
	fromServer, stdout := io.Pipe()
	server := &pipeServer{stdin: toServer}
	opened := session.New(server, testLimits, &session.Metrics{})
	go func() {
		reader := rpc.NewFrameReader(fromServer, rpc.Newline, 64<<20, nil)
		for {
			message, err := reader.Next()
			if err != nil {
				opened.End(errors.New("the server went away"))
				return
			}
			if envelope, err := rpc.Scan(message); err == nil {
				opened.Deliver(session.Message{Bytes: message, Envelope: envelope})
			}
		}
	}()
	go func() {
		_ = testServer().Run(context.Background(), &mcp.IOTransport{Reader: stdin, Writer: stdout})
		_ = stdout.Close()
		_ = stdin.Close()
	}()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.servers = append(e.servers, server)
	return opened, nil
}

// server is the first one that was started.
func (e *endpoint) server() *pipeServer {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.servers[0]
}

type echoInput struct {
	Text string `json:"text,omitempty"`
}

// testServer has a tool for each thing that can happen during a call.
func testServer() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	text := func(s string) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
	}
	mcp.AddTool(server, &mcp.Tool{Name: "echo"}, func(_ context.Context, _ *mcp.CallToolRequest, in echoInput) (*mcp.CallToolResult, any, error) {
		return text(in.Text), nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "progress"}, func(ctx context.Context, r *mcp.CallToolRequest, _ echoInput) (*mcp.CallToolResult, any, error) {
		for i := range 3 {
			if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(i)}); err != nil {
				return nil, nil, err
			}
		}
		return text("done"), nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "ask"}, func(ctx context.Context, r *mcp.CallToolRequest, _ echoInput) (*mcp.CallToolResult, any, error) {
		answer, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "sure?"})
		if err != nil {
			return nil, nil, err
		}
		return text(answer.Action), nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "wait"}, func(ctx context.Context, _ *mcp.CallToolRequest, _ echoInput) (*mcp.CallToolResult, any, error) {
		<-ctx.Done()
		return nil, nil, ctx.Err()
	})
	return server
}

// post sends a body as a client would, with the session's id if there is one.
func (e *endpoint) post(sessionID, body string) *http.Response {
	e.t.Helper()
	return e.do("POST", body, map[string]string{
		"Content-Type": typeJSON, "Accept": typeJSON + ", " + typeEvents, headerSession: sessionID,
	})
}

func (e *endpoint) do(method, body string, headers map[string]string) *http.Response {
	e.t.Helper()
	request, err := http.NewRequestWithContext(e.t.Context(), method, e.url, strings.NewReader(body))
	if err != nil {
		e.t.Fatalf("make request: %v", err)
	}
	for name, value := range headers {
		if value != "" {
			request.Header.Set(name, value)
		}
	}
	if host := headers["Host"]; host != "" {
		request.Host = host
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		e.t.Fatalf("%s: %v", method, err)
	}
	e.t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

func bodyOf(t *testing.T, response *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("read body: %v", err)
	}
	return string(body)
}

const initializeBody = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"%s","capabilities":{"elicitation":{}},"clientInfo":{"name":"c","version":"1"}}}`

// openSession opens a session and returns its id.
func (e *endpoint) openSession(revision string) string {
	e.t.Helper()
	response := e.post("", fmt.Sprintf(initializeBody, revision))
	body := bodyOf(e.t, response)
	id := response.Header.Get(headerSession)
	if response.StatusCode != http.StatusOK || id == "" {
		e.t.Fatalf("initialize: %s, session %q: %s", response.Status, id, body)
	}
	if got := e.post(id, `{"jsonrpc":"2.0","method":"notifications/initialized"}`); got.StatusCode != http.StatusAccepted {
		e.t.Fatalf("T-04 initialized: %s", got.Status)
	}
	return id
}

// event is an event as a client sees it.
type event struct{ id, data string }

// events reads a stream event by event, without comments.
func events(body io.Reader) func() (event, error) {
	scanner := bufio.NewScanner(body)
	scanner.Buffer(nil, 64<<20)
	return func() (event, error) {
		var current event
		seen := false
		for scanner.Scan() {
			line := scanner.Bytes()
			switch {
			case len(line) == 0 && seen:
				return current, nil
			case bytes.HasPrefix(line, []byte("id: ")):
				current.id, seen = string(line[4:]), true
			case bytes.HasPrefix(line, []byte("data: ")):
				current.data, seen = string(line[6:]), true
			}
		}
		if err := scanner.Err(); err != nil {
			return event{}, err
		}
		return event{}, io.EOF
	}
}
