package sidecar

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/slipway-mcp/slipway/internal/launcher"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/sidecar/admin"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/keeper"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/option"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/child"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/shared"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/stateless"
	"github.com/slipway-mcp/slipway/internal/sidecar/upstream"
)

// backend is one way to have a server. Those that give sessions have open; the
// proxy answers clients itself.
type backend struct {
	open    opener
	proxy   *upstream.Proxy
	connect connector                 // for the keeper
	run     func(ctx context.Context) // until the drain is over
	close   func()                    // after it
	// connectStateless is for the keeper to look at a server without a session. It is nil
	// where connect does not open one either.
	connectStateless connector

	eras *eras
	// proxyEras is nil unless there is a proxy.
	proxyEras *proxyEras

	processes *child.Metrics  // nil for servers that run by themselves
	shared    *shared.Metrics // nil unless all sessions share a process
	// Parts that all clients share, besides those of every backend.
	parts []admin.Part
	// Events of the server's that are no messages; nil unless it speaks HTTP+SSE.
	junkEvents *session.Counter
}

func nothing() {}

// idle runs nothing until the context ends.
func idle(ctx context.Context) { <-ctx.Done() }

// opener opens a session for a caller.
type opener func(ctx context.Context, from *caller.Caller) (*session.Session, error)

type connector func(ctx context.Context) (keeper.Connection, error)

// or says what a client is told when no session can be opened.
func (open opener) or(what string) opener {
	return func(ctx context.Context, from *caller.Caller) (*session.Session, error) {
		opened, err := open(ctx, from)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, fault.ForClients(err))
		}
		return opened, nil
	}
}

const (
	notStarted = "the server could not be started"
	notReached = "the server could not be reached"
)

// newBackend makes what the configuration asks for. Servers that speak HTTP are
// started by somebody else, so they need no starter.
func (a *Adapter) newBackend(starter child.Starter) backend {
	switch a.config.Transport {
	case config.StreamableHTTP:
		return a.newProxyBackend()
	case config.SSE:
		return a.newSSEBackend()
	case config.Stdio:
		if a.config.Shared {
			return a.newSharedBackend(starter)
		}
	}
	return a.newProcessBackend(starter)
}

// newPool returns a pool for so many processes, apart from spares.
func (a *Adapter) newPool(starter child.Starter, processes int, sendTimeout time.Duration) *child.Pool {
	return child.NewPool(starter, child.Options{
		Framing: a.config.Framing, LineBytes: a.config.LineBytes,
		Warm: a.config.Warm, Max: processes + a.config.Warm, Starts: a.config.ConcurrentStarts, SendTimeout: sendTimeout,
		LineBytesName: a.config.Names.Of(option.LineBytes), Memory: a.memory, MemoryName: a.config.Names.Of(option.MemoryLimit),
		StartHold: startHold, EOFGrace: eofGrace, TermGrace: termGrace, Log: a.config.Log,
	})
}

// statelessProcesses are those of clients without sessions: an old one may still be on
// its way out when the next one starts.
const statelessProcesses = statelessMost + 1

// newProcessBackend has a process for each session, one for the keeper, one for the
// manager's probe, and some for clients without sessions.
func (a *Adapter) newProcessBackend(starter child.Starter) backend {
	pool := a.newPool(starter, 2*a.config.MaxSessions+2+statelessProcesses, sendTimeout)
	return backend{
		eras: a.newEras(a.config.Era, inProcesses(pool),
			func(ctx context.Context, _ *caller.Caller) (mux.Server, error) { return acquire(ctx, pool) }),
		open: a.eitherWay(func(ctx context.Context, _ *caller.Caller) (*session.Session, error) {
			server, err := acquire(ctx, pool)
			if err != nil {
				return nil, err
			}
			opened := session.New(server, a.sessionLimits(), &a.metrics)
			opened.Number = server.Label()
			server.ServeSession(opened.Deliver, func(reason error) {
				a.logProcessEnd(server, reason)
				opened.End(fault.ForClients(reason))
			})
			return opened, nil
		}),
		connect:   func(ctx context.Context) (keeper.Connection, error) { return a.keepProcess(ctx, pool) },
		run:       pool.Run,
		close:     nothing,
		processes: pool.Metrics(),
	}
}

// acquire gives a process of the pool, or says what clients are told.
func acquire(ctx context.Context, pool *child.Pool) (*child.Server, error) {
	server, err := pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", notStarted, err)
	}
	return server, nil
}

// inProcesses has a process of the pool for clients without sessions.
func inProcesses(pool *child.Pool) withoutSession {
	return func(ctx context.Context) (mux.Server, error) { return acquire(ctx, pool) }
}

// keepProcess gives the keeper a process of its own.
func (a *Adapter) keepProcess(ctx context.Context, pool *child.Pool) (keeper.Connection, error) {
	server, err := pool.Acquire(ctx)
	if err != nil {
		return keeper.Connection{}, marked(err)
	}
	output, input, err := server.Pipes()
	if err != nil {
		server.Close()
		return keeper.Connection{}, server.Reason()
	}
	return keeper.Connection{
		Target: mcpprobe.FramedPipes(output, input, a.config.Framing),
		Close:  server.Close,
		Reason: func() error {
			select {
			case <-server.Done():
				return server.Reason()
			case <-time.After(exitGrace): // its output may end a moment before it does
				return nil
			}
		},
	}, nil
}

