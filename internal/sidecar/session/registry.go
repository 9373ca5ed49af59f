package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/places"
)

// The reasons why a registry ends sessions. Clients with a call in flight read them.
var (
	ErrIdle     = errors.New("the session was idle for too long")
	ErrLifetime = errors.New("the session reached its maximum lifetime")
	// ErrSilent is for a client that opens a session and then sends nothing more.
	ErrSilent  = errors.New("the client did not say that it is initialized, or anything else, in time")
	ErrYielded = errors.New("the session was idle and ended to make room: every session slot was taken")
	// ErrClient is for a client that ends its session. Front ends may wrap it.
	ErrClient = errors.New("the client ended the session")
	// ErrUser is for a user of the cluster who ends the session of a client.
	ErrUser = errors.New("a user of the cluster ended the session")
)

// Limits of the session of the manager's probe. A probe takes seconds. A probe that fails must
// not keep the slot from the next one for long.
const (
	ProbeIdleTimeout = 10 * time.Second
	ProbeLifetime    = 2 * time.Minute
)

// SilentTimeout is how long a client may send nothing after it has opened a session.
const SilentTimeout = time.Minute

// Policy says how many sessions there may be, and for how long.
type Policy struct {
	Max         int
	Full        error         // what clients read when every slot is taken; wraps places.ErrFull, which nil means
	Patience    time.Duration // how long a client waits for a slot; see places.Options
	IdleTimeout time.Duration
	MaxLifetime time.Duration
	// Opened is called for each session that a client opens, with the context of the request
	// that opens it; may be nil.
	Opened func(context.Context, Member)
}

// Registry has all sessions of one instance of the server, by id.
type Registry struct {
	policy Policy
	// Places are the places of all sessions but the probe's.
	Places *places.Places

	// Requests that belong to no session end with these contexts: streams end when the drain
	// begins, and other requests when the drain has no time left.
	draining, over context.Context
	drain, stop    context.CancelCauseFunc
	parted         []Member // sessions that Part has ended; only the drain uses it

	mu       sync.Mutex
	sessions map[string]Member
	pending  int           // sessions that clients open now, and requests that belong to no session
	probe    *Slot         // of the manager's probe; nil while it has no session
	endings  []ending      // of the sessions that ended last, oldest first
	emptied  chan struct{} // closed when a drain has no session and no request left
	empty    func()        // closes emptied, once
}

// NewRegistry returns a Registry without sessions.
func NewRegistry(policy Policy) *Registry {
	r := &Registry{
		policy: policy, Places: places.New(places.Options{Max: policy.Max, Full: policy.Full, Patience: policy.Patience}),
		sessions: map[string]Member{}, emptied: make(chan struct{}),
	}
	r.empty = sync.OnceFunc(func() { close(r.emptied) })
	r.draining, r.drain = context.WithCancelCause(context.Background())
	r.over, r.stop = context.WithCancelCause(context.Background())
	return r
}

// Slot is a place that the registry keeps for a session.
type Slot struct {
	registry *Registry
	place    *places.Place // nil for the probe's
	session  Member        // nil until Fill
	once     sync.Once
}

// Reserve takes a place for a session that the caller opens. The front end calls it before a
// server starts, so that none starts for a session that the adapter refuses. If every place is
// taken, Reserve waits; see places.Take. The front end must fill or release the slot.
func (r *Registry) Reserve(ctx context.Context, from *caller.Caller) (*Slot, error) {
	return r.ReserveOn(ctx, from, places.Terms{Patience: r.policy.Patience, Evicts: true})
}

// ReserveOn is Reserve on other terms; see places.TakeOn.
func (r *Registry) ReserveOn(ctx context.Context, from *caller.Caller, terms places.Terms) (*Slot, error) {
	err := r.Enter()
	if err != nil {
		return nil, err
	}
	slot := &Slot{registry: r}
	if from.Probe {
		err = r.reserveProbe(slot)
	} else {
		slot.place, err = r.Places.TakeOn(ctx, from.ShareKey(), terms)
	}
	if err != nil {
		r.Leave()
		return nil, err
	}
	return slot, nil
}

// reserveProbe gives the manager's probe a slot of its own, beside the Places.
func (r *Registry) reserveProbe(slot *Slot) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.probe != nil {
		return errProbing
	}
	r.probe = slot
	return nil
}

var errProbing = errors.New("another probe has its session open")

// Enter begins a request that belongs to no session. A drain waits for its Leave.
func (r *Registry) Enter() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.draining.Err() != nil {
		return fault.ErrDraining
	}
	r.pending++
	return nil
}

// Leave ends a request that Enter began.
func (r *Registry) Leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaveLocked()
}

func (r *Registry) leaveLocked() {
	r.pending--
	r.checkEmptyLocked()
}

// Draining returns a context that ends when a drain begins. Its cause is fault.ErrDraining.
func (r *Registry) Draining() context.Context { return r.draining }

