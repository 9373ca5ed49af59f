// Package places gives the sessions of one instance their places, and makes room for a
// newcomer when every place is taken.
//
// Many clients leave without a word, and their sessions hold their places until they have
// been idle for long. So a newcomer that finds no place waits for a while. Meanwhile
// sessions end that lose little by it, one for each newcomer and never more. A session with
// an open stream or a call in flight never ends for another.
package places

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Use is what a client has done with its session: the less, the less is lost if the
// session ends.
type Use uint8

// The uses, from the least.
const (
	Opened Use = iota // it has not said that it is initialized
	Listed            // it has at most asked what there is
	Worked
	uses
)

// Uses are all of them.
func Uses() []Use { return []Use{Opened, Listed, Worked} }

func (u Use) String() string { return [...]string{"opened", "listed", "worked"}[u] }

// UseOf is what a message with that method does with a session. Answers, which have none,
// are work.
func UseOf(method string) Use {
	switch method {
	case "initialize":
		return Opened
	case "notifications/initialized", "ping", "tools/list", "resources/list", "resources/templates/list", "prompts/list":
		return Listed
	}
	return Worked
}

// Occupant is a session that has a place.
type Occupant interface {
	// Idle says since when its client has not used it, and what it has done with it. It
	// returns false while a stream is open or a call is in flight.
	Idle() (since time.Time, use Use, idle bool)
	// Yield ends it for another, and says whether it did. It does not if the session was
	// used after the given time. Its place is given back before Yield returns.
	Yield(since time.Time) bool
}

const (
	// leastIdle is how long a session must be idle before it may end for another.
	leastIdle = 5 * time.Second
	// workedIdle is the same for a session that its client has put to use.
	workedIdle = time.Minute
	// lookInterval is how often waiting newcomers have the sessions looked at.
	lookInterval = 100 * time.Millisecond
	// mostWaiting is how many newcomers wait at a time, and mostOfKey how many of one key.
	mostWaiting = 128
	mostOfKey   = 16
	// busyRetry is when to try again if every session is in use.
	busyRetry = 10 * time.Second
)

// Patience is how long most clients wait for an answer without trouble, and so how long a
// newcomer should wait.
const Patience = 10 * time.Second

// ErrFull says that every place is taken. It is wrapped by a *FullError.
var ErrFull = errors.New("every session slot is taken")

// FullError refuses a newcomer.
type FullError struct {
	Err        error         // ErrFull, or what Options.Full has instead
	RetryAfter time.Duration // until a place may be free, in whole seconds
}

func (e *FullError) Error() string {
	return e.Err.Error() + ", and no session has been idle for long enough to end"
}

func (e *FullError) Unwrap() error { return e.Err }

// Options are what Places need.
type Options struct {
	Max int
	// Full wraps ErrFull and says which limit it is; nil is ErrFull itself.
	Full error
	// Patience is how long a newcomer waits for a place; see Patience. If it is 0, no session
	// ends for another.
	Patience time.Duration
}

// Places are the places of one instance.
type Places struct {
	options Options

	mu      sync.Mutex
	taken   map[*Place]struct{}
	held    map[string]int // places by key
	waiting []*waiter
	making  bool  // a newcomer makes room for all of them
	closed  error // why there are no more places; nil if there are

	evicted [uses]uint64
	refused uint64
}

// New returns Places that are all free.
func New(options Options) *Places {
	if options.Full == nil {
		options.Full = ErrFull
	}
	return &Places{options: options, taken: map[*Place]struct{}{}, held: map[string]int{}}
}

// Place is one place that is taken.
type Place struct {
	places   *Places
	key      string
	occupant Occupant // nil until it is filled
	goesTo   *waiter  // it is given up for this one
	left     bool
}

// waiter is a newcomer that waits.
type waiter struct {
	key   string
	given chan *Place // has room for one
}

