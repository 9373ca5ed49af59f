package sidecar

import (
	"context"
	"net"
	"syscall"
	"time"
)

// lookout learns when the client of a connection goes away while its request is answered.
// net/http reads a single byte for that, in a goroutine of its own, as soon as it has the
// request. Nearly all requests are answered before that read is of any use: then net/http
// ends it by a deadline, and waits for the goroutine. That took 5 % of the CPU of a small
// call. So the lookout answers that read at once with nothing, and looks by itself, but only
// while a request takes long.
type lookout struct {
	gone func() // ends the context of the connection; nil leaves everything to net/http

	on       bool          // a request is answered, as far as reads show
	requests uint64        // that were answered, and the current one
	alarm    *time.Timer   // made for the first request
	armed    bool          // alarm is due
	armedFor uint64        // the request that the alarm is for
	looking  chan struct{} // closed when look returns; nil if it does not run
}

// lookAfter is how long a request is answered before the lookout begins. It may also take
// twice as long: the alarm of a request serves all that follow.
const lookAfter = 5 * time.Millisecond

// watchClients is an http.Server's ConnContext.
func watchClients(ctx context.Context, conn net.Conn) context.Context {
	c, ok := conn.(*patientConn)
	if !ok {
		return ctx
	}
	ctx, c.watch.gone = context.WithCancel(ctx)
	return ctx
}

// Read is that of net.Conn. Reads of a single byte are nearly always those of net/http that
// learn when the client goes away. Of two in a row the second one reads, so that a reader
// that wants a single byte gets it.
func (c *patientConn) Read(p []byte) (int, error) {
	if len(p) == 1 && c.beginLookout() {
		return 0, nil
	}
	c.endLookout()
	if len(p) >= bulkBytes {
		return c.readBulk(p)
	}
	return c.TCPConn.Read(p)
}

// beginLookout says whether the lookout is on, and was not before.
func (c *patientConn) beginLookout() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &c.watch
	if l.gone == nil || l.on {
		return false
	}
	l.on = true
	l.requests++
	if !l.armed {
		c.armLocked()
	}
	return true
}

func (c *patientConn) armLocked() {
	l := &c.watch
	l.armed, l.armedFor = true, l.requests
	if l.alarm == nil {
		l.alarm = time.AfterFunc(lookAfter, c.look)
	} else {
		l.alarm.Reset(lookAfter)
	}
}

// endLookout waits until look returns: the next byte belongs to a request.
func (c *patientConn) endLookout() {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &c.watch
	l.on = false
	if l.looking == nil {
		return
	}
	looking := l.looking
	_ = c.TCPConn.SetReadDeadline(time.Unix(1, 0))
	c.mu.Unlock()
	<-looking
	c.mu.Lock()
	l.looking = nil
	if !c.ended {
		_ = c.TCPConn.SetReadDeadline(time.Time{})
	}
}

// look runs when the alarm is due.
func (c *patientConn) look() {
	c.mu.Lock()
	l := &c.watch
	l.armed = false
	if !l.on || l.requests != l.armedFor {
		if l.on {
			c.armLocked()
		}
		c.mu.Unlock()
		return
	}
	looking := make(chan struct{})
	l.looking = looking
	c.mu.Unlock()
	defer close(looking)
	if !c.awaitEnd() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.on {
		l.gone()
	}
}

// awaitEnd waits until the client has closed the connection. It returns false if the client
// sends something, which it leaves where it is, or a deadline passes: net/http may have set
// one that is about to be taken back, since a lookout can begin when its request is over.
func (c *patientConn) awaitEnd() (gone bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return false // it is closed on our side
	}
	var into [1]byte
	err = raw.Read(func(fd uintptr) bool {
		for {
			n, _, err := syscall.Recvfrom(int(fd), into[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			switch err {
			case syscall.EINTR:
				continue
			case syscall.EAGAIN:
				return false
			}
			gone = err != nil || n == 0
			return true
		}
	})
	return gone && err == nil
}
