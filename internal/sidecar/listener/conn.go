package listener

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// conn is a connection whose read deadline the Server enforces from time to time, where
// net.TCPConn has a timer. For each request, net/http and the code that reads the body move
// the deadline six times. With timers, that took some percent of the CPU of a small call.
type conn struct {
	*net.TCPConn
	conns   *connections
	address string // of the client, as caller.ShareOf groups addresses

	silent    atomic.Bool  // the client has sent nothing so far
	state     atomic.Int32 // an http.ConnState
	idleSince atomic.Int64 // in nanoseconds: since the last request, or since the client connected
	retired   atomic.Bool  // it ends unless a request arrives first

	mu       sync.Mutex
	deadline time.Time // for reads; zero is none
	expired  bool      // the deadline has passed, and the kernel ends every read
	watch    disconnectWatch
}

// SetReadDeadline implements net.Conn. A deadline that has long passed takes effect at once:
// net/http ends a read for the next request in this way.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	switch past := !t.IsZero() && t.UnixNano() < c.conns.checked.Load(); {
	case past:
		c.expired = true
		return c.TCPConn.SetReadDeadline(t)
	case c.expired && !c.retired.Load():
		c.expired = false
		return c.TCPConn.SetReadDeadline(time.Time{})
	}
	return nil
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.conns.remove(c)
	return c.TCPConn.Close()
}

// enforceDeadline ends reads that wait if the deadline has passed.
func (c *conn) enforceDeadline(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.expired && !c.deadline.IsZero() && c.deadline.Before(now) {
		c.expired = c.TCPConn.SetReadDeadline(c.deadline) == nil
	}
}

// deadlineInterval is how late a read may end after its deadline.
const deadlineInterval = time.Second

// enforceDeadlines ends reads whose deadline has passed, until the context ends.
func (l *connections) enforceDeadlines(ctx context.Context) {
	ticker := time.NewTicker(deadlineInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			l.checked.Store(now.UnixNano())
			l.mu.Lock()
			for c := range l.open {
				c.enforceDeadline(now)
			}
			l.mu.Unlock()
		}
	}
}
