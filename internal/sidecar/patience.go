package sidecar

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// patientListener accepts connections whose read deadlines are looked at once in a while,
// instead of by a timer each. For every request net/http, and whoever reads its body, move
// the deadline six times, and timers made that some percent of a small call.
type patientListener struct {
	net.Listener

	looked atomic.Int64 // when, in nanoseconds

	mu    sync.Mutex
	conns map[*patientConn]struct{} // open
	crowd
}

// newPatientListener returns a listener that has at most so many connections open.
func newPatientListener(listener net.Listener, most int) *patientListener {
	l := &patientListener{Listener: listener, conns: map[*patientConn]struct{}{}, crowd: crowd{most: most, quiet: leastQuiet, from: map[string]int{}}}
	l.looked.Store(time.Now().UnixNano())
	return l
}

// Accept is that of net.Listener.
func (l *patientListener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		tcp, ok := accepted.(*net.TCPConn)
		if !ok {
			return accepted, err
		}
		if c := (&patientConn{TCPConn: tcp, listener: l, address: addressOf(tcp)}); l.admit(c) {
			return c, err
		}
		refuseConnection(tcp)
	}
}

// lookInterval is how late a deadline may be.
const lookInterval = time.Second

// run ends reads whose deadline has passed, until the context ends.
func (l *patientListener) run(ctx context.Context) {
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			l.looked.Store(now.UnixNano())
			l.mu.Lock()
			for c := range l.conns {
				c.enforce(now)
			}
			l.mu.Unlock()
		}
	}
}

// patientConn is a connection of a patientListener.
type patientConn struct {
	*net.TCPConn
	listener *patientListener
	address  string // of the client, as shares are counted

	state atomic.Int32 // an http.ConnState
	idle  atomic.Int64 // since when, in nanoseconds, while that is http.StateIdle

	mu     sync.Mutex
	wanted time.Time // the read deadline; zero is never
	ended  bool      // reads end at once, because it has passed
	watch  lookout   // for a client that goes away
}

// SetReadDeadline is that of net.Conn. One that has long passed takes effect at once: this
// is how net/http ends a read that waits for the next request.
func (c *patientConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted = t
	switch past := !t.IsZero() && t.UnixNano() < c.listener.looked.Load(); {
	case past:
		c.ended = true
		return c.TCPConn.SetReadDeadline(t)
	case c.ended:
		c.ended = false
		return c.TCPConn.SetReadDeadline(time.Time{})
	}
	return nil
}

// SetDeadline is that of net.Conn.
func (c *patientConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// enforce ends a read that waits if its deadline has passed.
func (c *patientConn) enforce(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended && !c.wanted.IsZero() && c.wanted.Before(now) {
		c.ended = c.TCPConn.SetReadDeadline(c.wanted) == nil
	}
}

// Close is that of net.Conn.
func (c *patientConn) Close() error {
	c.listener.forget(c)
	return c.TCPConn.Close()
}
