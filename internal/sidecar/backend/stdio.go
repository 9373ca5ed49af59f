package backend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/launcher"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/sidecar/admin"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/keeper"
	"github.com/slipway-mcp/slipway/internal/sidecar/metrics"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/option"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/news"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/child"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionserver"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/shared"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// processes has a process for each session of a stdio server.
type processes struct {
	*base
	pool *child.Pool
}

// statelessProcesses is how many processes clients without sessions have at most: an old one
// may still be ending when the next one starts.
const statelessProcesses = sessionless.MaxProcesses + 1

// newPool returns a pool for so many processes, besides spares and those of clients without
// sessions. A process has sendTimeout to read a message.
func newPool(env *Env, starter child.Starter, processes int, sendTimeout time.Duration) *child.Pool {
	return child.NewPool(starter, child.Options{
		Framing: env.Framing, LineBytes: env.LineBytes,
		Warm: env.Warm, Max: processes + statelessProcesses + env.Warm, Starts: env.ConcurrentStarts, SendTimeout: sendTimeout,
		LineBytesName: env.Names.Of(option.LineBytes), Memory: env.Memory, MemoryName: env.Names.Of(option.MemoryLimit),
		StartHold: child.StartHold, EOFGrace: child.EOFGrace, TermGrace: child.TermGrace, Log: env.Log,
	})
}

func newProcesses(env *Env, pool *child.Pool, bound sessionless.Bound, withSession acquireSession) processes {
	var b *base
	b = newBase(env, env.Era, bound, func(ctx context.Context) (mux.Server, error) {
		server, err := acquire(ctx, pool)
		if err != nil {
			return nil, err
		}
		if b.Era() == sessionless.Auto { // the first request is server/discover
			server.Tentative()
		}
		return server, nil
	}, withSession)
	return processes{b, pool}
}

// ofPrincipals bounds the processes of verified principals without sessions. A server that has them needs
// no process to translate, so the pool has the room.
func (e *Env) ofPrincipals() sessionless.Bound {
	full := fault.Busy(fmt.Sprintf("every server process that %s allows serves another caller: it is %d", e.Names.Of(option.MaxSessions), e.MaxSessions))
	return sessionless.Bound{Processes: e.MaxSessions, Full: full, Patience: e.Patience}
}

// acquire takes a process of the pool. Clients see the error.
func acquire(ctx context.Context, pool *child.Pool) (*child.Server, error) {
	server, err := pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", notStarted, err)
	}
	return server, nil
}

// Run implements Backend.
func (p processes) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { p.findEra(ctx) })
	p.pool.Run(ctx)
	running.Wait()
}

// Starts implements Backend. A session with a server that has none takes no process.
func (p processes) Starts() Starts {
	if state, _ := p.Keeper.State(); p.era == sessionless.Modern || state.Stateless {
		return Starts{}
	}
	return Starts{Spares: p.pool.Spares(), Time: p.pool.StartTime()}
}

// Rest implements Backend.
func (p processes) Rest(rests bool) { p.pool.Rest(rests) }

// Refuse implements Backend. Spares are for sessions that are opened, and a drain may take long.
func (p processes) Refuse() {
	p.base.Refuse()
	p.pool.EndSpares()
}

// Processes implements Backend.
func (p processes) Processes() adapterapi.Processes { return p.pool.Processes() }

// Metrics implements Backend.
func (p processes) Metrics() []metrics.Metric {
	all := append(p.base.Metrics(), metrics.Processes(p.pool.Metrics())...)
	if measured, ok := p.pool.Measured(); ok {
		all = append(all, metrics.ServerMemory(measured)...)
	}
	return all
}

// open opens a session: with the server, if it has sessions, and else a translated one.
func (p processes) open(ctx context.Context, from *caller.Caller, native func() (*session.Session, error)) (*session.Session, error) {
	var opener atomic.Pointer[caller.Caller]
	if from.Identity() != nil { // whose processes no other caller has
		opener.Store(from.Lasting())
	}
	switch hasSessions, err := p.hasSessions(ctx); {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", notStarted, err)
	case hasSessions:
		return native()
	default:
		return p.numbered(p.openTranslated(&opener, p.newSession), nil)
	}
}

