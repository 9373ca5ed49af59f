package listener

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"time"
)

// disconnectWatch cancels the requests of a connection when its client closes it.
//
// As soon as net/http has a request, it reads a single byte for that purpose, in a goroutine
// of its own. The server answers nearly all requests before that read is of any use: then
// net/http ends the read by a deadline, and waits for the goroutine. That took 5 % of the CPU
// of a small call. The watch therefore answers that read at once with no bytes. It peeks at
// the connection itself, and only while a request takes long.
type disconnectWatch struct {
	cancel context.CancelFunc // of the connection's context; nil leaves the watch to net/http

	on       bool          // a request is in flight, as far as reads show
	requests uint64        // so far, with the one in flight
	timer    *time.Timer   // for peek; nil before the first request
	armed    bool          // the timer runs
	armedFor uint64        // the request that the timer was started for
	peeking  chan struct{} // closed when peek returns; nil if it does not run
}

// watchAfter is how long a request is in flight before the watch begins. It may also take
// twice as long, because a timer that runs serves the requests that follow. It is longer than
// a small call takes when 64 sessions share one CPU, so that such calls need no watch.
const watchAfter = 50 * time.Millisecond

// watchDisconnect is the ConnContext of an http.Server.
func watchDisconnect(ctx context.Context, of net.Conn) context.Context {
	c, ok := of.(*conn)
	if !ok {
		return ctx
	}
	ctx, c.watch.cancel = context.WithCancel(ctx)
	return ctx
}

// Read implements net.Conn. A read of a single byte is nearly always the one by which
// net/http notices that the client goes away. Of two such reads in a row the second one gets
// the byte, so that other readers of single bytes lose none.
func (c *conn) Read(p []byte) (n int, err error) {
	if len(p) == 1 && c.beginWatch() {
		return 0, nil
	}
	c.endWatch()
	if len(p) >= largeReadBytes {
		n, err = c.readLarge(p)
	} else {
		n, err = c.TCPConn.Read(p)
	}
	if err != nil && errors.Is(err, os.ErrDeadlineExceeded) && !c.is(http.StateActive) {
		return c.readLast(p, err)
	}
	return n, err
}

// beginWatch turns the watch on. It returns false if it was on, or net/http has to watch.
func (c *conn) beginWatch() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := &c.watch
	if w.cancel == nil || w.on {
		return false
	}
	w.on = true
	w.requests++
	if !w.armed {
		c.armLocked()
	}
	return true
}

func (c *conn) armLocked() {
	w := &c.watch
	w.armed, w.armedFor = true, w.requests
	if w.timer == nil {
		w.timer = time.AfterFunc(watchAfter, c.peek)
	} else {
		w.timer.Reset(watchAfter)
	}
}

// endWatch turns the watch off. It waits until peek returns: the next byte belongs to a
// request.
func (c *conn) endWatch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := &c.watch
	w.on = false
	if w.peeking == nil {
		return
	}
	peeking := w.peeking
	_ = c.TCPConn.SetReadDeadline(time.Unix(1, 0))
	c.mu.Unlock()
	<-peeking
	c.mu.Lock()
	w.peeking = nil
	if !c.expired {
		_ = c.TCPConn.SetReadDeadline(time.Time{})
	}
}

// peek runs when the timer fires. It waits for the client to close the connection.
func (c *conn) peek() {
	c.mu.Lock()
	w := &c.watch
	w.armed = false
	if !w.on || w.requests != w.armedFor {
		if w.on {
			c.armLocked()
		}
		c.mu.Unlock()
		return
	}
	peeking := make(chan struct{})
	w.peeking = peeking
	c.mu.Unlock()
	defer close(peeking)
	if !c.awaitDisconnect() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.on {
		w.cancel()
	}
}

// awaitDisconnect waits until the client has closed the connection. It returns false if the
// client sends a byte. It also returns false if a deadline passes: a watch can begin when its
// request is over, and then net/http may have set a deadline that it is about to take back.
func (c *conn) awaitDisconnect() (closed bool) {
	n, err := c.peekByte()
	return n == 0 && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, net.ErrClosed)
}
