// Package sessionless runs requests that belong to no session: those of revision 2026-07-28.
// Requests of many clients share a few processes of a server that speaks the revision. For a
// server that has sessions only, they go to a Translator.
//
// One process serves all clients of a Server, since nothing in the revision belongs to a connection; the
// pool has more processes while that one is busy. Principals has a Server for each verified principal. At a process, each request has a number of
// the adapter's own in place of its id and progress token, and each subscription has one in
// place of its id. The adapter routes messages of the process by that number and puts the
// client's spelling back. All else in a message passes byte for byte.
//
// The adapter finds out whether the server speaks the revision when the first request comes:
// it asks a process for server/discover. No session gets that process afterward, because
// servers take the request for the beginning of one era or the other (L-35).
//
// The package knows nothing of HTTP. Package front/stateless is its front for clients of the
// revision; package translate/tolegacy makes requests for sessions that it translates.
package sessionless

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/places"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Limits bound what clients and processes can do.
type Limits struct {
	Calls        int // in flight at a process at a time
	Listens      int // subscriptions that are open at a time
	TargetCalls  int // calls in flight at a process, from which on the pool starts another one
	Processes    int // at a time
	SendingBytes int // waiting for a process to read; past it requests are refused
	BacklogBytes int // waiting for one client to read; past it its request ends
	TotalBytes   int // waiting for all clients; past it the request with the most ends
	// Memory is what all of the adapter shares; past it the request with the most ends, too.
	// nil is no limit.
	Memory *budget.Budget

	StartTimeout time.Duration // for a process to start and to say which era it is of
	// Silence is how long a process may leave server/discover unanswered before the adapter
	// asks it to initialize.
	Silence      time.Duration
	IdleTimeout  time.Duration // without a request, after which a process ends
	StuckTimeout time.Duration // of a process that does not read, or is silent while it has a call, after which it is replaced
}

// Options are what a Server needs and how it behaves.
type Options struct {
	// Acquire starts a server process that no client has used.
	Acquire func(ctx context.Context) (mux.Server, error)
	// Translate returns a server of this revision that is made of servers with sessions, for
	// servers that have nothing else. If Translate is nil, requests fail with ErrSessionsOnly.
	Translate func() Translator
	// ManyListens says that a process takes several subscriptions at a time, so that each
	// client has its own.
	ManyListens bool
	// OneForAll says that callers of Translate share one process. Otherwise each has a part of the server to itself, at
	// this pod only.
	OneForAll bool
	// Era is that of the server, if it is known.
	Era    Era
	Limits Limits
	// Metrics are those that several Servers share; nil makes some.
	Metrics *Metrics
	Log     logr.Logger
}

// Metrics count over all processes.
type Metrics struct {
	Starts           session.Counter // processes for requests without sessions
	StartFailures    session.Counter // processes that did not start, or did not say what they are
	LateAnswers      session.Counter // answers to no call, or to one whose client has gone
	LateProgress     session.Counter // progress of no call that is in flight
	LogMessages      session.Counter // log messages that no client asked for, or whose call is unknown
	UnroutedMessages session.Counter // other messages of a process that belong to no client
	RefusedRequests  session.Counter // requests of a process, which must not make any
	SlowClients      session.Counter // requests that ended because their clients do not read
}

var (
	// ErrSessionsOnly says that the server does not speak this revision.
	ErrSessionsOnly = errors.New("the server has sessions only")
	// ErrForeign says that a request continues what another principal has started.
	ErrForeign = errors.New("the request continues what another principal has started")
)

// shared is what all processes of a Server have in common.
type shared struct {
	options       Options
	metrics       *Metrics
	continuations *continuations
	refusing      atomic.Bool // no new requests of clients
	hub           *hub
	share         string // of the places and of the hub: the principal, if the Server is one's own
}

// Server is a server as clients of the stateless revision see it.
type Server struct {
	shared
	primary *mux.Supervisor[*process] // of the process that serves all clients; the next request replaces one that has ended
	era     atomic.Uint32             // an Era
	pool    pool

	places *places.Places // of processes; nil if it has as many as its limits say
}

// New returns a Server. Its first process starts with the first request.
func New(options Options) *Server {
	return newServer(options, &continuations{}, newHub(), "")
}

