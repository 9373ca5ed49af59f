package sidecar

import (
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// simConn is one end of a connection. The mutex of the network guards its fields.
type simConn struct {
	net      *simNet
	local    *simHost
	from, to netip.AddrPort
	peer     *simConn

	in       []simChunk // on its way here, and not read yet
	size     int        // of in
	lastDue  time.Time
	finished bool // the other side has closed, once that arrives
	finDue   time.Time
	broken   time.Time // when the other side's reset arrives; zero if there is none
	closed   bool
	stalled  bool          // the way is cut
	wake     chan struct{} // closed when something changes

	readDeadline, writeDeadline time.Time
}

// simChunk is what one write has sent. It is there from a time on.
type simChunk struct {
	text []byte
	due  time.Time
}

func (c *simConn) wakeLocked() {
	close(c.wake)
	c.wake = make(chan struct{})
}

// delayLocked has nothing arrive before a moment.
func (c *simConn) delayLocked(until time.Time) {
	for i := range c.in {
		if c.in[i].due.Before(until) {
			c.in[i].due = until
		}
	}
	if c.lastDue.Before(until) {
		c.lastDue = until
	}
	if c.finished && c.finDue.Before(until) {
		c.finDue = until
	}
}

func isPast(deadline, now time.Time) bool { return !deadline.IsZero() && !now.Before(deadline) }

// Read implements net.Conn.
func (c *simConn) Read(p []byte) (int, error) {
	for {
		c.net.mu.Lock()
		n, done, err := c.readLocked(p, time.Now())
		next := c.nextLocked(c.readDeadline)
		wake, changed := c.wake, c.net.changed
		c.net.mu.Unlock()
		if done {
			return n, err
		}
		awaitSim(next, wake, changed)
	}
}

// awaitSim waits for a moment, or for a change. A zero time is never.
func awaitSim(until time.Time, changes ...<-chan struct{}) {
	var timer <-chan time.Time
	if !until.IsZero() {
		t := time.NewTimer(time.Until(until))
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-timer:
	case <-changes[0]:
	case <-changes[1]:
	}
}

func (c *simConn) readLocked(p []byte, now time.Time) (n int, done bool, err error) {
	fail := func(err error) (int, bool, error) {
		return 0, true, &net.OpError{Op: "read", Net: "tcp", Err: err}
	}
	blocked := c.net.blockedLocked(c.local, c.peer.local)
	switch {
	case c.closed:
		return fail(net.ErrClosed)
	case isPast(c.readDeadline, now):
		return fail(os.ErrDeadlineExceeded)
	case len(p) == 0:
		return 0, true, nil
	case !blocked && isPast(c.broken, now):
		return fail(syscall.ECONNRESET)
	case len(c.in) > 0 && !blocked && !now.Before(c.in[0].due):
		for len(c.in) > 0 && n < len(p) && !now.Before(c.in[0].due) {
			copied := copy(p[n:], c.in[0].text)
			n += copied
			if c.in[0].text = c.in[0].text[copied:]; len(c.in[0].text) == 0 {
				c.in = c.in[1:]
			}
		}
		c.size -= n
		c.peer.wakeLocked() // there is room
		return n, true, nil
	case len(c.in) == 0 && c.finished && !blocked && !now.Before(c.finDue):
		return 0, true, io.EOF
	}
	return 0, false, nil
}

// nextLocked is when to look again, if nothing changes before.
func (c *simConn) nextLocked(deadline time.Time) time.Time {
	next := deadline
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if c.net.blockedLocked(c.local, c.peer.local) {
		return next
	}
	if len(c.in) > 0 {
		sooner(c.in[0].due)
	} else if c.finished {
		sooner(c.finDue)
	}
	sooner(c.broken)
	return next
}

// Write implements net.Conn.
func (c *simConn) Write(p []byte) (int, error) {
	for {
		c.net.mu.Lock()
		now := time.Now()
		var err error
		switch full := c.peer.size >= simWindow; {
		case c.closed:
			err = net.ErrClosed
		case isPast(c.writeDeadline, now):
			err = os.ErrDeadlineExceeded
		case isPast(c.broken, now):
			err = syscall.EPIPE
		case !full:
			c.sendLocked(p, now)
			c.net.mu.Unlock()
			return len(p), nil
		}
		wake, changed, deadline := c.wake, c.net.changed, c.writeDeadline
		c.net.mu.Unlock()
		if err != nil {
			return 0, &net.OpError{Op: "write", Net: "tcp", Err: err}
		}
		awaitSim(deadline, wake, changed)
	}
}

func (c *simConn) sendLocked(p []byte, now time.Time) {
	to := c.peer
	if due := now.Add(c.net.delayLocked()); due.After(to.lastDue) {
		to.lastDue = due
	}
	if to.closed { // its kernel answers with a reset, which comes later
		if c.broken.IsZero() {
			c.broken = to.lastDue.Add(simLatency)
			c.wakeLocked()
		}
		return
	}
	to.in = append(to.in, simChunk{append([]byte(nil), p...), to.lastDue})
	to.size += len(p)
	to.wakeLocked()
}

// Close implements net.Conn.
func (c *simConn) Close() error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.closed = true
	c.wakeLocked()
	to := c.peer
	due := time.Now().Add(c.net.delayLocked())
	if due.Before(to.lastDue) {
		due = to.lastDue
	}
	if len(c.in) > 0 { // what was not read makes it a reset
		if to.broken.IsZero() {
			to.broken = due
		}
	} else {
		to.finished, to.finDue = true, due
	}
	to.wakeLocked()
	if to.closed {
		delete(c.net.conns, c)
		delete(c.net.conns, to)
	}
	return nil
}

// State implements relay.Kernel.
func (c *simConn) State() (unread, over bool) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	now := time.Now()
	if c.closed {
		return false, true
	}
	if c.net.blockedLocked(c.local, c.peer.local) {
		return false, false
	}
	unread = len(c.in) > 0 && !now.Before(c.in[0].due)
	return unread, isPast(c.broken, now) || c.finished && !now.Before(c.finDue)
}

// Acknowledged implements relay.Kernel.
func (c *simConn) Acknowledged() bool {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	if len(c.peer.in) == 0 {
		return true
	}
	return !c.net.blockedLocked(c.local, c.peer.local) && !time.Now().Before(c.peer.lastDue)
}

// LocalAddr implements net.Conn.
func (c *simConn) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(c.from) }

// RemoteAddr implements net.Conn.
func (c *simConn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.to) }

// SetDeadline implements net.Conn.
func (c *simConn) SetDeadline(t time.Time) error {
	return c.setDeadlines(t, &c.readDeadline, &c.writeDeadline)
}

// SetReadDeadline implements net.Conn.
func (c *simConn) SetReadDeadline(t time.Time) error { return c.setDeadlines(t, &c.readDeadline) }

// SetWriteDeadline implements net.Conn.
func (c *simConn) SetWriteDeadline(t time.Time) error { return c.setDeadlines(t, &c.writeDeadline) }

func (c *simConn) setDeadlines(t time.Time, which ...*time.Time) error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	for _, deadline := range which {
		*deadline = t
	}
	c.wakeLocked()
	return nil
}
