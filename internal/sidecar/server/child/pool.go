// Package child turns child processes into servers for sessions. It keeps spare processes, bounds
// processes and starts, reads the messages of a process, and says why it ended.
package child

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/launcher"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
)

// Starter starts the server's command.
type Starter interface {
	Spawn(ctx context.Context, label string) (*launcher.Process, error)
}

// Measured is a Starter that knows what its container uses.
type Measured interface {
	Memory(ctx context.Context) (launcher.Memory, error)
}

// Container is a Starter whose processes run in another container, which may not run yet.
type Container interface {
	// Connected says whether the container runs.
	Connected() bool
	// WaitConnected waits until it runs.
	WaitConnected(ctx context.Context) error
}

// Options are the limits of a Pool and its processes.
type Options struct {
	Framing       rpc.Framing
	LineBytes     int            // largest message that a process may send
	LineBytesName string         // the setting by which a user changes LineBytes
	Memory        *budget.Budget // for large messages while the adapter reads them; nil is no limit
	MemoryName    string         // the setting by which a user changes Memory
	Warm          int            // spare processes for new sessions
	Max           int            // processes in all, with spares
	Starts        int            // processes that may be starting at a time

	StartHold time.Duration // after which a process without output no longer counts as starting
	EOFGrace  time.Duration // for a process to end after its input is closed
	TermGrace time.Duration // for a process to end after TERM, before KILL
	// SendTimeout is for a process to read a message. A message right after another may
	// have only half of it.
	SendTimeout time.Duration

	Log logr.Logger
}

// Times that users do not set.
const (
	// StartHold is longer than most servers take to answer initialize. A process that is
	// slower may use a processor together with the next one that starts.
	StartHold = 5 * time.Second
	// EOFGrace is for a server to write its last output and end by itself.
	EOFGrace = 2 * time.Second
	// TermGrace is for the signal handlers of a server. With EOFGrace it is well below the
	// grace period of a pod.
	TermGrace = 3 * time.Second
)

// Metrics count over all processes of a pool.
type Metrics struct {
	Starts        atomic.Uint64
	StartFailures atomic.Uint64
	Crashes       atomic.Uint64 // processes that ended, or closed their output, by themselves
	JunkLines     atomic.Uint64 // lines of output other than messages
	Oversized     atomic.Uint64 // messages over the limit
	Unaffordable  atomic.Uint64 // messages without room in the budget
	Panics        atomic.Uint64 // of the adapter, while it handles output
	Running       atomic.Int64
}

// Pool starts processes and keeps the spares.
type Pool struct {
	starter Starter
	options Options
	metrics Metrics
	recent  recent
	pace    pace

	starting chan struct{} // holds one element for each starting process

	mu         sync.Mutex
	number     uint64
	alive      int // running or starting
	spares     []*Server
	shortLived error // of a spare that ended soon after its start
	rests      bool  // no spares are kept for now
	closed     bool
	wanted     chan struct{} // receives when a spare may be missing
}

// NewPool returns a Pool without processes. Run keeps its spares.
func NewPool(starter Starter, options Options) *Pool {
	return &Pool{
		starter: starter, options: options,
		starting: make(chan struct{}, options.Starts),
		wanted:   make(chan struct{}, 1),
	}
}

// Metrics returns the pool's counters.
func (p *Pool) Metrics() *Metrics { return &p.metrics }

// Acquire returns an unused server: a spare, or a new one. It waits while too many
// processes are starting.
func (p *Pool) Acquire(ctx context.Context) (*Server, error) {
	if spare := p.takeSpare(); spare != nil {
		return spare, nil
	}
	return p.start(ctx)
}

func (p *Pool) takeSpare() *Server {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.want()
	for len(p.spares) > 0 {
		spare := p.spares[0]
		p.spares = p.spares[1:]
		if !spare.dead() {
			return spare
		}
	}
	return nil
}

func (p *Pool) want() {
	select {
	case p.wanted <- struct{}{}:
	default:
	}
}

func (p *Pool) start(ctx context.Context) (*Server, error) {
	label, err := p.reserve()
	if err != nil {
		return nil, err
	}
	select {
	case p.starting <- struct{}{}:
	case <-ctx.Done():
		p.release()
		return nil, fmt.Errorf("wait to start server: %w", ctx.Err())
	}
	process, err := p.starter.Spawn(ctx, label)
	if err != nil {
		<-p.starting
		p.release()
		p.metrics.StartFailures.Add(1)
		p.noteStartFailure(err)
		return nil, fmt.Errorf("start server: %w", err)
	}
	p.metrics.Starts.Add(1)
	p.metrics.Running.Add(1)
	return newServer(p, process, label), nil
}

