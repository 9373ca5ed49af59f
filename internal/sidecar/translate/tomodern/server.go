// Package tomodern makes a server of the stateless revision 2026-07-28 out of server
// processes that have sessions only.
//
// A Server is put in place of a process of that revision: Call takes a request of one
// client after the other, each with a recipient that gets the answer. Behind it is a pool
// of processes. Each is initialized once, with the capabilities of the clients that it
// serves, and is used for one principal only: what such a process keeps in memory is as
// good as a session.
//
// A process with sessions says of a request of its own not which call it belongs to.
// If its clients can be asked anything, it therefore has one call at a time that may
// ask, and others take another process. What it asks is the answer to the call
// (input_required), the call stays in flight at the process as it is, parked, and the
// client's retry with the answers picks it up again. Nothing is ever called twice for a
// retry: whatever is wrong with one, it is refused.
//
// Call returns an error that wraps fault.ErrBusy if a request was not taken: no
// process can be had, or all are in use. Everything else is an answer. A process that
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
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/stateless"
)

// Limits bound what clients and processes can do.
type Limits struct {
	Children         int // processes
	PerKey           int // of these, for clients of one principal with the same capabilities
	KeysPerPrincipal int // different capabilities of one principal's clients at a time
	URIs             int // resources that are subscribed to, for clients as of PerKey

	StartTimeout time.Duration // for a process to start and to answer initialize
	LeaseTimeout time.Duration // for a process to be free, before a call is refused
	IdleTimeout  time.Duration // without a call, after which a process ends
	EvictIdle    time.Duration // without a call, after which a process makes room for other clients
	ParkTTL      time.Duration // for a client to come back with what it was asked for
	StuckTimeout time.Duration // without reading what it is sent, after which a process is ended
	CancelGrace  time.Duration // for a process to be done with a cancelled call, before it is ended

	Memory *budget.Budget // for answers to calls that are parked; nil is no limit
}

// Limits that users do not set.
const (
	// KeysPerPrincipal is for one person's clients that differ in their capabilities. Few
	// people have more than one or two at a time.
	KeysPerPrincipal = 4
	// MaxURIs bounds the resources that clients of one key watch, as for a session.
	MaxURIs = 256

	// LeaseTimeout is how long a client waits for a process before it hears that all are busy.
	LeaseTimeout = 10 * time.Second
	// EvictIdle is less than LeaseTimeout, so that a call that waits sees an idle process make
	// room.
	EvictIdle = 2 * time.Second
)

// ChildrenPerKey is how many of the children clients of one key may have. They never have all,
// so that other clients find one. They may have two where there are two, because a call may
// need a second one to go on.
func ChildrenPerKey(children int) int { return max(children/2, min(children, 2)) }

// Options are what a Server needs and how it behaves.
type Options struct {
	// Acquire starts a fresh server, for clients in the caller's group.
	Acquire func(ctx context.Context, from *caller.Caller) (mux.Server, error)
	Limits  Limits
	// Serves are the protocol versions that clients are told of, newest first, given
	// the one that the server has agreed to.
	Serves func(spoken string) []string
	// OfferRoots lets servers ask clients for their roots.
	OfferRoots bool
	Log        logr.Logger
}

// Metrics are counted over all processes that there were.
type Metrics struct {
	Starts           session.Counter // processes that were initialized
	StartFailures    session.Counter // processes that could not be had, or did not agree
	Evictions        session.Counter // processes that made room for those of other clients
	Kills            session.Counter // processes that did not end a cancelled call
	Busy             session.Counter // requests that found no process
	LateAnswers      session.Counter // answers to no call, or to one whose client has gone
	LateProgress     session.Counter // progress of no call that anybody waits for
	LogMessages      session.Counter // log messages that nobody asked for, or that nobody knows whose they are
	UnroutedMessages session.Counter // other messages of processes that belong to nobody
	RefusedRequests  session.Counter // requests of processes that no client can be asked for
	Parks            session.Counter // times that a client was asked for input
	Retries          session.Counter // times that one came back
	InvalidStates    session.Counter // times that one came back with what was not to be taken
	ExpiredParks     session.Counter // calls that ended because nobody came back
}

// Server is a server of the stateless revision. Its methods may be called at any time
// from any goroutine.
type Server struct {
	options Options
	metrics Metrics
	sealer  sealer
	ctx     context.Context // of starts, which last no longer than the Server
	cancel  context.CancelFunc

	mu       sync.Mutex
	groups   map[string]*group
	children int                           // processes, and those that are being started
	calls    map[stateless.Recipient]*call // of clients that wait
	listens  map[stateless.Recipient]*listen
	parks    map[string]*park
	held     *budget.Account        // answers to calls that are parked
	changed  chan struct{}          // closed when a process may be free
	waiters  int                    // that changed would wake
	queues   map[string]int         // of these, those that wait for room, by the share that their groups count in
	alarmed  bool                   // they are woken in a while
	backOffs map[string]mux.BackOff // by principal
	closed   bool
}

// New returns a Server. Processes are started when they are needed.
func New(options Options) *Server {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{
		options: options, sealer: newSealer(), ctx: ctx, cancel: cancel, changed: make(chan struct{}),
		groups: map[string]*group{}, calls: map[stateless.Recipient]*call{}, listens: map[stateless.Recipient]*listen{}, parks: map[string]*park{},
		backOffs: map[string]mux.BackOff{}, queues: map[string]int{},
	}
	s.held = options.Limits.Memory.Account(s.giveWay)
	return s
}

// Metrics are the counters.
func (s *Server) Metrics() *Metrics { return &s.metrics }

// Locks takes the server's lock and gives it back. It does not return while the lock is held.
func (s *Server) Locks() {
	s.mu.Lock()
	defer s.mu.Unlock()
}

// Close ends all processes, with the calls that are parked there. It returns at once.
func (s *Server) Close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	var workers []*worker
	for _, g := range s.groups {
		workers = append(workers, g.workers...)
	}
	for _, p := range s.parks {
		s.forgetParkLocked(p)
	}
	for _, l := range s.listens {
		s.leaveLocked(l)
		l.complete()
	}
	s.wakeLocked()
	s.mu.Unlock()
	s.cancel()
	for _, w := range workers {
		w.fail(fault.ErrDraining)
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

// refuse answers a request that no process sees.
func refuse(to stateless.Recipient, code int, text string) {
	to.Answer(rpc.AppendError(nil, to.ID(), code, text, nil), code, rpc.ErrorTypeOf(code))
}
