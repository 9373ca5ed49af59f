// Package shared runs all sessions over one child process, for servers that keep no state and are
// too heavy to start for each client.
//
// The adapter initializes the process once, without capabilities of a client, and answers the
// initialize request of every session from that. It numbers the requests of all sessions: the
// number replaces the id and the progress token on the way to the process, and the client's own
// values return on the way back. All other bytes of a message pass unchanged.
//
// No session can change what another one gets. The adapter refuses requests that the process sends,
// and drops its log messages and what a client says about itself. It ends a session whose client
// does not read, and never stops the process for it.
package shared

import (
	"context"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Options configure a Process.
type Options struct {
	// Acquire returns a server that no session has used.
	Acquire func(ctx context.Context) (mux.Server, error)

	Session        session.Limits   // of each session
	SessionMetrics *session.Metrics // of all sessions

	Calls         int // in flight at the process, of all sessions
	Subscriptions int // of one session
	InputBytes    int // that the process has yet to read; sessions wait while there are more
	BacklogBytes  int // that wait for one session beyond its own limits; more end the session

	StartTimeout time.Duration // for a process to start and answer initialize
	SendTimeout  time.Duration // for a session to wait until it may send to the process
	StuckTimeout time.Duration // for a process to read one message, before the adapter ends it

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

// Metrics count over all child processes, one after the other.
type Metrics struct {
	Starts               session.Counter // child processes that answered initialize
	StartFailures        session.Counter // child processes that did not
	LogMessages          session.Counter // log messages of the child process, which the adapter drops
	RefusedRequests      session.Counter // requests of the child process, which the adapter refuses
	LateAnswers          session.Counter // answers to no call, or to one whose session has ended
	LateProgress         session.Counter // progress of no call in flight
	UnroutedMessages     session.Counter // other messages of the child process that belong to no session
	UnforwardedMessages  session.Counter // messages of clients that the child process must not see
	SlowSessions         session.Counter // sessions that ended because their clients do not read
	SubscriptionRefusals session.Counter // subscriptions over the limit of a session
}

// Process is the child process of all sessions. All sessions end with it, and the next session
// starts another one.
type Process struct {
	options   Options
	metrics   Metrics
	instances *mux.Supervisor[*instance]
}

// New returns a Process. The first session starts it.
func New(options Options) *Process {
	p := &Process{options: options}
	p.instances = mux.NewSupervisor(mux.Policy[*instance]{
		Start: p.start, Timeout: options.StartTimeout,
		Dead: (*instance).Dead, Fail: (*instance).fail,
		Started: p.metrics.Starts.Inc, Failed: p.metrics.StartFailures.Inc,
		Ended: func(reason error) {
			options.Log.Info("The shared server process ended", "reason", fault.ForClients(reason).Error())
		},
	})
	return p
}

// Metrics returns the counters.
func (p *Process) Metrics() *Metrics { return &p.metrics }

// Locks takes each lock of the process and releases it. It blocks while another goroutine holds
// one of them.
func (p *Process) Locks() {
	if running, ok := p.instances.Current(); ok {
		_ = running.Dead()
	}
}

// Open returns a new session over the child process. It starts a process if none runs.
func (p *Process) Open(ctx context.Context) (*session.Session, error) {
	for {
		running, err := p.instances.Get(ctx)
		if err != nil {
			return nil, err
		}
		if opened, ok := running.open(); ok {
			return opened, nil
		}
		// The process has just ended, so the next Get starts another one.
	}
}

// Close ends the child process and every session. It does not wait.
func (p *Process) Close() {
	if running, ok := p.instances.Close(); ok {
		running.fail(fault.ErrDraining)
	}
}

// start starts a child process and initializes it.
func (p *Process) start(ctx context.Context) (*instance, error) {
	server, err := p.options.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	running := newInstance(server, &p.options, &p.metrics, p.instances.Ended)
	if err := running.handshake(ctx); err != nil {
		running.fail(err)
		return nil, err
	}
	return running, nil
}
