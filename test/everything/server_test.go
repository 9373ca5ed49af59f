//go:build conformance

package everything

import (
	"context"
	"crypto/rand"
	"io"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"

	"github.com/slipway-mcp/slipway/internal/launcher"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge/edgetest"
	"github.com/slipway-mcp/slipway/internal/sidecar/front/sse"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/child"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/test/hang"
	"github.com/slipway-mcp/slipway/test/npm"
)

// install installs the pinned packages and returns the server's command.
func install(t *testing.T) (command []string) {
	t.Helper()
	modules, err := npm.Install(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	return []string{"node", filepath.Join(modules, "@modelcontextprotocol", "server-everything", "dist", "index.js"), "stdio"}
}

// endpoint is the HTTP+SSE transport in this process, with a process of the server
// for each session.
type endpoint struct {
	url      string
	pool     *child.Pool
	sessions *session.Registry
}

func newEndpoint(t *testing.T, command ...string) *endpoint {
	t.Helper()
	direct, err := launcher.NewDirect(launcher.Options{Command: command, Stderr: io.Discard})
	if err != nil {
		t.Fatalf("run server's command: %v", err)
	}
	e := &endpoint{
		pool: child.NewPool(direct, child.Options{
			LineBytes: 16 << 20, Max: 8, Starts: 4,
			StartHold: 5 * time.Second, EOFGrace: 500 * time.Millisecond, TermGrace: 2 * time.Second, SendTimeout: hang.Guard, Log: testr.New(t),
		}),
		sessions: session.NewRegistry(session.Policy{Max: 8, IdleTimeout: time.Hour, MaxLifetime: time.Hour}),
	}
	metrics := &session.Metrics{}
	transport := sse.New(sse.Options{
		Sessions: e.sessions, MintToken: rand.Text, PostTo: sse.MessagesPath,
		Open: func(ctx context.Context, _ *caller.Caller) (*session.Session, error) {
			server, err := e.pool.Acquire(ctx)
			if err != nil {
				return nil, err
			}
			opened := session.New(server, session.Limits{
				Calls: 64, Streams: 1, PendingBytes: 1 << 20, TotalBytes: 32 << 20,
				CallTimeout: hang.Guard, CancelGrace: 5 * time.Second, DeliveryTimeout: hang.Guard,
			}, metrics)
			server.Serve(opened.Deliver, opened.End)
			return opened, nil
		},
		OpenTimeout: hang.Guard, WriteTimeout: hang.Guard, KeepAlive: time.Second,
	})
	server := httptest.NewServer(edgetest.Door(transport.Routes()))
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		e.sessions.Drain(ended)
		server.Close()
		if err := direct.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	e.url = server.URL
	return e
}
