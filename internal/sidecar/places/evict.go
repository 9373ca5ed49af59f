package places

import (
	"cmp"
	"slices"
	"time"
)

// candidate is a session that may end for another.
type candidate struct {
	place *Place
	since time.Time // when it became idle
	use   Use
}

// evict ends one idle session for each newcomer that waits and on whose terms one may end, if there is one that may.
// Only the first newcomer does that, for all of them.
func (p *Places) evict(first *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.evicting || len(p.waiting) == 0 || p.waiting[0] != first {
		return
	}
	p.evicting = true // yieldLocked releases the lock
	defer func() { p.evicting = false }()
	idle := p.idleLocked()
	for _, w := range slices.Clone(p.waiting) {
		for w.evicts && slices.Contains(p.waiting, w) {
			i := p.chooseLocked(idle, w.key)
			if i < 0 {
				break
			}
			chosen := idle[i]
			idle = slices.Delete(idle, i, i+1)
			p.yieldLocked(chosen, w)
		}
	}
}

// yieldLocked ends a session for a newcomer, unless the client has just used it. It releases the lock
// meanwhile.
func (p *Places) yieldLocked(chosen candidate, w *waiter) {
	if chosen.place.left {
		return
	}
	chosen.place.goesTo = w
	p.mu.Unlock()
	yielded := chosen.place.occupant.Yield(chosen.since)
	p.mu.Lock()
	if yielded {
		p.evicted[chosen.use]++
	}
	chosen.place.goesTo = nil
}

// idleLocked returns the sessions without an open stream or a call in flight. A place without an
// occupant belongs to a session that a client opens now.
func (p *Places) idleLocked() (idle []candidate) {
	for place := range p.taken {
		if place.occupant == nil {
			continue
		}
		if since, use, ok := place.occupant.Idle(); ok {
			idle = append(idle, candidate{place, since, use})
		}
	}
	return idle
}

// chooseLocked returns the index of the session that ends for a newcomer with the key, or -1. It
// prefers sessions of the key with the greatest share, then those with the least use, and then the
// longest idle one.
func (p *Places) chooseLocked(idle []candidate, key string) int {
	best := -1
	for i, c := range idle {
		left, may := p.untilLocked(c, key)
		if may && left <= 0 && (best < 0 || p.compareLocked(c, idle[best], key) < 0) {
			best = i
		}
	}
	return best
}

func (p *Places) compareLocked(a, b candidate, key string) int {
	return cmp.Or(
		-cmp.Compare(p.excessLocked(a.place.key, key), p.excessLocked(b.place.key, key)),
		cmp.Compare(a.use, b.use),
		a.since.Compare(b.since),
	)
}

// excessLocked returns how many places more a key has than the newcomer's key will have, or 0.
func (p *Places) excessLocked(key, newcomer string) int {
	return max(p.held[key]-p.held[newcomer]-1, 0)
}

// untilLocked returns how much longer a session must be idle to end for a newcomer with the key. It
// returns false if the session may not: a newcomer takes places of its own key, and of keys that have
// more places than its own.
func (p *Places) untilLocked(c candidate, key string) (left time.Duration, may bool) {
	due := leastIdle
	if c.use == Worked && p.excessLocked(c.place.key, key) == 0 {
		due = workedIdle
	}
	return due - time.Since(c.since), c.place.key == key || p.held[c.place.key] > p.held[key]
}

// refuseLocked refuses a newcomer with the key. If sessions may end for it, the error says when the first may.
func (p *Places) refuseLocked(key string, evicts bool) error {
	if !evicts {
		return p.options.Full
	}
	p.refused++
	soonest := time.Duration(-1)
	for _, c := range p.idleLocked() {
		if left, may := p.untilLocked(c, key); may && (soonest < 0 || left < soonest) {
			soonest = left
		}
	}
	if soonest < 0 {
		soonest = busyRetry
	}
	return &FullError{p.options.Full, max((soonest + time.Second - 1).Truncate(time.Second), time.Second)}
}
