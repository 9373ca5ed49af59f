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
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
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

// Limits that users do not set.
const (
	// MaxCalls bounds the memory for calls in flight of all sessions. Each session has a
	// limit of its own, which is lower.
	MaxCalls = 4096
	// MaxSubscriptions bounds the resources that one session watches. It is far more than
	// clients show to a person.
	MaxSubscriptions = 256
)

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

// Process is the one server process of all sessions. When it ends they do, and the
// next session finds a fresh one.
type Process struct {
	options Options
	metrics Metrics
	runs    *mux.Supervisor[*run]
}

// New returns a Process that is started for the first session.
func New(options Options) *Process {
	p := &Process{options: options}
	p.runs = mux.NewSupervisor(mux.Policy[*run]{
		Start: p.start, Timeout: options.StartTimeout,
		Dead: (*run).Dead, Fail: (*run).fail,
		Started: p.metrics.Starts.Inc, Failed: p.metrics.StartFailures.Inc, Ended: p.ended,
	})
	return p
}

// Metrics are the counters.
func (p *Process) Metrics() *Metrics { return &p.metrics }

// Locks takes the locks of the process and gives them back. It does not return while one of
// them is held.
func (p *Process) Locks() {
	if running, ok := p.runs.Current(); ok {
		_ = running.Dead()
	}
}

// Open returns a new session over the process, which is started if there is none.
func (p *Process) Open(ctx context.Context) (*session.Session, error) {
	for {
		running, err := p.runs.Get(ctx)
		if err != nil {
			return nil, err
		}
		if opened, ok := running.open(); ok {
			return opened, nil
		}
		// It ended just now, which the next turn will notice.
	}
}

// Close ends the process and every session. It returns at once.
func (p *Process) Close() {
	if running, ok := p.runs.Close(); ok {
		running.fail(fault.ErrDraining)
	}
}

// start starts a process and initializes it.
func (p *Process) start(ctx context.Context) (*run, error) {
	server, err := p.options.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	running := newRun(server, &p.options, &p.metrics, p.runs.Ended)
	if err := running.handshake(ctx); err != nil {
		running.fail(err)
		return nil, err
	}
	return running, nil
}

func (p *Process) ended(reason error) {
	p.options.Log.Info("The shared server process ended", "reason", fault.ForClients(reason).Error())
}
