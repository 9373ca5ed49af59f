// Package stateless serves clients of the stateless revision 2026-07-28 from a server
// process that speaks it, too, or from what stands in for one.
//
// One process serves all clients, since nothing in that revision belongs to a
// connection; more help while it is busy. Towards the process each request has a number of our own in place of its
// id and progress token, and so a subscription has; what comes back is routed by that
// number and has the client's spelling again. All else in a message passes byte for
// byte.
//
// Whether the server speaks the revision is found out when the first client asks: a
// process is asked for server/discover. One that was is given to no session, whatever
// it says, because servers take it for the beginning of one era or the other (L-35).
package stateless

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Translator is a server of this revision that is made of servers with sessions.
type Translator interface {
	// Call takes a request. All that is said of it goes to the recipient. An error means that
	// the request was not taken; it may wrap ErrBusy.
	Call(ctx context.Context, request session.Message, to Recipient) error
	// Abandon says that the client of a request does not wait any more.
	Abandon(to Recipient)
	// AwaitParked waits until no call waits for its client to come back, or the context ends.
	AwaitParked(ctx context.Context)
	Close()
}

// Recipient takes what a Translator says of one request. Its methods never wait.
type Recipient interface {
	ID() []byte    // of the request, as its client spelled it
	Token() []byte // of its progress, likewise; empty if there is none
	// Notify takes a notification, which must not change any more.
	Notify(message []byte)
	// Answer takes the answer, which is the last message, with its error code, or 0, and with
	// how the call failed, as rpc.ErrorType has it.
	Answer(message []byte, code int, failed string)
}

// Limits bound what clients and the process can do.
type Limits struct {
	Calls        int // in flight at the process at a time
	Listens      int // subscriptions that are open at a time
	Crowd        int // calls in flight at a process, from which on another one is started
	Processes    int // at a time
	SendingBytes int // waiting for the process to read; past it requests are refused
	BacklogBytes int // waiting for one client to read; past it its request ends
	TotalBytes   int // waiting for all clients; past it the request with the most ends
	// Memory is what all of the adapter shares; past it the request with the most ends, too.
	// nil is no limit.
	Memory *budget.Budget

	StartTimeout time.Duration // for a process to start and to say which era it is of
	// Silence is how long a process may be silent when it is asked for server/discover
	// before it is asked to initialize.
	Silence      time.Duration
	CallTimeout  time.Duration // for one call, progress or not
	IdleTimeout  time.Duration // without a request, after which the process ends
	StuckTimeout time.Duration // of a process that does not read, or says nothing while it has a call, after which it is replaced
	CommitAfter  time.Duration // of silence, after which an answer becomes a stream
	WriteTimeout time.Duration // for a client to read what it is sent
	KeepAlive    time.Duration // between two signs of life on a silent stream
}

// Options are what an Endpoint needs and how it behaves.
type Options struct {
	// Acquire starts a server that nobody has used.
	Acquire func(ctx context.Context) (mux.Server, error)
	// Translate returns a server of this revision that is made of servers with
	// sessions. It is for servers that have nothing else. If Translate is nil, clients of
	// such a server are refused.
	Translate func() Translator
	// TranslateSetting is what users call the setting that has Translate be there.
	TranslateSetting string
	// ManyListens says that a server takes several subscriptions at a time, so that each
	// client has its own.
	ManyListens bool
	// Era is that of the server, if it is known.
	Era    Era
	Limits Limits
	Log    logr.Logger

	owners *owners // of what all processes have begun
}

// Metrics are counted over all processes that there were, one after the other.
type Metrics struct {
	Starts           session.Counter // processes for clients of the stateless revision
	StartFailures    session.Counter // processes that could not be had, or did not say what they are
	LateAnswers      session.Counter // answers to no call, or to one whose client has gone
	LateProgress     session.Counter // progress of no call that is in flight
	LogMessages      session.Counter // log messages that nobody asked for, or that nobody knows whose they are
	UnroutedMessages session.Counter // other messages of the process's that belong to nobody
	RefusedRequests  session.Counter // requests of the process's, of which it must not make any
	SlowClients      session.Counter // requests that ended because their clients do not read
	Refused          session.Counter // requests beyond a limit
	CallTimeouts     session.Counter // calls that took longer than they may
}

var (
	// ErrClosed says that no more requests are taken.
	ErrClosed = errors.New("this instance is going away")
	// ErrBusy says that a request was not taken, and may be later.
	ErrBusy = errors.New("the server is busy")
	// ErrSessionsOnly says that the server does not speak this revision.
	ErrSessionsOnly = errors.New("the server has sessions only")
)

