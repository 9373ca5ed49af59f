package backend

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/handle"
	"github.com/slipway-mcp/slipway/internal/sidecar/keeper"
	"github.com/slipway-mcp/slipway/internal/sidecar/metrics"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/remote"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionserver"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// sse has a server that speaks HTTP+SSE, the transport of 2024-11-05.
type sse struct {
	*base
	server  *remote.Server
	handles *handle.Binder
}

// NewSSE returns a backend for a server that speaks HTTP+SSE. That transport is older than the
// revision without sessions.
func NewSSE(env *Env) Backend {
	s := &sse{handles: env.newHandles(), server: remote.New(remote.Options{
		URL: env.UpstreamURL, MessageBytes: env.LineBytes, Memory: env.Memory, SendTimeout: mux.SendTimeout,
		Calls: env.CallsPerSession, AcceptTimeout: env.CallTimeout,
	})}
	s.base = newBase(env, sessionless.Legacy, sessionless.Bound{}, nil, func(ctx context.Context, from *caller.Caller) (mux.Server, error) {
		return sessionserver.New(s.open(ctx, from))
	})
	return s
}

func (s *sse) open(ctx context.Context, from *caller.Caller) (*session.Session, error) {
	connection, err := s.server.DialSSE(ctx, from)
	if err != nil {
		return nil, notOpened(notReached, err)
	}
	return s.openRemote(bindTo(from, connection, s.handles)), nil
}

// Open implements Backend.
func (s *sse) Open(ctx context.Context, from *caller.Caller) (*session.Session, error) {
	return s.numbered(s.open(ctx, from))
}

// Connect implements Backend.
func (s *sse) Connect(ctx context.Context, _ bool) (keeper.Connection, error) {
	return connectURL(ctx, s.server.Check, mcpprobe.SSE(s.UpstreamURL.String(), http.Header{}))
}

// Metrics implements Backend.
func (s *sse) Metrics() []metrics.Metric {
	return append(s.base.Metrics(), metrics.HTTPSSE(&s.server.Junk)...)
}

// connectURL lets the keeper connect to a server that speaks HTTP as any client does, if its
// port accepts connections.
func connectURL(ctx context.Context, check func(context.Context) error, target mcpprobe.Target) (keeper.Connection, error) {
	if err := check(ctx); err != nil {
		return keeper.Connection{}, fault.Caused(err, keeper.ErrNotListening)
	}
	return keeper.Connection{Target: target, Close: func() {}, Reason: func(time.Duration) error { return nil }}, nil
}

// openRemote opens a session over a connection to a server that checks tokens itself.
func (e *Env) openRemote(connection mux.Server) *session.Session {
	opened := e.newCheckedSession(connection, nil)
	connection.Serve(opened.Deliver, opened.End)
	return opened
}

// newCheckedSession returns a session with a server that checks tokens itself. lastCaller,
// unless it is nil, becomes the caller whose token the server has accepted last.
func (e *Env) newCheckedSession(server session.Server, lastCaller *atomic.Pointer[caller.Caller]) *session.Session {
	recorder := &tokenRecorder{Server: server, lastCaller: lastCaller}
	recorder.session = e.newSession(recorder)
	recorder.session.ServerChecks = true
	return recorder.session
}

// tokenRecorder records which tokens the server has accepted in a session.
type tokenRecorder struct {
	session.Server
	session    *session.Session
	lastCaller *atomic.Pointer[caller.Caller]
}

// Send implements session.Server. A session has no owner while it is being opened.
func (t *tokenRecorder) Send(ctx context.Context, message session.Message) error {
	if owner := t.session.Owner; owner != nil && message.From != nil {
		from := message.From.Clone()
		from.Accepted = func() {
			owner.Accepted(from)
			if t.lastCaller != nil {
				t.lastCaller.Store(from.Lasting())
			}
		}
		message.From = from
	}
	return t.Server.Send(ctx, message)
}
