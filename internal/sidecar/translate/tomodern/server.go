// Package tomodern makes a server of the stateless revision 2026-07-28 out of server
// processes that have sessions only.
//
// A Server stands in for a process of that revision: Call takes the requests of all clients,
// each with a recipient that gets the answer. The Server has a pool of processes. It
// initializes each once, with the capabilities of the clients that the process serves. It uses
// a process only for clients with one token, or with one address and no token: what such a
// process keeps in memory is as good as a session.
//
// A process with sessions does not say which call a request of its own belongs to. If its
// clients can give input, the process therefore has one call at a time that may ask for some,
// and others take another process. The process's requests are the answer to the call
// (input_required). The call stays in flight at the process, parked, and the client's retry
// with the answers resumes it. A retry never calls a tool twice: the Server refuses a retry
// that is wrong in any way.
//
// Call returns an error that wraps fault.ErrBusy if the Server did not take a request: it
// cannot start a process, or all are in use. Every other failure is an answer. A process that
// ends takes its own calls with it and nothing else; a Server ends by Close only.
package tomodern

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Limits bound what clients and processes can do.
type Limits struct {
	Children         int // processes
	PerKey           int // of these, for clients of one principal with the same capabilities
	KeysPerPrincipal int // different capabilities of one principal's clients at a time
	URIs             int // subscribed resources, for clients as of PerKey

	StartTimeout   time.Duration // for a process to start and to answer initialize
	AcquireTimeout time.Duration // for a process to become free, before a call is refused
	IdleTimeout    time.Duration // without a call, after which a process ends
	EvictIdle      time.Duration // without a call, after which a process makes room for other clients
	ParkTTL        time.Duration // for a client to come back with the input that a parked call waits for
	StuckTimeout   time.Duration // for a process that does not read to read again, before it is ended
	CancelGrace    time.Duration // for a process to end a cancelled call, before the process is ended

	Memory *budget.Budget // for answers to parked calls; nil is no limit
}

// Limits that users do not set.
const (
	// KeysPerPrincipal is for one person's clients that differ in their capabilities. Few
	// people have more than one or two at a time.
	KeysPerPrincipal = 4
	// MaxURIs bounds the resources that clients of one key watch, as for a session.
	MaxURIs = 256

	// AcquireTimeout is how long a client waits for a process before it hears that all are busy.
	AcquireTimeout = 10 * time.Second
	// EvictIdle is less than AcquireTimeout, so that a call that waits sees an idle process make
	// room.
	EvictIdle = 2 * time.Second
)

// ChildrenPerKey returns how many children the clients of one key may use: half, but at least
// two, or the only one, because a call may need a second one to continue.
func ChildrenPerKey(children int) int { return max(children/2, min(children, 2)) }

// Options are the parts and the behavior of a Server.
type Options struct {
	// Acquire starts a fresh server, for clients in the caller's group.
	Acquire func(ctx context.Context, from *caller.Caller) (mux.Server, error)
	Limits  Limits
	// Serves are the protocol versions that clients learn of, newest first, given the one
	// that the server has agreed to.
	Serves func(spoken string) []string
	// OfferRoots lets servers ask clients for their roots.
	OfferRoots bool
	Log        logr.Logger
}

// Metrics are counted over all processes.
type Metrics struct {
	Starts           session.Counter // processes that were initialized
	StartFailures    session.Counter // processes that did not start, or did not agree
	Evictions        session.Counter // processes that made room for those of other clients
	Kills            session.Counter // processes that did not end a cancelled call
	Busy             session.Counter // requests that found no process
	LateAnswers      session.Counter // answers to no call, or to one whose client has gone
	LateProgress     session.Counter // progress of no call that a client waits for
	LogMessages      session.Counter // log messages that no client wants, or that may be of several calls
	UnroutedMessages session.Counter // other messages of processes that belong to no client
	RefusedRequests  session.Counter // requests of processes that the adapter refuses for the client
	Parks            session.Counter // times that a call was parked
	Retries          session.Counter // times that a client came back to one
	InvalidStates    session.Counter // times that a client came back with a requestState that is refused
	ExpiredParks     session.Counter // parked calls that ended because the client did not come back
}

// Server is a server of the stateless revision. Its methods may be called at any time
// from any goroutine.
type Server struct {
	options Options
	metrics Metrics
	ctx     context.Context // of starts, which last no longer than the Server
	cancel  context.CancelFunc

	mu       sync.Mutex
	groups   map[groupKey]*group
	children int                             // processes, and those that are starting
	calls    map[sessionless.Recipient]*call // whose clients wait
	listens  map[sessionless.Recipient]*listen
	parked   map[string]*parked     // by requestState
	kept     *budget.Account        // answers to parked calls
	changed  chan struct{}          // closed when a process may be free
	waiters  int                    // goroutines that wait for changed
	queues   map[string]int         // of these, those that wait for room, by the share that their groups count in
	waking   bool                   // a timer is set that wakes the waiters
	backOffs map[string]mux.BackOff // by callers that share processes
	closed   bool
}

// New returns a Server. It starts processes on demand.
func New(options Options) *Server {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{
		options: options, ctx: ctx, cancel: cancel, changed: make(chan struct{}),
		groups: map[groupKey]*group{}, calls: map[sessionless.Recipient]*call{}, listens: map[sessionless.Recipient]*listen{}, parked: map[string]*parked{},
		backOffs: map[string]mux.BackOff{}, queues: map[string]int{},
	}
	s.kept = options.Limits.Memory.Account(s.giveWay)
	return s
}

// Metrics are the counters.
func (s *Server) Metrics() *Metrics { return &s.metrics }

// Locks takes the server's lock and gives it back. It does not return while the lock is held.
func (s *Server) Locks() {
	s.mu.Lock()
	defer s.mu.Unlock()
}

// Close ends all processes, with their parked calls. It returns at once.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	processes, _ := s.poolLocked(anyGroup)
	for _, k := range s.parked {
		s.forgetLocked(k)
	}
	for _, l := range s.listens {
		s.leaveLocked(l)
		l.complete()
	}
	s.wakeLocked()
	s.mu.Unlock()
	s.cancel()
	for _, p := range processes {
		p.fail(fault.ErrDraining)
	}
}

// busy is the error of a request that was not taken.
func (s *Server) busy(err error) error {
	s.metrics.Busy.Inc()
	if errors.Is(err, fault.ErrBusy) {
		return err
	}
	return fmt.Errorf("%w: %w", fault.ErrBusy, err)
}

// after runs a function after some time, with the mutex held.
func (s *Server) after(wait time.Duration, do func()) *time.Timer {
	return time.AfterFunc(wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		do()
	})
}

// succeed answers a request with a result of the adapter's own.
func succeed(to sessionless.Recipient, result []byte) {
	to.Answer(rpc.AppendResult(nil, to.ID(), result), 0, "")
}

// refuse answers a request that no process sees.
func refuse(to sessionless.Recipient, code int, text string) {
	to.Answer(rpc.AppendError(nil, to.ID(), code, text, nil), code, rpc.ErrorTypeOf(code))
}
