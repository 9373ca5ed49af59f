// Package places bounds the sessions of one instance, and evicts idle sessions for newcomers.
//
// Many clients leave without ending their sessions, which then hold their places until they have been
// idle for long. So a newcomer that finds no place waits for a while, and an idle session ends for it:
// one for each newcomer, and never more. A session with an open stream or a call in flight never ends
// for another. A newcomer that may find a place at another instance waits there and here first, and no
// session ends for it meanwhile.
package places

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Use is how far a client has used its session. The less it has, the less it loses if the session
// ends.
type Use uint8

// The uses, from the least.
const (
	Opened Use = iota // the client has not sent notifications/initialized
	Listed            // the client has at most listed what the server offers
	Worked
	uses
)

// Uses returns all uses.
func Uses() []Use { return []Use{Opened, Listed, Worked} }

func (u Use) String() string { return [...]string{"opened", "listed", "worked"}[u] }

// UseOf returns the use that a message with the method makes of a session. An answer has no method
// and counts as work.
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
	// Idle returns since when the client has not used the session, and how far it has used it. It
	// returns false while a stream is open or a call is in flight.
	Idle() (since time.Time, use Use, idle bool)
	// Yield ends the session for another one, unless the client has used it after the given time. It
	// reports whether the session has ended. The session leaves its place before Yield returns.
	Yield(since time.Time) bool
}

const (
	// leastIdle is how long a session must be idle before it may end for another.
	leastIdle = 5 * time.Second
	// workedIdle is the same for a session that has Worked.
	workedIdle = time.Minute
	// evictInterval is how often waiting newcomers look for sessions that may end.
	evictInterval = 100 * time.Millisecond
	// mostWaiting bounds the newcomers that wait, and mostOfKey those of one key.
	mostWaiting = 128
	mostOfKey   = 16
	// busyRetry is when to try again if every session is in use.
	busyRetry = 10 * time.Second
)

// Patience is how long a newcomer should wait: most clients wait that long for an answer.
const Patience = 10 * time.Second

// ErrFull says that every place is taken. A *FullError wraps it.
var ErrFull = errors.New("every session slot is taken")

// FullError refuses a newcomer.
type FullError struct {
	Err        error         // ErrFull, or Options.Full
	RetryAfter time.Duration // until a place may be free, in whole seconds
}

func (e *FullError) Error() string {
	return e.Err.Error() + ", and none has been idle for long enough to end"
}

func (e *FullError) Unwrap() error { return e.Err }

// Options configure Places.
type Options struct {
	Max int
	// PerKey bounds the places of one key; 0 is no bound.
	PerKey int
	// Full wraps ErrFull and says which limit applies; nil means ErrFull itself.
	Full error
	// Patience is how long a newcomer waits for a place. If it is 0, no session ends for another.
	Patience time.Duration
}

// Places are the places of one instance.
type Places struct {
	options Options

	mu       sync.Mutex
	taken    map[*Place]struct{}
	held     map[string]int // places by key
	waiting  []*waiter
	evicting bool  // a newcomer evicts sessions for all that wait
	closed   error // why there are no more places; nil while there are

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

// Place is one taken place.
type Place struct {
	places   *Places
	key      string
	occupant Occupant // nil until Fill
	goesTo   *waiter  // the newcomer that the occupant ends for; nil if there is none
	left     bool
}

// waiter is a newcomer that waits for a place.
type waiter struct {
	key    string
	evicts bool          // an idle session may end for it
	done   chan struct{} // closed once place or err is set
	place  *Place
	err    error
}

// Terms say what happens to a newcomer that finds no free place.
type Terms struct {
	// Patience is how long it waits for one.
	Patience time.Duration
	// Evicts says that an idle session may end for it. If not, the newcomer has another way to go, and so does
	// not count as refused.
	Evicts bool
}

// Take takes a place for a client. The key names the share that the place counts for. If no place is
// free, Take waits for one until the context ends or the patience is over. The error is that of Close,
// that of the context, or a *FullError.
func (p *Places) Take(ctx context.Context, key string) (*Place, error) {
	return p.TakeOn(ctx, key, Terms{Patience: p.options.Patience, Evicts: true})
}

// TakeOn is Take on other terms. If no session may end for the newcomer, the error wraps ErrFull and does not say
// when to try again.
func (p *Places) TakeOn(ctx context.Context, key string, terms Terms) (*Place, error) {
	p.mu.Lock()
	switch {
	case p.closed != nil:
		defer p.mu.Unlock()
		return nil, p.closed
	case len(p.taken) < p.options.Max && !p.hasMostLocked(key):
		defer p.mu.Unlock()
		return p.giveLocked(key), nil
	case p.hasMostLocked(key), terms.Patience == 0, !p.mayWaitLocked(key):
		defer p.mu.Unlock()
		return nil, p.refuseLocked(key, terms.Evicts)
	}
	w := &waiter{key: key, evicts: terms.Evicts, done: make(chan struct{})}
	p.waiting = append(p.waiting, w)
	p.mu.Unlock()
	return p.await(ctx, w, terms.Patience)
}

func (p *Places) hasMostLocked(key string) bool {
	return p.options.PerKey > 0 && p.held[key] >= p.options.PerKey
}

// TakeSpare is Take for a client that can do without the place. It does not wait, and leaves half of all
// places to others.
func (p *Places) TakeSpare(key string) (*Place, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed != nil:
		return nil, p.closed
	case len(p.taken) < p.options.Max/2 && !p.hasMostLocked(key):
		return p.giveLocked(key), nil
	}
	return nil, &FullError{p.options.Full, busyRetry}
}

