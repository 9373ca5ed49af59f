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

// Reasons for which a registry ends sessions; clients with a call in flight see them.
var (
	ErrIdle     = errors.New("the session was idle for too long")
	ErrLifetime = errors.New("the session reached its maximum lifetime")
	// ErrSilent is for a client that opens a session and then says nothing more.
	ErrSilent  = errors.New("the client did not say that it is initialized, or anything else, in time")
	ErrYielded = errors.New("the session was idle and ended to make room: every session slot was taken")
	// ErrClient is wrapped by the reasons of front ends whose client ended the session.
	ErrClient = errors.New("the client ended the session")
)

// A probe is done in seconds. One that was abandoned must not keep the slot from the
// next for long.
const (
	ProbeIdleTimeout = 10 * time.Second
	ProbeLifetime    = 2 * time.Minute
)

// SilentTimeout is how long a client that has opened a session may say nothing at all.
const SilentTimeout = time.Minute

// Policy says how many sessions there may be, and for how long.
type Policy struct {
	Max         int
	Full        error         // wraps places.ErrFull, for clients to read; nil means places.ErrFull
	Patience    time.Duration // of a client that finds every slot taken; see places.Options
	IdleTimeout time.Duration
	MaxLifetime time.Duration
	// Opened is told of each session that is opened, with the context of the request that
	// opened it; may be nil.
	Opened func(context.Context, Member)
}

// Registry knows all sessions of one instance by their ids: its own, and those of HTTP servers.
type Registry struct {
	policy Policy
	// Places are those of all sessions but the probe's.
	Places *places.Places

	// What belongs to no session ends with these: streams when the drain begins, and all else
	// when its time is up.
	draining, over context.Context
	drain, stop    context.CancelCauseFunc

	mu       sync.Mutex
	sessions map[string]Member
	pending  int           // sessions that are being opened, and requests without one
	probe    *Slot         // of the manager's probe; nil while it has no session
	endings  []ending      // of the sessions that ended last, oldest first
	emptied  chan struct{} // closed when the last one goes while draining
	empty    func()        // closes it
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

// Slot is a place for a session that is being opened.
type Slot struct {
	registry *Registry
	place    *places.Place // nil for the probe's
	session  Member        // nil until Fill
	once     sync.Once
}

// Reserve takes a place for the caller's session, so that no server is started for a session
// that would then be refused. If every place is taken it waits; see places.Take. The slot
// must be filled or released.
func (r *Registry) Reserve(ctx context.Context, from *caller.Caller) (*Slot, error) {
	err := r.Enter()
	if err != nil {
		return nil, err
	}
	slot := &Slot{registry: r}
	if from.Probe {
		err = r.reserveProbe(slot)
	} else {
		slot.place, err = r.Places.Take(ctx, from.ShareKey())
	}
	if err != nil {
		r.Leave()
		return nil, err
	}
	return slot, nil
}

// reserveProbe gives the manager's probe the place that it has beyond all others.
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

// Enter begins a request that belongs to no session. A drain waits until Leave ends it.
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

// Draining ends when the registry takes no new sessions any more. Its cause is fault.ErrDraining.
func (r *Registry) Draining() context.Context { return r.draining }

// Over ends when a drain waits for nothing any more. Its cause is fault.ErrDraining.
func (r *Registry) Over() context.Context { return r.over }

// Release gives the place back. After Fill it does nothing.
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

// Fill puts the session into the place, under its id, until it ends. The context is that of
// the request that opened it.
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

// Locks takes the lock of the registry and those of its sessions, and gives them back. It
// does not return while one of them is held.
func (r *Registry) Locks() {
	r.Places.Taken()
	for _, session := range r.All() {
		session.Busy() // the sweep, which is for all sessions, waits for each of them
	}
}

// Len is the number of sessions. The probe's is not counted.
func (r *Registry) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.probe != nil && r.probe.session != nil {
		return len(r.sessions) - 1
	}
	return len(r.sessions)
}

// limits are how long a session may be idle and live.
func (r *Registry) limits(session Member) (idle, lifetime time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	idle, lifetime = r.policy.IdleTimeout, r.policy.MaxLifetime
	if r.probe != nil && session == r.probe.session {
		idle, lifetime = min(idle, ProbeIdleTimeout), min(lifetime, ProbeLifetime)
	}
	return idle, lifetime
}

// sweepInterval is how exactly time-outs are kept.
const sweepInterval = time.Second

// Run ends sessions and answers calls whose time is up, until the context ends.
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

// All are the sessions that there are now.
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

// Refuse takes no new sessions, and no requests without one, from now on.
func (r *Registry) Refuse() {
	r.Places.Close(fault.ErrDraining)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drain(fault.ErrDraining)
	r.checkEmptyLocked()
}

// Drain takes no new sessions and waits until calls in flight have been answered,
// or the context ends; then it ends every session. A session without a call ends
// at once, with its streams. Drain returns when the servers of these sessions were told.
func (r *Registry) Drain(ctx context.Context) {
	r.Refuse()
	ticker := time.NewTicker(sweepInterval / 20)
	defer ticker.Stop()
	var ended []Member
	defer func() {
		for _, session := range ended {
			<-session.Done()
		}
	}()
	end := func(all bool) {
		for _, session := range r.All() {
			if all || !session.Busy() {
				session.End(fault.ErrDraining)
				ended = append(ended, session)
			}
		}
	}
	for {
		end(false)
		select {
		case <-r.emptied:
			return
		case <-ctx.Done():
			r.stop(fault.ErrDraining)
			end(true)
			return
		case <-ticker.C:
		}
	}
}
