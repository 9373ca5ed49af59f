package peer

import "sync"

// calls counts the calls that are on their way.
type calls struct {
	mu    sync.Mutex
	count int
	zero  chan struct{} // closed when the count is 0; nil unless a drain waits for that
}

func (c *calls) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count++
}

func (c *calls) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count--
	c.checkLocked()
}

// over returns a channel that closes when there are no calls.
func (c *calls) over() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.zero == nil {
		c.zero = make(chan struct{})
	}
	zero := c.zero
	c.checkLocked()
	return zero
}

func (c *calls) checkLocked() {
	if c.zero != nil && c.count == 0 {
		close(c.zero)
		c.zero = nil
	}
}