// Measured is what knows the memory of the processes, if anything does.
func (p *Pool) Measured() (Measured, bool) {
	measured, ok := p.starter.(Measured)
	return measured, ok
}

// reserve counts one more process, within the limit, and returns its label.
func (p *Pool) reserve() (label string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return "", fault.ErrDraining
	case p.alive >= p.options.Max:
		return "", fault.ErrFull
	}
	p.alive++
	p.number++
	return strconv.FormatUint(p.number, 10), nil
}

func (p *Pool) release() {
	p.mu.Lock()
	p.alive--
	p.mu.Unlock()
	p.want()
}

// ended takes a process out of the pool. Each process calls it once, when it has ended.
func (p *Pool) ended(server *Server) {
	p.metrics.Running.Add(-1)
	p.mu.Lock()
	if i := slices.Index(p.spares, server); i >= 0 {
		p.spares = slices.Delete(p.spares, i, i+1)
		if time.Since(server.begin) < mux.Lasting {
			p.shortLived = shortLived(server)
		}
	}
	p.mu.Unlock()
	p.release()
}

// Run keeps spares until the context ends, and then ends them. It backs off while processes cannot
// start, or end before a session uses them.
func (p *Pool) Run(ctx context.Context) {
	defer p.close()
	var backOff mux.BackOff
	for ctx.Err() == nil {
		for p.missing() && ctx.Err() == nil {
			err := p.addSpare(ctx)
			if errors.Is(err, fault.ErrFull) || ctx.Err() != nil {
				break
			}
			if p.awaitContainer(ctx, err) {
				continue
			}
			if err == nil {
				backOff.Reset()
				continue
			}
			wait := backOff.Failed(err, mux.Background)
			p.options.Log.Error(err, "Cannot keep a spare server process", "nextTry", wait.String())
			mux.Pause(ctx, wait)
		}
		select {
		case <-ctx.Done():
		case <-p.wanted:
		}
	}
}

// launcherGrace is longer than it takes to notice that a launcher has gone, so that Run does not spin.
const launcherGrace = 100 * time.Millisecond

// awaitContainer waits for the server's container if a start failed because it does not run. It
// reports whether that was the reason.
func (p *Pool) awaitContainer(ctx context.Context, err error) bool {
	container, ok := p.starter.(Container)
	if !ok || !errors.Is(err, launcher.ErrNoLauncher) {
		return false
	}
	return mux.Pause(ctx, launcherGrace) && container.WaitConnected(ctx) == nil || ctx.Err() != nil
}

func (p *Pool) missing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.rests && len(p.spares) < p.options.Warm && p.alive < p.options.Max
}

// shortLived returns the error that makes Run back off, for a spare that has ended soon.
func shortLived(spare *Server) error {
	return fmt.Errorf("the process ended while it waited to be used: %s", spare.process.Exit())
}

// addSpare starts a spare. It also returns an error if the spare, or the one before it, is short-lived.
func (p *Pool) addSpare(ctx context.Context) error {
	spare, err := p.start(ctx)
	if err != nil {
		return err
	}
	spare.unused.Store(true)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		spare.Close()
		return fault.ErrDraining
	case p.rests, p.options.Warm == 0: // Rest or EndSpares was faster
		spare.Close()
		return nil
	case spare.dead():
		return shortLived(spare)
	}
	p.spares = append(p.spares, spare)
	before := p.shortLived
	p.shortLived = nil
	return before
}

// EndSpares ends the spares, and has Run keep none any more. Acquire goes on to start processes.
func (p *Pool) EndSpares() {
	p.mu.Lock()
	p.options.Warm = 0
	p.mu.Unlock()
	p.endSpares()
}

// Rest ends the spares, and has Run keep none until Rest is called with false. Acquire goes on to start processes.
func (p *Pool) Rest(rests bool) {
	p.mu.Lock()
	p.rests = rests
	p.mu.Unlock()
	if rests {
		p.endSpares()
		return
	}
	p.want()
}

func (p *Pool) endSpares() {
	p.mu.Lock()
	spares := p.spares
	p.spares = nil
	p.mu.Unlock()
	for _, spare := range spares {
		spare.Close()
	}
}

// Spares returns how many spares there are.
func (p *Pool) Spares() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.spares)
}

// StartTime returns how long a process takes to its first message; 0 before one was seen to.
func (p *Pool) StartTime() time.Duration { return p.pace.average() }

func (p *Pool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.EndSpares()
}
