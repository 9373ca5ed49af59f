package upstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/places"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

var (
	errUnknown         = errors.New("no such session")
	errForgotten       = errors.New("the server no longer knows it")
	errProbing         = errors.New("another probe has its session open")
	errTooManyRequests = errors.New("too many requests are in flight")
)

// entry is a session: the id that its client knows, and the one that the server
// knows, which is told to nobody.
type entry struct {
	id       string
	serverID string
	revision string // that client and server agreed on
	probe    bool   // it is the manager's
	number   string // in the log; set before anybody else knows the session
	owner    *caller.Owner
	began    time.Time
	place    *places.Place // nil for the probe's

	// over ends when the session does; its cause is the reason.
	over context.Context
	end  context.CancelCauseFunc

	// Guarded by the table's mutex.
	touched   time.Time
	use       places.Use
	confirmed time.Time // when the server last did what it was asked in this session
	calls     int       // POST requests in flight
	streams   int       // GET requests in flight
}

func newEntry(id, serverID, revision string, from *caller.Caller) *entry {
	over, end := context.WithCancelCause(context.Background())
	now := time.Now()
	return &entry{
		id: id, serverID: serverID, revision: revision, probe: from.Probe, owner: caller.NewOwner(from), began: now, over: over, end: end,
		touched: now, confirmed: now,
	}
}

// table has the sessions of one instance, and counts the requests in flight.
type table struct {
	limits Limits
	places *places.Places

	mu       sync.Mutex
	entries  map[string]*entry
	reserved int    // places of sessions that are being opened
	probing  bool   // the probe's place is taken
	probe    *entry // what is in it, once it is opened
	single   int    // POST requests in flight that belong to no session
	listens  int    // streams in flight that belong to none
	singles  int    // requests of a probe that belong to none
	draining bool

	changed chan struct{} // receives after something went away

	// What belongs to no session ends with these: streams when draining begins,
	// calls when there is no more time for them.
	drains, stops     context.Context
	endDrain, endStop context.CancelCauseFunc
}

func newTable(limits Limits, free *places.Places) *table {
	t := &table{limits: limits, places: free, entries: map[string]*entry{}, changed: make(chan struct{}, 1)}
	t.drains, t.endDrain = context.WithCancelCause(context.Background())
	t.stops, t.endStop = context.WithCancelCause(context.Background())
	return t
}

// reserve takes a place for a session, so that the server opens none that would then be
// refused. A probe has a place of its own, which is nil, beyond the others; there is one of
// these.
func (t *table) reserve(ctx context.Context, from *caller.Caller) (*places.Place, error) {
	if from.Probe {
		return nil, t.reserveProbe()
	}
	place, err := t.places.Take(ctx, from.ShareKey())
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	draining := t.draining
	if !draining {
		t.reserved++
	}
	t.mu.Unlock()
	if draining {
		place.Leave()
		return nil, session.ErrDraining
	}
	return place, nil
}

func (t *table) reserveProbe() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.draining:
		return session.ErrDraining
	case t.probing:
		return errProbing
	}
	t.reserved++
	t.probing = true
	return nil
}

// release gives a place back.
func (t *table) release(place *places.Place) {
	t.mu.Lock()
	t.reserved--
	if place == nil {
		t.probing = false
	}
	t.signalLocked()
	t.mu.Unlock()
	leave(place)
}

// leave gives a place back. The caller must not hold the table's lock: Places calls
// table.idle while it holds its own.
func leave(place *places.Place) {
	if place != nil {
		place.Leave()
	}
}

// fill puts a session into the place that was reserved for it.
func (t *table) fill(e *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reserved--
	t.signalLocked()
	t.entries[e.id] = e
	if e.probe {
		t.probe = e
	}
}

// deleteLocked takes a session out that is there.
func (t *table) deleteLocked(e *entry) {
	delete(t.entries, e.id)
	if e == t.probe {
		t.probe, t.probing = nil, false
	}
}

// remove takes a session out, and says whether it was there: whoever takes it out
// ends it.
func (t *table) remove(e *entry) bool {
	return t.removeIf(e, func() bool { return true })
}

// removeIf is remove if the condition, which is asked under the table's lock, holds.
func (t *table) removeIf(e *entry, holds func() bool) bool {
	t.mu.Lock()
	if t.entries[e.id] != e || !holds() {
		t.mu.Unlock()
		return false
	}
	t.deleteLocked(e)
	t.signalLocked()
	t.mu.Unlock()
	leave(e.place)
	return true
}