// unknown are the reasons for which the keeper does not know yet whether the server works.
var unknown = []adapterapi.Reason{adapterapi.Starting, adapterapi.Silent, adapterapi.NoRoom, adapterapi.Busy}

// hasSessions says whether the server itself has sessions. The keeper finds out from the first
// server that answers, and clients that come earlier wait: a server without sessions would
// refuse them. If the keeper does not know after half of the time that the client has, the
// client goes to the server, which says what is wrong with it.
func (p processes) hasSessions(ctx context.Context) (bool, error) {
	if p.era != sessionless.Auto {
		return p.era == sessionless.Legacy, nil
	}
	waiting, cancel := context.WithTimeout(ctx, p.StartTimeout/2)
	defer cancel()
	state, err := p.awaitState(waiting, func(s *keeper.State) bool { return s.Ready || s.Opened || !slices.Contains(unknown, s.Reason) })
	if err != nil && ctx.Err() == nil {
		return true, nil
	}
	return !state.Stateless, err
}

// eraRetry is between two attempts to find out which eras a server speaks.
const eraRetry = 30 * time.Second

// findEra finds out whether a server that has sessions also speaks 2026-07-28, so that the
// catalog lists it before a client asks. That takes another process than the keeper's: the
// answer would leave open whether the keeper's has a session, and some servers end when they
// are asked.
func (p processes) findEra(ctx context.Context) {
	if p.era != sessionless.Auto || p.Translates() {
		return
	}
	for ctx.Err() == nil {
		state, err := p.awaitState(ctx, func(s *keeper.State) bool { return s.Ready })
		if err != nil || state.Stateless {
			return
		}
		era, err := p.statelessClients.Era(ctx)
		if err == nil {
			if era == sessionless.Modern {
				p.Keeper.Refresh()
			}
			return
		}
		p.Log.V(1).Info("Cannot find out whether the server speaks revision "+front.Revision20260728, "error", err.Error())
		mux.Pause(ctx, eraRetry)
	}
}

// Connect implements Backend. The keeper has a process of its own.
func (p processes) Connect(ctx context.Context, stateless bool) (keeper.Connection, error) {
	server, err := p.pool.Acquire(ctx)
	if err != nil {
		return keeper.Connection{}, connectError(err)
	}
	if stateless {
		server.Tentative()
	}
	output, input, err := server.Pipes()
	if err != nil {
		server.Close()
		return keeper.Connection{}, server.Reason()
	}
	return keeper.Connection{
		Target: mcpprobe.FramedPipes(output, input, p.Framing),
		Close:  server.Close,
		Reason: func(patience time.Duration) error {
			select {
			case <-server.Done():
				return server.Reason()
			case <-time.After(patience):
				return nil
			}
		},
	}, nil
}

// connectError lets the keeper tell apart a server that cannot start, a container that does not run,
// a pool that is full, and a server that has no sessions.
func connectError(err error) error {
	if _, refused := errors.AsType[*launcher.RefusedError](err); refused || errors.Is(err, fault.ErrFull) {
		return fmt.Errorf("%w: %w", keeper.ErrNoRoom, err)
	}
	if errors.Is(err, launcher.ErrNoLauncher) {
		return fmt.Errorf("%w: %w", keeper.ErrNoContainer, err)
	}
	if refusal, ok := errors.AsType[*shared.RefusedError](err); ok {
		return &mcpprobe.Error{Class: mcpprobe.Rejected, Op: "initialize", Code: refusal.Code, Detail: err.Error(), Err: err}
	}
	return err
}

// NewProcesses returns a backend with a process for each session, one for each server that
// serves clients without sessions by translation, or as many for verified principals without
// sessions, one for the keeper, and one for the manager's probe.
func NewProcesses(env *Env, starter child.Starter) Backend {
	pool := newPool(env, starter, 2*env.MaxSessions+2, mux.SendTimeout)
	return newProcesses(env, pool, env.ofPrincipals(), func(ctx context.Context, _ *caller.Caller) (mux.Server, error) { return acquire(ctx, pool) })
}