// marked tells the keeper a server that cannot be started from one that there is no
// room for, and from one that has no sessions.
func marked(err error) error {
	if _, refused := errors.AsType[*launcher.RefusedError](err); refused || errors.Is(err, fault.ErrFull) {
		return fmt.Errorf("%w: %w", keeper.ErrNoRoom, err)
	}
	if refusal, ok := errors.AsType[*shared.RefusedError](err); ok {
		return &mcpprobe.Error{Class: mcpprobe.Rejected, Op: "initialize", Code: refusal.Code, Detail: err.Error(), Err: err}
	}
	return err
}

// newSharedBackend has one process for all sessions; the keeper has a session of it.
func (a *Adapter) newSharedBackend(starter child.Starter) backend {
	// The old process may still be on its way out when the next one starts. The keeper of
	// a server without sessions has one, too.
	pool := a.newPool(starter, 3+statelessProcesses, stuckTimeout)
	process := shared.New(shared.Options{
		Acquire: func(ctx context.Context) (mux.Server, error) { return pool.Acquire(ctx) },
		Session: a.sessionLimits(), SessionMetrics: &a.metrics,
		Calls: sharedCalls, Subscriptions: subscriptions, InputBytes: pendingBytes, BacklogBytes: a.config.LineBytes,
		StartTimeout: a.config.OpenTimeout, SendTimeout: sendTimeout, StuckTimeout: stuckTimeout, Log: a.config.Log,
	})
	open := opener(func(ctx context.Context, _ *caller.Caller) (*session.Session, error) { return process.Open(ctx) })
	return backend{
		eras: a.newEras(a.config.Era, inProcesses(pool), inSessions(open)),
		open: a.eitherWay(a.numbered(open.or(notStarted))),
		connect: func(ctx context.Context) (keeper.Connection, error) {
			opened, err := process.Open(ctx)
			if err != nil {
				return keeper.Connection{}, marked(err)
			}
			return keepSession(opened)
		},
		connectStateless: func(ctx context.Context) (keeper.Connection, error) { return a.keepProcess(ctx, pool) },
		run:              pool.Run,
		close:            process.Close,
		processes:        pool.Metrics(),
		shared:           process.Metrics(),
		parts:            []admin.Part{{Name: "shared process", Locks: process.Locks}},
	}
}

// newProxyBackend stands in front of a server that speaks Streamable HTTP.
func (a *Adapter) newProxyBackend() backend {
	eras := a.newProxyEras()
	proxy := upstream.NewProxy(upstream.Options{
		Translate: eras.translate, Initialize: eras.initialize,
		URL: a.config.UpstreamURL, MintID: a.mintID, Number: a.nextNumber, Sessions: a.sessions,
		Limits: upstream.Limits{
			Calls: a.config.CallsPerSession, Streams: a.config.StreamsPerSession, Single: statelessCalls, Listens: statelessListens,
			AnswerBytes: a.config.BodyBytes, MaxLifetime: a.config.MaxLifetime,
			OpenTimeout: a.config.OpenTimeout, CallTimeout: a.config.CallTimeout, WriteTimeout: front.WriteTimeout, KeepAlive: front.KeepAliveInterval,
		},
	})
	return backend{
		proxy: proxy, proxyEras: eras, eras: eras.newEras(), open: a.numbered(eras.open),
		connect: keepAddress(proxy.Reach, mcpprobe.HTTP(a.config.UpstreamURL.String(), http.Header{})),
		run:     idle,
		close:   nothing,
	}
}

// newSSEBackend translates for a server that speaks the transport of 2024-11-05.
func (a *Adapter) newSSEBackend() backend {
	server := upstream.NewSSE(upstream.SSEOptions{
		URL: a.config.UpstreamURL, Limits: a.sessionLimits(),
		EventBytes: a.config.LineBytes, SendTimeout: sendTimeout,
	})
	open := opener(func(ctx context.Context, from *caller.Caller) (*session.Session, error) {
		connection, err := server.Dial(ctx, from)
		if err != nil {
			return nil, err
		}
		return a.openAt(connection), nil
	}).or(notReached)
	return backend{
		eras:       a.newEras(stateless.Legacy, nil, inSessions(open)), // the transport is older than the other era
		open:       a.numbered(open),
		connect:    keepAddress(server.Check, mcpprobe.SSE(a.config.UpstreamURL.String(), http.Header{})),
		run:        idle,
		close:      nothing,
		junkEvents: &server.Junk,
	}
}

// keepAddress has the keeper be a client like any other.
func keepAddress(check func(context.Context) error, target mcpprobe.Target) func(context.Context) (keeper.Connection, error) {
	return func(ctx context.Context) (keeper.Connection, error) {
		if err := check(ctx); err != nil {
			return keeper.Connection{}, err
		}
		return keeper.Connection{Target: target, Close: nothing, Reason: func() error { return nil }}, nil
	}
}

func (a *Adapter) sessionLimits() session.Limits {
	return session.Limits{
		Calls: a.config.CallsPerSession, Streams: a.config.StreamsPerSession,
		Detached: detachedStreams, Requests: serverRequests,
		ReplayBytes: a.config.ReplayBytes, PendingBytes: pendingBytes, TotalBytes: 2*a.config.LineBytes + pendingBytes, Memory: a.memory,
		SendingBytes: 2 * int(a.config.BodyBytes),
		CommitAfter:  commitAfter, CallTimeout: a.config.CallTimeout, CancelGrace: cancelGrace,
		DeliveryTimeout: deliveryTimeout, RequestTimeout: max(requestTimeout, a.config.CallTimeout),
	}
}
