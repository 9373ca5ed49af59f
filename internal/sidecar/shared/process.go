// Package shared runs all sessions over one server process, for servers that keep
// no state and are too heavy to be started for each client.
//
// The process is initialized once, by this package and without any capability of a
// client's, and every session is answered from that handshake. Towards the process
// each request has a number of our own in place of its id and progress token; what
// comes back is routed by that number and has the client's spelling again. All else
// in a message passes byte for byte.
//
// Nothing that one session does changes what another one gets: requests that the
// process sends have no one to go to and are refused, its log messages are dropped,
// and so is what a client says to the process about itself. A session that does not
// read what it is sent is ended; the process is never stopped for it.
package shared

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/sidecar/child"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Options are what a Process needs and how it behaves.
type Options struct {
	// Acquire starts a server that nobody has used.
	Acquire func(ctx context.Context) (mux.Server, error)

	Session        session.Limits   // of each session
	SessionMetrics *session.Metrics // counted over all of them

	Calls         int // at the process at a time, of all sessions
	Subscriptions int // of one session
	InputBytes    int // waiting for the process to read; past it sessions wait
	BacklogBytes  int // waiting for one session beyond its own limits; past it the session is ended

	StartTimeout time.Duration // for a process to start and answer initialize
	SendTimeout  time.Duration // for a process to read what waits for it, before more is refused
	StuckTimeout time.Duration // for a process to read one message, before it is ended

	Log logr.Logger
}

// Metrics are counted over all processes that there were, one after the other.
type Metrics struct {
	Starts               session.Counter // processes that answered initialize
	StartFailures        session.Counter // processes that did not
	LogMessages          session.Counter // log messages of the process's, which are dropped
	RefusedRequests      session.Counter // requests of the process's, which nobody can answer
	LateAnswers          session.Counter // answers to no call, or to one whose session has ended
	LateProgress         session.Counter // progress of no call that is in flight
	UnroutedMessages     session.Counter // other messages of the process's that belong to nobody
	UnforwardedMessages  session.Counter // messages of clients that the process must not see
	SlowSessions         session.Counter // sessions that were ended because they do not read
	SubscriptionRefusals session.Counter // subscriptions beyond what a session may have
}

// ErrClosed says that no more processes are started.
var ErrClosed = errors.New("this instance is going away")

// Process is the one server process of all sessions. When it ends they do, and the
// next session finds a fresh one.
type Process struct {
	options Options
	metrics Metrics
	ctx     context.Context // of starts, which last no longer than the Process
	cancel  context.CancelFunc

	mu       sync.Mutex
	current  *run
	starting *start
	closed   bool
	failures int // processes in a row that did not last
	retryAt  time.Time
	lastErr  error
}

// start is a process that is being started, for whoever waits for it.
type start struct {
	done chan struct{}
	run  *run
	err  error
}

// New returns a Process that is started for the first session.
func New(options Options) *Process {
	ctx, cancel := context.WithCancel(context.Background())
	return &Process{options: options, ctx: ctx, cancel: cancel}
}

// Metrics are the counters.
func (p *Process) Metrics() *Metrics { return &p.metrics }

// Open returns a new session over the process, which is started if there is none.
func (p *Process) Open(ctx context.Context) (*session.Session, error) {
	for {
		running, err := p.running(ctx)
		if err != nil {
			return nil, err
		}
		if opened, ok := running.open(); ok {
			return opened, nil
		}
		// It ended just now, which the next turn will notice.
	}
}

// Start sees to it that a process runs and has answered initialize.
func (p *Process) Start(ctx context.Context) error {
	_, err := p.running(ctx)
	return err
}

// Close ends the process and every session. It returns at once.
func (p *Process) Close() {
	p.mu.Lock()
	p.closed = true
	running := p.current
	p.mu.Unlock()
	p.cancel()
	if running != nil {
		running.fail(ErrClosed)
	}
}

// running returns the process that runs, or the one that is started now. Everybody
// waits for the same one, and nobody's going away stops it.
func (p *Process) running(ctx context.Context) (*run, error) {
	p.mu.Lock()
	if p.current != nil {
		if reason := p.current.Dead(); reason != nil {
			p.endedLocked(p.current, reason) // it will say so itself in a moment
		}
	}
	switch {
	case p.closed:
		p.mu.Unlock()
		return nil, ErrClosed
	case p.current != nil:
		defer p.mu.Unlock()
		return p.current, nil
	case p.starting == nil:
		if wait := time.Until(p.retryAt); wait > 0 {
			defer p.mu.Unlock()
			return nil, fmt.Errorf("the next start is in %s, because of the last: %w", wait.Round(time.Millisecond), p.lastErr)
		}
		p.starting = &start{done: make(chan struct{})}
		go p.start(p.starting)
	}
	starting := p.starting
	p.mu.Unlock()
	select {
	case <-starting.done:
		return starting.run, starting.err
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for server to start: %w", ctx.Err())
	}
}

func (p *Process) start(into *start) {
	defer close(into.done)
	ctx, cancel := context.WithTimeout(p.ctx, p.options.StartTimeout)
	defer cancel()
	running, err := p.begin(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starting = nil
	if err == nil {
		err = running.Dead() // while nobody looked
	}
	if err == nil && p.closed {
		go running.fail(ErrClosed)
		err = ErrClosed
	}
	if err != nil {
		p.metrics.StartFailures.Inc()
		p.slowDownLocked(err)
		into.err = err
		return
	}
	p.metrics.Starts.Inc()
	p.current, into.run = running, running
}

func (p *Process) begin(ctx context.Context) (*run, error) {
	server, err := p.options.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	running := newRun(server, &p.options, &p.metrics, p.ended)
	if err := running.handshake(ctx); err != nil {
		running.fail(err)
		return nil, err
	}
	return running, nil
}

const (
	firstBackOff = time.Second
	lastBackOff  = 30 * time.Second
	// lasting is how long a process must have run for its end to be no reason to
	// wait with the next.
	lasting = 10 * time.Second
)

// ended is told of each process's end before its sessions are, so that a client
// that begins again at once finds another.
func (p *Process) ended(over *run, reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endedLocked(over, reason)
}

func (p *Process) endedLocked(over *run, reason error) {
	if p.current != over {
		return // it is known, or never got as far, which its start tells
	}
	p.current = nil
	if p.closed {
		return
	}
	if time.Since(over.began) >= lasting {
		p.failures = 0
	} else {
		p.slowDownLocked(reason)
	}
	p.options.Log.Info("The shared server process ended", "reason", child.ForClients(reason).Error())
}

// slowDownLocked puts off the next start. The first failure costs nothing.
func (p *Process) slowDownLocked(reason error) {
	p.lastErr = reason
	p.failures++
	if p.failures > 1 {
		backOff := min(firstBackOff<<min(p.failures-2, 10), lastBackOff)
		p.retryAt = time.Now().Add(backOff)
	}
}
