package tomodern

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge/edgetest"
	"github.com/slipway-mcp/slipway/internal/sidecar/front/stateless"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/test/hang"
)

// piped is a server of the official SDK that is spoken to as to a process.
type piped struct {
	input  *io.PipeWriter
	output *io.PipeReader
	mu     sync.Mutex // of writes
}

func startPiped(t *testing.T, server *mcp.Server) *piped {
	t.Helper()
	theirs, input := io.Pipe()
	output, answers := io.Pipe()
	if _, err := server.Connect(t.Context(), &mcp.IOTransport{Reader: theirs, Writer: answers}, nil); err != nil {
		t.Errorf("connect: %v", err)
	}
	return &piped{input: input, output: output}
}

func (p *piped) Send(_ context.Context, sent session.Message) error {
	message := sent.Bytes
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.input.Write(rpc.AppendFrame(nil, message, rpc.Newline))
	return err
}

func (p *piped) Close() {
	_ = p.input.Close()
	_ = p.output.Close()
}

func (p *piped) Serve(receive func(session.Message), ended func(error)) {
	go func() {
		reader := rpc.NewFrameReader(p.output, rpc.Newline, 1<<20, func([]byte) {})
		for {
			text, err := reader.Next()
			if err != nil {
				ended(err)
				return
			}
			if e, err := rpc.ScanLenient(text); err == nil {
				receive(session.Message{Bytes: text, Envelope: e})
			}
		}
	}()
}

var errNotAsked = errors.New("the user said no")

// realServer asks, logs, reports progress and has a resource. It counts its calls.
func realServer(calls *atomic.Int32) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "real", Version: "1"}, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	mcp.AddTool(server, &mcp.Tool{Name: "ask"}, func(ctx context.Context, r *mcp.CallToolRequest, _ any) (*mcp.CallToolResult, any, error) {
		calls.Add(1)
		names := make([]string, 2)
		for i := range names {
			got, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "who?", RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{"name": map[string]any{"type": "string"}}}})
			if err != nil {
				return nil, nil, err
			}
			if got.Action != "accept" {
				return nil, nil, errNotAsked
			}
			names[i], _ = got.Content["name"].(string)
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: strings.Join(names, " and ")}}}, nil, nil
	})
	mcp.AddTool(server, &mcp.Tool{Name: "work"}, func(ctx context.Context, r *mcp.CallToolRequest, _ any) (*mcp.CallToolResult, any, error) {
		err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: 1, Message: "half"})
		return &mcp.CallToolResult{Content: []mcp.Content{}}, nil, err
	})
	mcp.AddTool(server, &mcp.Tool{Name: "grow"}, func(_ context.Context, _ *mcp.CallToolRequest, _ any) (*mcp.CallToolResult, any, error) {
		mcp.AddTool(server, &mcp.Tool{Name: "new"}, func(context.Context, *mcp.CallToolRequest, any) (*mcp.CallToolResult, any, error) {
			return nil, nil, nil
		})
		return &mcp.CallToolResult{Content: []mcp.Content{}}, nil, nil
	})
	return server
}

// serveReal offers such servers to clients without sessions at a URL.
func serveReal(t *testing.T) (url string, calls *atomic.Int32) {
	t.Helper()
	calls = &atomic.Int32{}
	modern := sessionless.New(sessionless.Options{
		Era: sessionless.Legacy,
		Limits: sessionless.Limits{
			Calls: 100, Listens: 100, SendingBytes: 1 << 20, BacklogBytes: 1 << 20, TotalBytes: 1 << 20, StartTimeout: hang.Guard, Silence: hang.Guard,
			IdleTimeout: hang.Guard,
		},
		Translate: func() sessionless.Translator {
			return New(Options{Limits: testLimits(), Serves: serves, Acquire: func(context.Context, *caller.Caller) (mux.Server, error) {
				return startPiped(t, realServer(calls)), nil
			}})
		},
	})
	endpoint := stateless.New(stateless.Options{Server: modern, CallTimeout: hang.Guard, CommitAfter: hang.Guard, WriteTimeout: hang.Guard, KeepAlive: hang.Guard})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		edgetest.At(edge.Route{Serve: endpoint.Serve}).ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		modern.Close()
		server.Close()
	})
	return server.URL, calls
}

// The official client of the stateless revision and the official server with sessions,
// with all that lies between.
func TestRealClientAndServer(t *testing.T) {
	url, calls := serveReal(t)
	progress, changed := make(chan string, 10), make(chan struct{}, 10)
	names := []string{"Ada", "Bob"}
	c := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			name := names[0]
			names = names[1:]
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": name}}, nil
		},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { progress <- r.Params.Message },
		ToolListChangedHandler:      func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} },
	})
	connected, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := connected.InitializeResult(); got.ProtocolVersion != "2026-07-28" || got.ServerInfo == nil || got.ServerInfo.Name != "real" {
		t.Errorf("got %+v", got)
	}
	tools, err := connected.ListTools(t.Context(), nil)
	if err != nil || len(tools.Tools) != 3 {
		t.Errorf("got %v, %v, want three tools", tools, err)
	}
	result, err := connected.CallTool(t.Context(), &mcp.CallToolParams{Name: "ask"})
	if err != nil || result.IsError || result.Content[0].(*mcp.TextContent).Text != "Ada and Bob" {
		t.Errorf("got %+v, %v", result, err)
	}
	if calls.Load() != 1 {
		t.Errorf("the tool was called %d times", calls.Load())
	}
	params := &mcp.CallToolParams{Name: "work"}
	params.SetProgressToken("mine")
	if _, err := connected.CallTool(t.Context(), params); err != nil {
		t.Error(err)
	}
	if got := <-progress; got != "half" {
		t.Errorf("got progress %q", got)
	}
	if _, err := connected.CallTool(t.Context(), &mcp.CallToolParams{Name: "grow"}); err != nil {
		t.Error(err)
	}
	select {
	case <-changed:
	case <-time.After(hang.Guard):
		t.Error("the change of the list was not told")
	}
	if _, err := connected.CallTool(t.Context(), &mcp.CallToolParams{Name: "unknown"}); err == nil {
		t.Error("an unknown tool can be called")
	}
	if err := connected.Close(); err != nil {
		t.Error(err)
	}
}
