package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/slipway-mcp/slipway/test/adapter"
	"github.com/slipway-mcp/slipway/test/hang"
	"github.com/slipway-mcp/slipway/test/servers"
)

var sidecarBinary, echoServer string

func TestMain(m *testing.M) {
	os.Exit(servers.Run(m, map[string]*string{"cmd/sidecar": &sidecarBinary, "test/servers/echo": &echoServer}))
}

// place is the adapter that requests go to now.
type place struct{ host atomic.Pointer[string] }

func (p *place) set(t *testing.T, at string) {
	t.Helper()
	parsed, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	p.host.Store(&parsed.Host)
}

// RoundTrip implements http.RoundTripper.
func (p *place) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.URL.Host = *p.host.Load()
	return http.DefaultTransport.RoundTrip(request)
}

// connected is a client of the official SDK behind a bridge.
func connected(t *testing.T, at *place) *mcp.ClientSession {
	t.Helper()
	fromClient, toBridge := io.Pipe()
	fromBridge, toClient := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		b := &Bridge{Client: &http.Client{Transport: at}, Endpoint: "http://127.0.0.1/mcp"}
		ended <- b.Run(ctx, fromClient, toClient)
	}()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).
		Connect(t.Context(), &mcp.IOTransport{Reader: fromBridge, Writer: toBridge}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = session.Close()
		_ = toBridge.Close()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return session
}

func callEcho(t *testing.T, session *mcp.ClientSession, words string) string {
	t.Helper()
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": words}})
	if err != nil {
		t.Fatal(err)
	}
	return result.Content[0].(*mcp.TextContent).Text
}

// A client that only starts processes uses a server that speaks HTTP, and goes on when the server's pod
// is replaced by another.
func TestBridge(t *testing.T) {
	serve := func() string { return adapter.Start(t, sidecarBinary, "--", echoServer) }
	var pids sync.Map
	at := &place{}
	at.set(t, serve())
	session := connected(t, at)
	tools, err := session.ListTools(t.Context(), nil)
	if err != nil || len(tools.Tools) == 0 {
		t.Fatalf("%v, %v", tools, err)
	}
	if got := callEcho(t, session, "hello\u2028\n"); !strings.Contains(got, "hello") {
		t.Errorf("got %q", got)
	}
	at.set(t, serve())
	var calls sync.WaitGroup
	for range 10 { // which all notice that the session is gone
		calls.Go(func() {
			result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "pid"})
			if err != nil || len(result.Content) != 1 {
				t.Errorf("after the pod was replaced: %v, %v", result, err)
				return
			}
			pids.Store(result.Content[0].(*mcp.TextContent).Text, true)
		})
	}
	calls.Wait()
	processes := 0
	pids.Range(func(any, any) bool { processes++; return true })
	if processes != 1 {
		t.Errorf("%d sessions were opened in place of one", processes)
	}
}

// The end of the input does not lose the answers to what was asked before.
func TestEndOfInput(t *testing.T) {
	at := &place{}
	at.set(t, adapter.Start(t, sidecarBinary, "--", echoServer))
	b := &Bridge{Client: &http.Client{Transport: at}, Endpoint: "http://127.0.0.1/mcp"}
	in := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
no message
{"jsonrpc":"2.0","id":"two","method":"tools/call","params":{"name":"sleep","arguments":{"ms":200}}}
{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"echo","arguments":{"text":"three"}}}`)
	var out bytes.Buffer
	if err := b.Run(t.Context(), in, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"id":1,`, `"id":"two"`, `"id":3,`, "three", "-32700"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in:\n%s", want, out.String())
		}
	}
	for line := range strings.Lines(out.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not a message: %s", line)
		}
	}
}

// The end of the context ends the bridge, also while nothing comes from the client.
func TestEndOfContext(t *testing.T) {
	at := &place{}
	at.set(t, adapter.Start(t, sidecarBinary, "--", echoServer))
	ctx, cancel := context.WithCancel(t.Context())
	in, _ := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- (&Bridge{Client: &http.Client{Transport: at}, Endpoint: "http://127.0.0.1/mcp"}).Run(ctx, in, io.Discard)
	}()
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(hang.Guard):
		t.Fatal("it did not end")
	}
}

// What cannot be passed on is answered, so that the client does not wait.
func TestUnreachable(t *testing.T) {
	at := &place{}
	at.set(t, adapter.Start(t, sidecarBinary, "--", echoServer))
	session := connected(t, at)
	at.set(t, "http://127.0.0.1:1")
	_, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "x"}})
	if err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("got %v", err)
	}
}

func startAdapter(t *testing.T) string {
	t.Helper()
	return adapter.Start(t, sidecarBinary, "--stateless-clients", "Translate", "--", echoServer)
}
