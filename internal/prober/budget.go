package prober

import "sync"

// budget bounds the memory that answers take while they are read and decoded. A request
// that finds too little left releases what it has and retries later, so no request waits
// for another, and a slow one holds no more than what has arrived.
type budget struct {
	mu   sync.Mutex
	left int
}

func (b *budget) take(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > b.left {
		return false
	}
	b.left -= n
	return true
}

func (b *budget) give(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left += n
}

func (b *budget) has(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return n <= b.left
}