func newServer(options Options, states *continuations, news *hub, share string) *Server {
	s := &Server{shared: shared{options: options, metrics: cmp.Or(options.Metrics, &Metrics{}), continuations: states, hub: news, share: share}}
	s.era.Store(uint32(options.Era))
	s.pool.server = s
	s.primary = mux.NewSupervisor(mux.Policy[*process]{
		Start: s.start, Timeout: options.Limits.StartTimeout,
		Dead: (*process).Dead, Retired: (*process).isRetired, Fail: (*process).fail, Harmless: isHarmless,
		Started: s.metrics.Starts.Inc, Failed: s.metrics.StartFailures.Inc, Ended: s.logEnd,
	})
	return s
}

// Metrics are the counters.
func (s *Server) Metrics() *Metrics { return s.metrics }

// processes are all that run.
func (s *Server) processes() []*process {
	all := s.pool.all()
	if first, ok := s.primary.Current(); ok {
		all = append(all, first)
	}
	return all
}

// Locks takes the locks that calls share, and gives them back: those of the supervisor, the
// pool and the continuations, and of each process its own and those of its tool lists. It
// does not return while one of them is held.
func (s *Server) Locks() {
	s.continuations.find(nil)
	for _, p := range s.processes() {
		p.load()
		p.tools.each(func(t *toolList) { t.Len() })
	}
}

// Refuse takes no more requests of clients, except those that continue what was started
// here, and ends the clients' subscriptions. Processes that do nothing end. Call works until Drain.
func (s *Server) Refuse() {
	s.refusing.Store(true)
	for _, p := range s.processes() {
		p.endListens()
		if p.translator != nil {
			p.translator.Refuse()
		} else {
			p.endDispensable()
		}
	}
}

// Drain takes no more requests, ends subscriptions, and waits for calls in flight. When
// there are none, or the context ends, it ends the processes.
func (s *Server) Drain(ctx context.Context) {
	if first, ok := s.primary.Current(); ok && first.translator != nil {
		first.translator.AwaitParked(ctx)
	}
	s.pool.close()
	s.primary.Close()
	var ending sync.WaitGroup
	for _, p := range s.processes() {
		ending.Go(func() { p.end(ctx) })
	}
	ending.Wait()
}

// Close is Drain that waits for nothing.
func (s *Server) Close() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.Drain(ctx)
}

// Admission decides whether a client's request goes to the server.
type Admission interface {
	// Admit returns nil, or why the request is refused. The Server calls it when it knows the
	// era of the server, because that decides which requests are valid. It may call it again
	// for another process.
	Admit(ctx context.Context, tools Tools) error
}

// Serve makes a request of a client of this revision, on behalf of request.From, which must
// not be nil. The caller must release the Call. The error is that of the admission, or
// ErrSessionsOnly, or ErrForeign. It wraps fault.ErrBusy if a limit is reached. After any
// other error the client may try again later.
func (s *Server) Serve(ctx context.Context, request session.Message, admission Admission) (*Call, error) {
	switch token := continued(request); {
	case s.continuations.isForeign(request, token):
		return nil, ErrForeign
	case token == nil && s.refusing.Load(): // another instance can take it
		return nil, fault.ErrDraining
	}
	return s.begin(ctx, request, admission)
}

// Call makes a request that no client sent as it stands, on behalf of request.From. It must
// have the envelope of revision 2026-07-28; its id and progress token may be any. The caller
// must release the Call.
func (s *Server) Call(ctx context.Context, request session.Message) (*Call, error) {
	return s.begin(ctx, request, nil)
}

// tries is how many processes may end in a row before they are sent a request.
const tries = 3

// begin sends a request to a process, and to another one if the first has ended before that.
func (s *Server) begin(ctx context.Context, request session.Message, admission Admission) (*Call, error) {
	for try := 1; ; try++ {
		p, err := s.route(ctx, request)
		if err != nil {
			return nil, err
		}
		if admission != nil {
			if p.translator != nil {
				request.From.Group() // computed once, and not by each stage that asks
			}
			if err := admission.Admit(ctx, p); err != nil {
				return nil, err
			}
		}
		c, err := s.call(ctx, p, request, admission == nil)
		if !errors.Is(err, errGone) || try == tries {
			return c, err
		}
	}
}

// route returns the process that a request goes to.
func (s *Server) route(ctx context.Context, request session.Message) (*process, error) {
	defer endOnPanic()
	first, err := s.first(ctx)
	if err != nil {
		return nil, err
	}
	return s.pool.choose(first, request), nil
}

func (s *Server) call(ctx context.Context, p *process, request session.Message, internal bool) (*Call, error) {
	defer endOnPanic()
	c, err := p.call(ctx, request, internal)
	if err == nil && c.listen {
		s.pool.mirror(c)
	}
	return c, err
}
