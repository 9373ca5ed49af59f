package listener

import (
	"errors"
	"net/http"
	"syscall"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// The Server ends connections without a request in flight: to make room, when a deadline passes and
// when it shuts down. A request can arrive at that moment, or wait in the kernel because no goroutine
// has had the time to read it. The client cannot tell a request that was lost in this way from one
// that was executed, so it reports an error.
//
// The Server therefore does not close such a connection itself. It expires the read deadline, and the
// goroutine that waits for a request looks for bytes once more before it gives up. No other goroutine
// can tell whether a request has arrived: one that was just read is neither in the kernel nor in
// flight yet. With TLS, that goroutine reads from the kernel only when no whole record is left
// in its buffers, so the same look suffices.
//
// A request that reaches the kernel after that look is lost. HTTP/1.1 has no way to avoid that on the
// side of the server, except to announce the end in an earlier response.

// retire ends a connection without a request in flight, unless a request has arrived.
func (c *conn) retire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retired.Store(true) // before it looks at the state: recordState changes the state before it looks at this
	if c.is(http.StateActive) {
		c.retired.Store(false)
		return
	}
	c.expired = true
	_ = c.TCPConn.SetReadDeadline(time.Unix(1, 0)) // fails only if it is closed
}

// revive has a connection wait for bytes again, until its deadline.
func (c *conn) revive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retired.Store(false)
	if c.expired {
		c.expired = false
		_ = c.TCPConn.SetReadDeadline(time.Time{}) // fails only if it is closed
	}
}

// readLast is for a read without a request in flight that a deadline has ended. It reads what has
// arrived since, and returns the error of the deadline if that is nothing.
func (c *conn) readLast(p []byte, expired error) (n int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, expired
	}
	if raw.Control(func(fd uintptr) { n, err = rpc.ReadNow(fd, p) }) != nil || err != nil {
		return 0, expired
	}
	c.revive()
	return n, nil
}

// peekByte waits until the client has sent a byte, and leaves the byte in the kernel. It
// returns no byte and no error if the client has closed the connection.
func (c *conn) peekByte() (n int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peekErr error
	err = raw.Read(func(fd uintptr) bool {
		n, peekErr = peek(fd)
		return !errors.Is(peekErr, syscall.EAGAIN)
	})
	if err != nil { // the server has closed the connection, or a deadline has passed
		return 0, err
	}
	return n, peekErr
}

// hasByte reports whether the client has sent bytes that no read has taken yet, whatever the
// deadline.
func (c *conn) hasByte() bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	err = raw.Control(func(fd uintptr) { n, _ = peek(fd) })
	return err == nil && n > 0
}

// peek looks for a byte in the kernel. Without any it returns EAGAIN, and at the end no byte and no
// error.
func peek(fd uintptr) (n int, err error) {
	var into [1]byte
	for {
		n, _, err = syscall.Recvfrom(int(fd), into[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		if !errors.Is(err, syscall.EINTR) {
			return max(n, 0), err
		}
	}
}
