// Package budget bounds the memory that the adapter holds for all of its clients and
// servers together. A limit for each object is not enough: limits multiply.
package budget

import (
	"sync"
	"sync/atomic"
	"time"
)

// Budget is a number of bytes. Its methods may be called at any time from any goroutine.
type Budget struct {
	// Patience is how long a message that is being read waits for room.
	Patience time.Duration

	limit int64
	free  int64 // of what an Account holds, for which it is not charged
	used  atomic.Int64

	waits   atomic.Uint64
	awaited atomic.Bool // freed has been asked for
	mu      sync.Mutex
	freed   chan struct{}
	charged map[*Account]struct{} // those that hold more than is free
	press   func()                // has holders without an account give way; may be nil
}

// What an Account holds free of charge: less if there may be very many accounts.
const (
	mostFree  = 64 << 10
	leastFree = 4 << 10
	freePart  = 8 // of all accounts together: one in so many bytes of the budget
)

// patience is that of a new Budget. Clients that do not read are given up within that time.
const patience = 30 * time.Second

// New returns a Budget of so many bytes for so many accounts.
func New(limit int64, accounts int) *Budget {
	free := min(max(limit/freePart/int64(max(accounts, 1)), leastFree), mostFree)
	return &Budget{Patience: patience, limit: limit, free: free, freed: make(chan struct{}), charged: map[*Account]struct{}{}}
}

// Take takes bytes, all or none, and says whether it did.
func (b *Budget) Take(bytes int64) bool { return b.take(bytes, 0) }

// smallPart is the part of the budget that large objects leave to small ones: one in so many
// bytes.
const smallPart = 8

// TakeLarge is Take for an object that is large. It leaves some of the budget to small
// objects, which come and go quickly.
func (b *Budget) TakeLarge(bytes int64) bool { return b.take(bytes, b.limit/smallPart) }

// take takes bytes if it leaves so many to others. It never takes bytes only to give them
// back: others would find no room meanwhile.
func (b *Budget) take(bytes, leave int64) bool {
	for {
		used := b.used.Load()
		if b.limit-used-bytes < leave {
			return false
		}
		if b.used.CompareAndSwap(used, used+bytes) {
			return true
		}
	}
}

// Give gives bytes back.
func (b *Budget) Give(bytes int64) {
	b.used.Add(-bytes)
	if b.awaited.Load() {
		b.announce()
	}
}

// change notes that so many bytes more are used, or fewer.
func (b *Budget) change(by int64) {
	switch {
	case by > 0:
		b.used.Add(by)
	case by < 0:
		b.Give(-by)
	}
}

func (b *Budget) announce() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.awaited.Swap(false) {
		close(b.freed)
		b.freed = make(chan struct{})
	}
}

// Freed returns a channel that is closed when bytes are given back from now on.
func (b *Budget) Freed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.awaited.Store(true)
	return b.freed
}

// Waits is how many times a message of a server found no room and had to wait.
func (b *Budget) Waits() uint64 { return b.waits.Load() }

// Used is how many bytes are taken.
func (b *Budget) Used() int64 { return b.used.Load() }

// Limit is how many bytes there are.
func (b *Budget) Limit() int64 { return b.limit }

// OnPress has a function called, in a goroutine of its own, when a holder finds no room. It is
// for holders that have no accounts.
func (b *Budget) OnPress(press func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.press = press
}

// Press has the account that holds most give way to a holder that has no account.
func (b *Budget) Press() { b.pressMost(nil, 0) }

func (b *Budget) pressMost(but *Account, least int64) {
	most, others := b.most(but, least)
	if most != nil {
		go most.giveWay()
	}
	if others != nil && but != nil {
		go others()
	}
}

// list notes whether an account is charged.
func (b *Budget) list(a *Account) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.charge(a.held.Load()) > 0 {
		b.charged[a] = struct{}{}
	} else {
		delete(b.charged, a)
	}
}

// most is the account that holds most and can give way, if that is more than so many bytes,
// and what has those without an account give way.
func (b *Budget) most(but *Account, least int64) (most *Account, others func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for a := range b.charged {
		if held := a.held.Load(); a != but && a.giveWay != nil && held > least {
			most, least = a, held
		}
	}
	return most, b.press
}
