package remote

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/test/hang"
)

// conversation is a connection as the translating packages use it.
type conversation struct {
	t       *testing.T
	server  mux.Server
	from    *caller.Caller // that sends; nil is the adapter
	answers chan string
	others  chan string // notifications and requests of the server
	ended   chan error
}

func converse(t *testing.T, server mux.Server) *conversation {
	t.Helper()
	c := &conversation{t: t, server: server, answers: make(chan string, 64), others: make(chan string, 64), ended: make(chan error, 2)}
	var receiving sync.Mutex
	server.Serve(func(m session.Message) {
		if !receiving.TryLock() {
			t.Error("two messages are received at a time")
			return
		}
		defer receiving.Unlock()
		to := c.others
		if m.Envelope.Kind == rpc.Response {
			to = c.answers
		}
		select {
		case to <- string(m.Bytes):
		default: // a flood is not kept
		}
	}, func(reason error) { c.ended <- reason })
	t.Cleanup(server.Close)
	return c
}

func (c *conversation) send(message string) {
	c.t.Helper()
	if err := c.server.Send(c.t.Context(), session.Message{Bytes: []byte(message), From: c.from}); err != nil {
		c.t.Fatalf("send %s: %v", message, err)
	}
}

// ask sends a request and returns its answer.
func (c *conversation) ask(request string) string {
	c.t.Helper()
	c.send(request)
	return within(c.t, "answer to "+request, c.answers)
}

// open is how every session begins.
func (c *conversation) open() {
	c.t.Helper()
	if got := c.ask(initializeBody); !strings.Contains(got, `"protocolVersion":"2025-11-25"`) {
		c.t.Fatalf("initialize: %s", got)
	}
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

func connectionOptions(to *url.URL) Options {
	return Options{URL: to, MessageBytes: 4 << 20, Calls: 8, SendTimeout: hang.Guard}
}

// pipes are a network of its own, with which a test's time is its own, too.
type pipes struct {
	calls  chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.calls:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// newPipeServer is a server in the test's own time.
func newPipeServer(t *testing.T, handler http.Handler) *Server {
	t.Helper()
	network := &pipes{calls: make(chan net.Conn), closed: make(chan struct{})}
	front := &http.Server{Handler: handler, ReadHeaderTimeout: time.Hour}
	go func() { _ = front.Serve(network) }()
	s := New(connectionOptions(&url.URL{Scheme: "http", Host: "server", Path: "/mcp"}))
	s.endpoint.Transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		select {
		case network.calls <- theirs:
			return ours, nil
		case <-network.closed:
			return nil, &net.OpError{Op: "dial", Err: net.ErrClosed}
		}
	}
	t.Cleanup(func() {
		_ = front.Close()
		s.endpoint.Transport.CloseIdleConnections()
	})
	return s
}

// pipeStateful is a connection to such a server.
func pipeStateful(t *testing.T, handler http.Handler) *Stateful {
	t.Helper()
	return newStateful(newPipeServer(t, handler), nil)
}
