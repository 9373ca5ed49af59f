package tomodern

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/version"
)

// Reasons for which the adapter ends processes, and errGone for one that has ended by itself.
var (
	errEvicted = errors.New("the server process made room for another")
	errIdle    = errors.New("the server process was not used")
	errStuck   = errors.New("the server did not end a call that was cancelled")
	errSilent  = errors.New("the server does not answer any more")
	errGone    = errors.New("the server process has just ended")
)

// process is one process from its start to its end.
type process struct {
	mux.Conn[*call] // guarded by the server's mutex

	server *Server
	group  *group
	child  mux.Server
	offer  offer // set before other code knows the process

	// Guarded by the server's mutex.
	calls    map[uint64]*call   // that the process works on, by their first numbers
	working  mux.Attribution    // of all calls, cancelled ones too, by their first numbers
	logging  map[*call]struct{} // calls that want log messages
	level    level              // that the process was told
	asking   *call              // the one call that may ask for input
	inFlight int                // calls, and other uses of the process
	listed   bool               // it is one of its group's processes
	lastUsed time.Time
	idle     *time.Timer
	watch    *time.Timer // runs while the adapter waits for a sign of life
	silent   bool        // there was none in time
}

// queueBytes is how much may wait for a process to read, beside calls that clients wait for.
const queueBytes = 1 << 20

// launch starts a process and initializes it.
func (g *group) launch(ctx context.Context) (*process, error) {
	server, err := g.server.obtain(ctx, g.caller)
	if err != nil {
		return nil, err
	}
	p := &process{
		server: g.server, group: g, child: server, lastUsed: time.Now(),
		calls: map[uint64]*call{}, logging: map[*call]struct{}{},
	}
	p.Init(server, &g.server.mu, mux.Options{
		StuckTimeout: g.server.options.Limits.StuckTimeout, QueueBytes: queueBytes, Fail: p.fail, Heard: p.heardLocked, ReadsAgain: g.server.wakeLocked,
	})
	p.Serve(p.receive, p.fail)
	return p, p.initialize(ctx)
}

// fullPause is between two looks for a place that a process has left.
const fullPause = 50 * time.Millisecond

// obtain starts a process. If sessions have all places, an idle process of the Server makes
// room, which may take a moment.
func (s *Server) obtain(ctx context.Context, from *caller.Caller) (mux.Server, error) {
	giveUp := time.Now().Add(s.options.Limits.AcquireTimeout)
	server, err := s.options.Acquire(ctx, from)
	if errors.Is(err, fault.ErrFull) {
		s.mu.Lock()
		s.evictLocked(anyGroup)
		s.mu.Unlock()
	}
	for errors.Is(err, fault.ErrFull) && time.Now().Before(giveUp) && mux.Pause(ctx, fullPause) {
		server, err = s.options.Acquire(ctx, from)
	}
	return server, err
}

func (p *process) initialize(ctx context.Context) error {
	s := p.server
	params := rpc.InitializeParams(front.Revision20251125, p.group.capabilities.text(), version.Get().Version)
	s.mu.Lock()
	answered := p.AskLocked(rpc.MethodInitialize, params, s.options.Limits.StartTimeout)
	s.mu.Unlock()
	answer, err := p.Await(ctx, answered)
	if err != nil {
		return fmt.Errorf("initialize server: %w", err)
	}
	if p.offer, err = readOffer(answer, s.options.Serves); err != nil {
		return err
	}
	// The process gets this before any other message.
	if err := p.child.Send(context.WithoutCancel(ctx), session.Message{Bytes: []byte(rpc.Initialized), From: p.group.caller}); err != nil {
		return fmt.Errorf("initialize server: %w", err)
	}
	return nil
}

// awaitStream waits until notifications of the process arrive, if they need a stream of their own.
func (p *process) awaitStream(ctx context.Context) {
	if server, ok := p.child.(interface{ AwaitStream(ctx context.Context) }); ok {
		server.AwaitStream(ctx)
	}
}

// usedLocked says whether the end of the process would be noticed by a client.
func (p *process) usedLocked() bool {
	return p.inFlight > 0 || p.asking != nil || p.group.subscriber == p && len(p.group.listens) > 0
}

func (p *process) cancelling() bool { return p.asking != nil && p.asking.cancelled }

// releaseLocked ends one use of a process: by a call, or by other code if c is nil.
func (p *process) releaseLocked(c *call) {
	p.inFlight--
	if c != nil && p.asking == c {
		p.asking = nil
	}
	p.lastUsed = time.Now()
	p.group.lastUsed = p.lastUsed
	if p.silent && p.inFlight == 0 && p.listed {
		p.endSilentLocked()
	}
	p.server.wakeLocked()
}

func (p *process) release() {
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	p.releaseLocked(nil)
}

// endIdleLocked ends the process if it has not been used for long enough, or looks again later.
func (p *process) endIdleLocked() {
	s := p.server
	left := s.options.Limits.IdleTimeout - time.Since(p.lastUsed)
	switch {
	case p.DeadLocked() != nil:
	case p.usedLocked():
		p.idle.Reset(s.options.Limits.IdleTimeout)
	case left > 0:
		p.idle.Reset(left)
	default:
		p.dismissLocked(errIdle)
	}
}

// drainIdle is how long a process may do nothing when no client can make a new request. A call that is parked is work.
const drainIdle = time.Second

// Refuse implements sessionless.Translator. From now on idle processes do not wait for the next request of their clients.
func (s *Server) Refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.options.Limits.IdleTimeout = min(s.options.Limits.IdleTimeout, drainIdle)
	processes, _ := s.poolLocked(anyGroup)
	for _, p := range processes {
		p.idle.Reset(0) // which looks again later if the process is used
	}
}

// dismissLocked ends a process. From now on no request gets it. Another goroutine does the rest.
func (p *process) dismissLocked(reason error) {
	p.unlistLocked()
	go p.fail(reason)
}

// unlistLocked gives the process's place to another.
func (p *process) unlistLocked() {
	if !p.listed {
		return
	}
	p.listed = false
	p.server.children--
	p.group.processes = slices.DeleteFunc(p.group.processes, func(other *process) bool { return other == p })
	p.server.wakeLocked()
}

// fail ends the process, once, and with it its calls.
func (p *process) fail(reason error) {
	s := p.server
	s.mu.Lock()
	reason = fault.ForClients(reason)
	if !p.EndLocked(reason) {
		s.mu.Unlock()
		return
	}
	wasListed := p.listed
	p.unlistLocked()
	stop(p.idle, p.watch)
	for _, c := range p.calls {
		if c.sent { // or else the goroutine that sends it finds out, and may try another process
			s.failLocked(c, reason)
		}
	}
	p.group.subscriberEndedLocked(p)
	p.group.tidyLocked()
	s.mu.Unlock()
	p.child.Close()
	if wasListed {
		s.options.Log.V(1).Info("A server process for clients without sessions ended", "reason", reason.Error())
	}
}