// process is the one process of all clients. When it ends the next client finds a fresh
// one.
type process struct {
	options *Options
	metrics *Metrics
	ctx     context.Context // of starts, which last no longer than the process
	cancel  context.CancelFunc

	mu       sync.Mutex
	era      Era
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

func newProcess(options *Options, metrics *Metrics) *process {
	ctx, cancel := context.WithCancel(context.Background())
	return &process{options: options, metrics: metrics, ctx: ctx, cancel: cancel, era: options.Era}
}

// running returns the process that runs, or the one that is started now. Everybody
// waits for the same one, and nobody's going away stops it.
func (p *process) running(ctx context.Context) (*run, error) {
	p.mu.Lock()
	if p.current != nil {
		if reason := p.current.Dead(); reason != nil {
			p.endedLocked(p.current, reason) // it will say so itself in a moment
		} else if p.current.isRetired() {
			p.current = nil
		}
	}
	switch {
	case p.closed:
		p.mu.Unlock()
		return nil, ErrClosed
	case p.era == Legacy && p.options.Translate == nil:
		p.mu.Unlock()
		return nil, ErrSessionsOnly
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

func (p *process) start(into *start) {
	defer close(into.done)
	ctx, cancel := context.WithTimeout(p.ctx, p.options.Limits.StartTimeout)
	defer cancel()
	p.mu.Lock()
	era := p.era // only a start changes it to anything but Auto
	p.mu.Unlock()
	found := verdict{era: era}
	var running *run
	var err error
	if era == Auto {
		found, running, err = p.detect(ctx)
	}
	switch {
	case err != nil || running != nil:
	case found.era == Modern:
		running, err = p.launch(ctx)
	case p.options.Translate == nil:
		err = ErrSessionsOnly
	default:
		running = newRun(nil, p.options.Translate(), p.options, p.metrics, p.ended)
	}
	p.settle(into, found, running, err)
}

// settle makes the outcome of a start known.
func (p *process) settle(into *start, found verdict, running *run, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starting = nil
	p.learnLocked(found)
	if err == nil {
		err = running.Dead() // while nobody looked
	}
	switch {
	case errors.Is(err, ErrSessionsOnly):
		into.err = err // which is no failure
	case err == nil && p.closed:
		go running.fail(ErrClosed)
		into.err = ErrClosed
	case err != nil:
		p.metrics.StartFailures.Inc()
		p.slowDownLocked(err)
		into.err = err
	default:
		p.metrics.Starts.Inc()
		p.current, into.run = running, running
	}
}

// launch starts a process that nobody has said anything to.
func (p *process) launch(ctx context.Context) (*run, error) {
	server, err := p.options.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return newRun(server, nil, p.options, p.metrics, p.ended), nil
}

const (
	firstBackOff = time.Second
	lastBackOff  = 30 * time.Second
	// lasting is how long a process must have run for its end to be no reason to
	// wait with the next.
	lasting = 10 * time.Second
)

// ended is told of each process's end before its clients are, so that one that tries
// again at once finds another.
func (p *process) ended(over *run, reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endedLocked(over, reason)
}

func (p *process) endedLocked(over *run, reason error) {
	if p.current != over {
		return // it is known, or never got as far, which its start tells
	}
	p.current = nil
	if p.closed {
		return
	}
	if time.Since(over.began) >= lasting || errors.Is(reason, errIdle) {
		p.failures = 0
	} else {
		p.slowDownLocked(reason)
	}
	p.options.Log.Info("The server process for clients of the stateless revision ended", "reason", reason.Error())
}

// slowDownLocked puts off the next start. The first failure costs nothing.
func (p *process) slowDownLocked(reason error) {
	p.lastErr = reason
	p.failures++
	if p.failures > 1 {
		backOff := min(firstBackOff<<min(p.failures-2, 10), lastBackOff)
		p.retryAt = time.Now().Add(backOff)
	}
}

// all is the process that runs, if one does.
func (p *process) all() []*run {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil {
		return nil
	}
	return []*run{p.current}
}

// drain takes no more requests, ends subscriptions, and waits for calls in flight until
// the context ends.
func (p *process) drain(ctx context.Context) {
	p.mu.Lock()
	p.closed = true
	running := p.current
	p.mu.Unlock()
	p.cancel()
	if running == nil {
		return
	}
	running.end(ctx)
}
