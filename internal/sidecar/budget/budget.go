// Package budget bounds the memory that the adapter holds for all of its clients and
// servers together. A limit for each object is not enough: limits multiply.
package budget

import "sync/atomic"

// Budget is a number of bytes. Its methods may be called at any time from any goroutine.
type Budget struct {
	limit int64
	used  atomic.Int64
}

// New returns a Budget of so many bytes.
func New(limit int64) *Budget { return &Budget{limit: limit} }

// Take takes bytes, all or none, and says whether it did.
func (b *Budget) Take(bytes int64) bool { return b.take(bytes, b.limit) }

// smallPart is the part of the budget that large objects leave to small ones: one in so many
// bytes.
const smallPart = 8

// TakeLarge is Take for an object that is large. It leaves some of the budget to small
// objects, which come and go quickly.
func (b *Budget) TakeLarge(bytes int64) bool { return b.take(bytes, b.limit-b.limit/smallPart) }

func (b *Budget) take(bytes, limit int64) bool {
	if b.used.Add(bytes) > limit {
		b.used.Add(-bytes)
		return false
	}
	return true
}

// Give gives bytes back.
func (b *Budget) Give(bytes int64) { b.used.Add(-bytes) }

// Used is how many bytes are taken.
func (b *Budget) Used() int64 { return b.used.Load() }

// Limit is how many bytes there are.
func (b *Budget) Limit() int64 { return b.limit }