// Open implements Backend.
func (p processes) Open(ctx context.Context, from *caller.Caller) (*session.Session, error) {
	return p.open(ctx, from, func() (*session.Session, error) {
		server, err := acquire(ctx, p.pool)
		if err != nil {
			return nil, p.crowded(err)
		}
		opened := p.newSession(server)
		opened.Number = server.Label()
		server.ServeSession(opened.Deliver, func(reason error) {
			if !errors.Is(reason, session.ErrEnded) { // its last lines are in the log already
				p.Log.Info("Server process of a session ended", "session", server.Label(), "reason", fault.Brief(reason))
			}
			opened.End(fault.ForClients(reason))
		})
		return opened, nil
	})
}

// crowded returns an ErrFull for a process that the launcher refuses while sessions are open: their
// processes take the room. Without sessions the server itself has too little.
func (p processes) crowded(err error) error {
	if _, refused := errors.AsType[*launcher.RefusedError](err); refused && p.Sessions.Len() > 0 {
		return fault.Caused(err, fault.ErrFull)
	}
	return err
}

// sharedProcess has one process for all sessions. The keeper has a session of it.
type sharedProcess struct {
	processes
	process *shared.Process
	search  *eraSearch
}

// sharedProcesses is how many processes there may be besides those of clients without
// sessions: the old one may still be ending when the next one starts, and the keeper of a
// server without sessions has one.
const sharedProcesses = 3

// NewShared returns a backend with one process for all sessions.
func NewShared(env *Env, starter child.Starter) Backend {
	pool := newPool(env, starter, sharedProcesses, mux.StuckTimeout)
	process := shared.New(shared.Options{
		Acquire: func(ctx context.Context) (mux.Server, error) { return pool.Acquire(ctx) },
		Session: env.SessionLimits(), SessionMetrics: &env.SessionMetrics,
		Calls: shared.MaxCalls, Subscriptions: shared.MaxSubscriptions, InputBytes: session.PendingBytes, BacklogBytes: env.LineBytes,
		StartTimeout: env.StartTimeout, SendTimeout: mux.SendTimeout, StuckTimeout: mux.StuckTimeout, Log: env.Log,
	})
	return &sharedProcess{newProcesses(env, pool, sessionless.Bound{}, func(ctx context.Context, _ *caller.Caller) (mux.Server, error) {
		return sessionserver.New(process.Open(ctx))
	}), process, &eraSearch{}}
}

// Open implements Backend.
func (s *sharedProcess) Open(ctx context.Context, from *caller.Caller) (*session.Session, error) {
	return s.open(ctx, from, func() (*session.Session, error) {
		opened, err := s.process.Open(ctx)
		if err != nil {
			return nil, notOpened(notStarted, err)
		}
		return s.numbered(opened, nil)
	})
}

// Starts implements Backend.
func (s *sharedProcess) Starts() Starts { return Starts{} }

// Connect implements Backend.
func (s *sharedProcess) Connect(ctx context.Context, stateless bool) (keeper.Connection, error) {
	if stateless {
		return s.processes.Connect(ctx, true)
	}
	opened, err := s.process.Open(ctx)
	switch {
	case errors.Is(err, context.DeadlineExceeded): // the process runs, and does not answer initialize
		return keeper.Connection{}, &mcpprobe.Error{Class: mcpprobe.Timeout, Op: "initialize", Err: err}
	case err != nil:
		return keeper.Connection{}, connectError(err)
	}
	return sessionserver.Connect(opened)
}

// Changes implements Backend.
func (s *sharedProcess) Changes() news.Hub { return sharedHub{s.statelessClients, s.process, s.search} }

// Close implements Backend.
func (s *sharedProcess) Close() {
	s.processes.Close()
	s.process.Close()
}

// Parts implements Backend.
func (s *sharedProcess) Parts() []admin.Part {
	return append(s.processes.Parts(), admin.Part{Name: "shared process", Locks: s.process.Locks})
}

// Metrics implements Backend.
func (s *sharedProcess) Metrics() []metrics.Metric {
	return append(s.processes.Metrics(), metrics.Shared(s.process.Metrics())...)
}