// await waits for a place.
func (p *Places) await(ctx context.Context, w *waiter, patience time.Duration) (*Place, error) {
	over := time.NewTimer(patience)
	defer over.Stop()
	tick := time.NewTicker(evictInterval)
	defer tick.Stop()
	for {
		p.evict(w)
		select {
		case <-w.done:
			return w.place, w.err
		case <-ctx.Done():
			return p.giveUp(w, ctx.Err())
		case <-over.C:
			return p.giveUp(w, nil)
		case <-tick.C:
		}
	}
}

// mayWaitLocked reports whether one more newcomer with the key may wait.
func (p *Places) mayWaitLocked(key string) bool {
	count := 0
	for _, w := range p.waiting {
		if w.key == key {
			count++
		}
	}
	return len(p.waiting) < mostWaiting && count < mostOfKey
}

// giveUp ends the wait of a newcomer with an error: that of its context, or if it is nil, a *FullError.
// If the newcomer has just got a place, giveUp returns the place.
func (p *Places) giveUp(w *waiter, err error) (*Place, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.dropLocked(w):
		return w.place, w.err
	case err == nil:
		return nil, p.refuseLocked(w.key, w.evicts)
	case w.evicts:
		p.refused++
	}
	return nil, err
}

// Fill puts a session into the place.
func (p *Place) Fill(occupant Occupant) {
	p.places.mu.Lock()
	defer p.places.mu.Unlock()
	p.occupant = occupant
}

// Leave frees the place. Only the first call has an effect.
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
	if next == nil || !slices.Contains(all.waiting, next) {
		next = all.nextLocked()
	}
	if next != nil && len(all.taken) < all.options.Max {
		all.dropLocked(next)
		next.place = all.giveLocked(next.key)
		close(next.done)
	}
}

func (p *Places) giveLocked(key string) *Place {
	place := &Place{places: p, key: key}
	p.taken[place] = struct{}{}
	p.held[key]++
	return place
}

// nextLocked returns the newcomer that gets the next place: the first of those whose keys have fewest.
func (p *Places) nextLocked() (next *waiter) {
	for _, w := range p.waiting {
		if next == nil || p.held[w.key] < p.held[next.key] {
			next = w
		}
	}
	return next
}

// Close refuses all newcomers from now on, and those that wait.
func (p *Places) Close(reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed != nil {
		return
	}
	p.closed = reason
	for _, w := range p.waiting {
		w.err = reason
		close(w.done)
	}
	p.waiting = nil
}

// dropLocked ends the wait of a newcomer. It returns false if the newcomer does not wait any more.
func (p *Places) dropLocked(w *waiter) bool {
	i := slices.Index(p.waiting, w)
	if i < 0 {
		return false
	}
	p.waiting = slices.Delete(p.waiting, i, i+1)
	return true
}

// Waiting returns how many newcomers wait for a place.
func (p *Places) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiting)
}

// Taken returns how many places are taken.
func (p *Places) Taken() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.taken)
}

// Refused returns how many newcomers got no place, with those that stopped waiting.
func (p *Places) Refused() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused
}

// Evicted returns how many sessions of that use ended for others.
func (p *Places) Evicted(use Use) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.evicted[use]
}
