// Package budget bounds the memory that the adapter holds for all clients and servers together. A limit
// for each message or session is not enough, because there can be many of them.
package budget

import (
	"sync"
	"sync/atomic"
	"time"
)

// Budget is a number of bytes. Goroutines may call its methods at the same time.
type Budget struct {
	// Patience is how long Reach waits for room.
	Patience time.Duration

	limit int64
	free  int64 // bytes that each Account holds free of charge
	used  atomic.Int64

	waits   atomic.Uint64
	awaited atomic.Bool // a goroutine may wait for freed
	mu      sync.Mutex
	freed   chan struct{}
	charged map[*Account]struct{} // accounts that hold more than the free bytes
	press   func()                // makes holders without an account give way; may be nil
}

// Bounds of the bytes that an Account holds free of charge.
const (
	mostFree  = 64 << 10
	leastFree = 4 << 10
	freePart  = 8 // all accounts together hold one in so many bytes of the budget for free
)

// patience is the Patience of a new Budget. By then the adapter has ended sessions whose clients do not
// read.
const patience = 30 * time.Second

// New returns a Budget of so many bytes for so many accounts.
func New(limit int64, accounts int) *Budget {
	free := min(max(limit/freePart/int64(max(accounts, 1)), leastFree), mostFree)
	return &Budget{Patience: patience, limit: limit, free: free, freed: make(chan struct{}), charged: map[*Account]struct{}{}}
}

// Take takes bytes. If there are too few, it takes none and returns false.
func (b *Budget) Take(bytes int64) bool { return b.take(bytes, 0) }

// smallPart is the part of the budget that large objects leave to small ones: one in so many bytes.
const smallPart = 8

// TakeLarge is Take for a large object. It leaves some of the budget to small objects, which come and
// go quickly.
func (b *Budget) TakeLarge(bytes int64) bool { return b.take(bytes, b.limit/smallPart) }

// take takes bytes if it leaves so many to others. It never takes bytes only to give them back, because
// other holders would find no room meanwhile.
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
	if !b.awaited.Load() { // nearly always
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.awaited.Swap(false) {
		close(b.freed)
		b.freed = make(chan struct{})
	}
}

// change records that holders have so many bytes more, or fewer.
func (b *Budget) change(by int64) {
	switch {
	case by > 0:
		b.used.Add(by)
	case by < 0:
		b.Give(-by)
	}
}

// Freed returns a channel that closes with the next call of Give.
func (b *Budget) Freed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.awaited.Store(true)
	return b.freed
}

// Waits returns how many times a message of a server had to wait for room.
func (b *Budget) Waits() uint64 { return b.waits.Load() }

// Used returns how many bytes holders have taken.
func (b *Budget) Used() int64 { return b.used.Load() }

// Limit returns the size of the budget.
func (b *Budget) Limit() int64 { return b.limit }

// OnPress sets a function that makes holders without an account give way. The budget calls it, in a new
// goroutine, when an account finds no room.
func (b *Budget) OnPress(press func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.press = press
}

// Press makes the account that holds most give way to a holder without an account.
func (b *Budget) Press() { b.pressMost(nil, 0) }

// pressMost makes the account that holds most give way to another one, if it holds more than so many
// bytes. It also makes holders without an account give way, unless the other is one of these.
func (b *Budget) pressMost(to *Account, least int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var most *Account
	for a := range b.charged {
		if held := a.held.Load(); a != to && a.giveWay != nil && held > least {
			most, least = a, held
		}
	}
	if most != nil {
		go most.giveWay()
	}
	if b.press != nil && to != nil {
		go b.press()
	}
}

// list records whether an account is charged.
func (b *Budget) list(a *Account) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.charge(a.held.Load()) > 0 {
		b.charged[a] = struct{}{}
	} else {
		delete(b.charged, a)
	}
}
