// Package stateless serves clients of the stateless revision 2026-07-28 from a server
// process that speaks it, too, or from what stands in for one.
//
// One process serves all clients, since nothing in that revision belongs to a
// connection; more help while it is busy. Towards the process each request has a number of
// our own in place of its id and progress token, and so a subscription has; what comes back
// is routed by that number and has the client's spelling again. All else in a message passes
// byte for byte.
//
// Whether the server speaks the revision is found out when the first client asks: a
// process is asked for server/discover. One that was is given to no session, whatever
// it says, because servers take it for the beginning of one era or the other (L-35).
package stateless

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Translator is a server of this revision that is made of servers with sessions.
type Translator interface {
	// Call takes a request. All that is said of it goes to the recipient. An error means that
	// the request was not taken; it may wrap fault.ErrBusy.
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
	// Metrics are those that several endpoints share; nil makes some.
	Metrics *Metrics
	Log     logr.Logger

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

// errSessionsOnly says that the server does not speak this revision.
var errSessionsOnly = errors.New("the server has sessions only")

// process is the one process of all clients. When it ends the next client finds a fresh
// one.
type process struct {
	*mux.Supervisor[*run]
	options *Options
	metrics *Metrics
	era     atomic.Uint32 // an Era
}

func newProcess(options *Options, metrics *Metrics) *process {
	p := &process{options: options, metrics: metrics}
	p.era.Store(uint32(options.Era))
	p.Supervisor = mux.NewSupervisor(mux.Policy[*run]{
		Start: p.start, Timeout: options.Limits.StartTimeout,
		Dead: (*run).Dead, Retired: (*run).isRetired, Fail: (*run).fail, Harmless: harmless,
		Started: metrics.Starts.Inc, Failed: metrics.StartFailures.Inc, Ended: p.ended,
	})
	return p
}

// running returns the process that serves clients, which is started if there is none.
func (p *process) running(ctx context.Context) (*run, error) {
	if p.foundEra() == Legacy && p.options.Translate == nil {
		return nil, errSessionsOnly
	}
	return p.Get(ctx)
}

// start starts a process that serves clients. If the era of the server is not known, it
// takes one to find out.
func (p *process) start(ctx context.Context) (*run, error) {
	era := p.foundEra()
	if era == Auto {
		found, running, err := p.detect(ctx)
		p.learn(found)
		if err != nil || running != nil {
			return running, err
		}
		era = found.era
	}
	switch {
	case era == Modern:
		return p.launch(ctx)
	case p.options.Translate == nil:
		return nil, errSessionsOnly
	default:
		return newRun(nil, p.options.Translate(), p.options, p.metrics, p.Ended), nil
	}
}

// launch starts a process that has not been sent anything.
func (p *process) launch(ctx context.Context) (*run, error) {
	server, err := p.options.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return newRun(server, nil, p.options, p.metrics, p.Ended), nil
}

// harmless is for ends that say nothing against the next process: this one was not needed.
func harmless(reason error) bool {
	return errors.Is(reason, errSessionsOnly) || errors.Is(reason, errIdle)
}

func (p *process) ended(reason error) {
	p.options.Log.Info("The server process for clients of the stateless revision ended", "reason", reason.Error())
}

// all is the process that runs, if one does.
func (p *process) all() []*run {
	if running, ok := p.Current(); ok {
		return []*run{running}
	}
	return nil
}

// drain takes no more requests, ends subscriptions, and waits for calls in flight until
// the context ends.
func (p *process) drain(ctx context.Context) {
	if running, ok := p.Close(); ok {
		running.end(ctx)
	}
}