// Take takes a place for a client with the key, which names whose share it is taken of. If
// there is none, it waits for one until the context ends, but no longer than its patience
// lasts. The error is the one of Close, that of the context, or a *FullError.
func (p *Places) Take(ctx context.Context, key string) (*Place, error) {
	p.mu.Lock()
	switch {
	case p.closed != nil:
		p.mu.Unlock()
		return nil, p.closed
	case len(p.taken) < p.options.Max:
		defer p.mu.Unlock()
		return p.giveLocked(key), nil
	case p.options.Patience == 0 || !p.mayWaitLocked(key):
		defer p.mu.Unlock()
		return nil, p.refuseLocked(key)
	}
	w := &waiter{key, make(chan *Place, 1)}
	p.waiting = append(p.waiting, w)
	p.mu.Unlock()
	return p.await(ctx, w)
}

// await waits for a place. The first of those who wait makes room for all.
func (p *Places) await(ctx context.Context, w *waiter) (*Place, error) {
	patience := time.NewTimer(p.options.Patience)
	defer patience.Stop()
	look := time.NewTicker(lookInterval)
	defer look.Stop()
	for {
		p.makeRoom(w)
		select {
		case place := <-w.given:
			return p.given(place)
		case <-ctx.Done():
			return p.giveUp(w, func() error {
				p.refused++
				return ctx.Err()
			})
		case <-patience.C:
			return p.giveUp(w, func() error { return p.refuseLocked(w.key) })
		case <-look.C:
		}
	}
}

// mayWaitLocked says whether one more newcomer with the key may wait.
func (p *Places) mayWaitLocked(key string) bool {
	count := 0
	for _, w := range p.waiting {
		if w.key == key {
			count++
		}
	}
	return len(p.waiting) < mostWaiting && count < mostOfKey
}

// giveUp returns the error, unless the newcomer is given a place in that moment.
func (p *Places) giveUp(w *waiter, failure func() error) (*Place, error) {
	p.mu.Lock()
	if p.dropLocked(w) {
		defer p.mu.Unlock()
		return nil, failure()
	}
	p.mu.Unlock()
	return p.given(<-w.given)
}

// given is what a newcomer gets: a place, or the reason why there are no more.
func (p *Places) given(place *Place) (*Place, error) {
	if place != nil {
		return place, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return nil, p.closed
}

// Fill says which session is in the place.
func (p *Place) Fill(occupant Occupant) {
	p.places.mu.Lock()
	defer p.places.mu.Unlock()
	p.occupant = occupant
}

// Leave gives the place back. Only the first call has an effect.
func (p *Place) Leave() {
	all := p.places
	all.mu.Lock()
	defer all.mu.Unlock()
	if p.left {
		return
	}
	p.left = true
	delete(all.taken, p)
	if all.held[p.key]--; all.held[p.key] == 0 {
		delete(all.held, p.key)
	}
	next := p.goesTo
	if next == nil || !all.isWaitingLocked(next) {
		next = all.nextLocked()
	}
	if next != nil && len(all.taken) < all.options.Max {
		all.dropLocked(next)
		next.given <- all.giveLocked(next.key)
	}
}

func (p *Places) giveLocked(key string) *Place {
	place := &Place{places: p, key: key}
	p.taken[place] = struct{}{}
	p.held[key]++
	return place
}

// nextLocked is who gets the next place: one of those who have fewest, the first of them.
func (p *Places) nextLocked() (next *waiter) {
	for _, w := range p.waiting {
		if next == nil || p.held[w.key] < p.held[next.key] {
			next = w
		}
	}
	return next
}

// Close takes no more newcomers, and sends those away who wait.
func (p *Places) Close(reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed != nil {
		return
	}
	p.closed = reason
	for _, w := range p.waiting {
		close(w.given)
	}
	p.waiting = nil
}

func (p *Places) isWaitingLocked(w *waiter) bool {
	return slices.Contains(p.waiting, w)
}

// dropLocked says whether a newcomer was waiting, and does not any more.
func (p *Places) dropLocked(w *waiter) bool {
	i := slices.Index(p.waiting, w)
	if i < 0 {
		return false
	}
	p.waiting = slices.Delete(p.waiting, i, i+1)
	return true
}

// Taken is how many places are taken.
func (p *Places) Taken() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.taken)
}

// Refused is how many newcomers found no place, those who did not wait that long included.
func (p *Places) Refused() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused
}

// Evicted is how many sessions ended for others that had been put to that use.
func (p *Places) Evicted(use Use) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.evicted[use]
}
