package sessionless

import (
	"context"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/places"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Principals gives each verified principal a Server of its own, so that no process of the server sees
// the data of two of them. Callers that the adapter has not verified share one Server, as it cannot tell
// them apart.
//
// All processes of principals together are bounded. If all of them run, a process that is idle ends for a
// principal that needs one.
type Principals struct {
	// common serves unverified callers. It also serves principals if the server has sessions only: its
	// Translator keeps callers apart itself.
	common ownServer
	places *places.Places // of the processes of principals; nil if all callers share processes

	mu       sync.Mutex
	own      map[caller.Principal]*ownServer
	refusing bool
	closed   bool
}

// ownServer is the Server of one principal, or the common one.
type ownServer struct {
	*Server
	users int // requests on their way to a process; guarded by the mutex of Principals
}

// Bound limits the processes of verified principals.
type Bound struct {
	Processes int // at a time
	// Full says which limit is reached. It wraps fault.ErrBusy.
	Full     error
	Patience time.Duration // for which a request waits until a process may end for it
}

// NewPrincipals returns Principals. If the bound has no processes, verified principals share processes
// with all other callers.
func NewPrincipals(options Options, bound Bound) *Principals {
	p := &Principals{common: ownServer{Server: New(options)}, own: map[caller.Principal]*ownServer{}}
	if bound.Processes > 0 {
		p.places = places.New(places.Options{
			Max: bound.Processes, PerKey: min(options.Limits.Processes, max(bound.Processes-1, 1)), Full: bound.Full, Patience: bound.Patience,
		})
	}
	return p
}

// Serve is that of the Server for request.From.
func (p *Principals) Serve(ctx context.Context, request session.Message, admission Admission) (*Call, error) {
	own, err := p.take(ctx, request.From)
	if err != nil {
		return nil, err
	}
	defer p.release(own)
	return own.Serve(ctx, request, admission)
}

// Call is that of the Server for request.From.
func (p *Principals) Call(ctx context.Context, request session.Message) (*Call, error) {
	own, err := p.take(ctx, request.From)
	if err != nil {
		return nil, err
	}
	defer p.release(own)
	return own.Call(ctx, request)
}

// take returns the Server for requests of a caller. The caller of take must release it when a process has
// the request.
func (p *Principals) take(ctx context.Context, from *caller.Caller) (*ownServer, error) {
	if p.places == nil || from.Identity() == nil {
		return &p.common, nil
	}
	switch era, err := p.FindOut(ctx); {
	case err != nil:
		return nil, err
	case era != Modern:
		return &p.common, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	own, ok := p.own[from.Principal]
	if !ok {
		if p.closed {
			return nil, fault.ErrDraining
		}
		p.dropUnusedLocked()
		own = &ownServer{Server: p.newOwn(from.Principal)}
		own.refusing.Store(p.refusing)
		p.own[from.Principal] = own
	}
	own.users++
	return own, nil
}

func (p *Principals) release(own *ownServer) {
	if own == &p.common {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	own.users--
}

func (p *Principals) newOwn(principal caller.Principal) *Server {
	options := p.common.options
	options.Era, options.Metrics = Modern, p.common.metrics
	server := newServer(options, p.common.continuations, p.common.hub, string(principal))
	server.places = p.places
	return server
}

// dropUnusedLocked forgets the principals without a process. Their clients may never come back.
func (p *Principals) dropUnusedLocked() {
	for principal, own := range p.own {
		if own.users == 0 && own.isUnused() {
			delete(p.own, principal)
			own.Close()
		}
	}
}

// isUnused reports whether the Server has no process, starts none, and need not wait before it starts one.
func (s *Server) isUnused() bool { return s.primary.IsUnused() && len(s.pool.all()) == 0 }

// all returns all Servers.
func (p *Principals) all() []*Server {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.allLocked()
}

func (p *Principals) allLocked() []*Server {
	all := []*Server{p.common.Server}
	for _, own := range p.own {
		all = append(all, own.Server)
	}
	return all
}

// FindOut returns what the server speaks. If that is not known, it takes a process, which clients get afterward.
func (p *Principals) FindOut(ctx context.Context) (Era, error) {
	if p.common.Found() == Auto {
		if _, err := p.common.first(ctx); err != nil {
			return Auto, err
		}
	}
	return p.common.Found(), nil
}

// Found is that of all Servers.
func (p *Principals) Found() Era { return p.common.Found() }

// Era is that of all Servers.
func (p *Principals) Era(ctx context.Context) (Era, error) { return p.common.Era(ctx) }

// Locks takes the locks that calls share, and those of each Server, and gives them back.
func (p *Principals) Locks() {
	if p.places != nil {
		p.places.Taken()
	}
	for _, server := range p.all() {
		server.Locks()
	}
}

// Refuse is that of each Server.
func (p *Principals) Refuse() {
	p.mu.Lock()
	p.refusing = true
	all := p.allLocked()
	p.mu.Unlock()
	for _, server := range all {
		server.Refuse()
	}
}

// Drain is that of each Server. Other pods hear of changes until all processes have ended.
func (p *Principals) Drain(ctx context.Context) {
	p.mu.Lock()
	p.closed = true
	all := p.allLocked()
	p.mu.Unlock()
	if p.places != nil {
		p.places.Close(fault.ErrDraining)
	}
	var draining sync.WaitGroup
	for _, server := range all {
		draining.Go(func() { server.Drain(ctx) })
	}
	draining.Wait()
	p.common.hub.refuse()
}

// Close is Drain that waits for nothing.
func (p *Principals) Close() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p.Drain(ctx)
}