// idle says since when a session has not been used, and what its client has done with it.
func (t *table) idle(e *entry) (since time.Time, use places.Use, idle bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return e.touched, e.use, e.isIdle()
}

func (e *entry) isIdle() bool { return e.calls+e.streams == 0 }

// find returns the session with the id, without using it.
func (t *table) find(id string) (*entry, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.entries[id]
	return e, ok
}

// enter begins a request in the session with the id, if it is the caller's.
func (t *table) enter(id string, from *caller.Caller, stream bool, use places.Use) (*entry, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.entries[id]
	switch {
	// The server sees tokens that do not say whose they are, and those that it asked for
	// after the session was opened.
	case !ok || !e.owner.Is(from) && !e.owner.IsNobody():
		return nil, errUnknown
	case stream && e.streams >= t.limits.Streams:
		return nil, session.ErrTooManyStreams
	case !stream && e.calls >= t.limits.Calls:
		return nil, session.ErrTooManyCalls
	}
	e.count(stream, 1)
	e.use = max(e.use, use)
	return e, nil
}

func (t *table) leave(e *entry, stream bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.count(stream, -1)
	t.signalLocked()
}

func (e *entry) count(stream bool, by int) {
	e.touched = time.Now()
	if stream {
		e.streams += by
	} else {
		e.calls += by
	}
}

// probeSingles are the requests of a probe that may be in flight without a session:
// it asks for one thing after the other, and may listen meanwhile.
const probeSingles = 4

// enterSingle begins a request that belongs to no session; leave ends it. Streams do
// not take the places of calls: clients hold on to them.
func (t *table) enterSingle(stream, probe bool) (leave func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	count, limit := &t.single, t.limits.Single
	switch {
	case probe:
		count, limit = &t.singles, probeSingles
	case stream:
		count, limit = &t.listens, t.limits.Listens
	}
	switch {
	case t.draining:
		return nil, session.ErrDraining
	case *count >= limit:
		return nil, errTooManyRequests
	}
	*count++
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		*count--
		t.signalLocked()
	}, nil
}

func (t *table) signalLocked() {
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// confirm notes that the server knows the session.
func (t *table) confirm(e *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.confirmed = time.Now()
}

// confirmedBefore says whether the server has not been seen to know the session
// since the given time.
func (t *table) confirmedBefore(e *entry, at time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return e.confirmed.Before(at)
}

// len is the number of sessions. The probe's is not counted.
func (t *table) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.probe != nil {
		return len(t.entries) - 1
	}
	return len(t.entries)
}

// ending is a session that ends, with the reason.
type ending struct {
	entry  *entry
	reason error
}

func leaveAll(endings []ending) {
	for _, e := range endings {
		leave(e.entry.place)
	}
}

// expire takes out the sessions whose time is up.
func (t *table) expire(now time.Time) (endings []ending) {
	defer func() { leaveAll(endings) }()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.entries {
		idle, lifetime := t.limits.IdleTimeout, t.limits.MaxLifetime
		if e.probe {
			idle, lifetime = min(idle, session.ProbeIdleTimeout), min(lifetime, session.ProbeLifetime)
		}
		idle, idleReason := session.IdleLimit(e.use, idle)
		var reason error
		switch {
		case now.Sub(e.began) >= lifetime:
			reason = fmt.Errorf("%w of %s", session.ErrLifetime, lifetime)
		case e.isIdle() && now.Sub(e.touched) >= idle:
			reason = idleReason
		default:
			continue
		}
		t.deleteLocked(e)
		endings = append(endings, ending{e, reason})
	}
	return endings
}

// drain begins or goes on to take the sessions out that have no call in flight, or
// all. Nothing new is let in. It says whether anything is still in flight.
func (t *table) drain(all bool) (endings []ending, busy bool) {
	t.places.Close(session.ErrDraining)
	defer func() { leaveAll(endings) }()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.draining = true
	for _, e := range t.entries {
		if all || e.calls == 0 {
			t.deleteLocked(e)
			endings = append(endings, ending{e, session.ErrDraining})
		}
	}
	return endings, len(t.entries)+t.reserved+t.single+t.listens+t.singles > 0
}
