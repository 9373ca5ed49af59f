package listener

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
)

// acceptor is a net.Listener whose connections belong to a Server. It hands a connection to
// net/http when its client has sent the first byte. Until then the connection costs a small
// goroutine and no buffers: with the buffers of net/http, clients that open thousands of
// connections and send nothing kept the garbage collector so busy that other clients noticed.
type acceptor struct {
	net.Listener
	conns  *connections
	refuse func(*net.TCPConn) // answers a client for whose connection there is no room; nil closes it without an answer, as below TLS

	accepted  chan accepted
	closed    chan struct{}
	closeOnce sync.Once
}

// accepted is what Accept returns.
type accepted struct {
	conn net.Conn
	err  error
}

func newAcceptor(l net.Listener, conns *connections) *acceptor {
	return &acceptor{Listener: l, conns: conns, accepted: make(chan accepted), closed: make(chan struct{})}
}

// Accept implements net.Listener. The method run must run at the same time.
func (a *acceptor) Accept() (net.Conn, error) {
	select {
	case next := <-a.accepted:
		return next.conn, next.err
	case <-a.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. It also closes the connections whose client has sent nothing.
func (a *acceptor) Close() error {
	err := net.ErrClosed
	a.closeOnce.Do(func() {
		close(a.closed)
		err = a.Listener.Close()
		for _, c := range a.conns.silent() {
			_ = c.Close()
		}
	})
	return err
}

// run accepts connections until the listener is closed. Connections other than TCP have no
// limit. Accept returns errors to net/http, which calls it again after a pause if the error is
// temporary.
func (a *acceptor) run() {
	for {
		next, err := a.Listener.Accept()
		tcp, ok := next.(*net.TCPConn)
		switch {
		case errors.Is(err, net.ErrClosed):
			a.hand(nil, err)
			return
		case !ok:
			a.hand(next, err)
		default:
			a.admit(tcp)
		}
	}
}

func (a *acceptor) admit(tcp *net.TCPConn) {
	c := &conn{TCPConn: tcp, conns: a.conns, address: caller.ShareOf(tcp.RemoteAddr().(*net.TCPAddr).IP.String())}
	c.silent.Store(true)
	_ = c.SetReadDeadline(time.Now().Add(HeaderTimeout))
	if !a.conns.admit(c) {
		if a.refuse != nil {
			a.refuse(tcp)
		}
		_ = tcp.Close()
		return
	}
	go a.awaitFirstByte(c)
}

// awaitFirstByte hands a connection to net/http when there is something to read. It closes a
// connection whose client sends nothing within HeaderTimeout.
func (a *acceptor) awaitFirstByte(c *conn) {
	if !a.isClosed() { // Close may have looked for silent connections before this one was there
		if n, _ := c.peekByte(); n > 0 || c.hasByte() { // a byte can arrive with the deadline
			c.silent.Store(false)
			c.revive()
			a.hand(c, nil)
			return
		}
	}
	_ = c.Close() // the client has left, or has sent nothing for too long
}

func (a *acceptor) isClosed() bool {
	select {
	case <-a.closed:
		return true
	default:
		return false
	}
}

// hand has Accept return a connection or an error.
func (a *acceptor) hand(c net.Conn, err error) {
	select {
	case a.accepted <- accepted{c, err}:
	case <-a.closed:
		if c != nil {
			_ = c.Close()
		}
	}
}