// Over returns a context that ends when a drain has no time left. Its cause is fault.ErrDraining.
func (r *Registry) Over() context.Context { return r.over }

// Release frees the slot. After Fill it does nothing.
func (s *Slot) Release() {
	s.once.Do(func() {
		s.leave()
		s.registry.Leave()
	})
}

func (s *Slot) leave() {
	if s.place != nil {
		s.place.Leave()
		return
	}
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	s.registry.probe = nil
}

// Fill puts the session into the slot until it ends. Find finds it by the id. The context is
// that of the request that opens the session.
func (s *Slot) Fill(ctx context.Context, id string, session Member) {
	r := s.registry
	s.once.Do(func() {
		r.mu.Lock()
		r.sessions[id] = session
		s.session = session
		if s.place != nil {
			s.place.Fill(session)
		}
		r.leaveLocked()
		r.mu.Unlock()
		if r.policy.Opened != nil {
			r.policy.Opened(ctx, session)
		}
		session.OnEnd(func() {
			s.remove(id)
			s.leave()
		})
		if r.over.Err() != nil {
			session.End(fault.ErrDraining)
		}
	})
}

func (s *Slot) remove(id string) {
	r := s.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sessions, id)
	r.endings = appendLast(r.endings, ending{id, s.session.About().Owner, s.session.EndedBy()}, mostEndings)
	s.session = nil
	r.checkEmptyLocked()
}

func (r *Registry) checkEmptyLocked() {
	if r.draining.Err() != nil && len(r.sessions)+r.pending == 0 {
		r.empty()
	}
}

// Find returns the session with the id, or nil.
func (r *Registry) Find(id string) Member {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessions[id]
}

// Missing returns the id, if the registry does not have the session, and nothing if it does.
func (r *Registry) Missing(id string) string {
	if id == "" || r.Find(id) != nil {
		return ""
	}
	return id
}

// Locks takes and releases the locks of the registry and of its sessions. It blocks while
// other code holds one of them, which shows a deadlock.
func (r *Registry) Locks() {
	r.Places.Taken()
	for _, session := range r.All() {
		session.Busy() // takes its lock, as the sweep of all sessions does
	}
}

// Len returns the number of sessions. It does not count the probe's.
func (r *Registry) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.probe != nil && r.probe.session != nil {
		return len(r.sessions) - 1
	}
	return len(r.sessions)
}

// OfClients returns all sessions but the probe's.
func (r *Registry) OfClients() []Member {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.AppendSeq(make([]Member, 0, len(r.sessions)), maps.Values(r.sessions))
	return slices.DeleteFunc(all, func(m Member) bool { return r.probe != nil && m == r.probe.session })
}

// IDs returns the ids of all sessions but the probe's.
func (r *Registry) IDs() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := make([]string, 0, len(r.sessions))
	for id, member := range r.sessions {
		if r.probe == nil || member != r.probe.session {
			ids = append(ids, id)
		}
	}
	return ids
}

// Numbered returns the session of a client with the number that the log has, or nil.
func (r *Registry) Numbered(number string) Member {
	for _, member := range r.OfClients() {
		if member.About().Number == number {
			return member
		}
	}
	return nil
}

// limits returns how long a session may be idle, and how long it may last.
func (r *Registry) limits(session Member) (idle, lifetime time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	idle, lifetime = r.policy.IdleTimeout, r.policy.MaxLifetime
	if r.probe != nil && session == r.probe.session {
		idle, lifetime = min(idle, ProbeIdleTimeout), min(lifetime, ProbeLifetime)
	}
	return idle, lifetime
}

// sweepInterval is how often a registry looks for time-outs.
const sweepInterval = time.Second

// Run ends sessions, and answers calls, that exceed their time-outs. It runs until the context
// ends.
func (r *Registry) Run(ctx context.Context) {
	ticker := time.NewTicker(sweepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			for _, session := range r.All() {
				r.sweep(ctx, session, now)
			}
		}
	}
}

// All returns all sessions, with the probe's.
func (r *Registry) All() []Member {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.AppendSeq(make([]Member, 0, len(r.sessions)), maps.Values(r.sessions))
}

func (r *Registry) sweep(ctx context.Context, session Member, now time.Time) {
	idleTimeout, lifetime := r.limits(session)
	since, use, idle := session.Idle()
	idleReason := ErrIdle
	if use == places.Opened && SilentTimeout < idleTimeout {
		idleTimeout, idleReason = SilentTimeout, ErrSilent
	}
	switch {
	case now.Sub(session.About().Began) >= lifetime:
		session.End(fmt.Errorf("%w of %s", ErrLifetime, lifetime))
	case idle && now.Sub(since) >= idleTimeout:
		session.End(fmt.Errorf("%w (%s)", idleReason, idleTimeout))
	default:
		session.Sweep(ctx, now)
	}
}
