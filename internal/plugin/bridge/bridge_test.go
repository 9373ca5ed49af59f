package bridge

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/slipway-mcp/slipway/test/adapter"
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
	if got := callEcho(t, session, "again"); !strings.Contains(got, "again") {
		t.Errorf("after the pod was replaced: got %q", got)
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
