package listener

import (
	"net"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
)

// Bounded returns a listener with a limit on its open connections, whatever they are used for. It closes connections
// beyond the limit at once. It is for connections that a Server cannot tell apart, because TLS is between.
func Bounded(l net.Listener, limit int, log logr.Logger) net.Listener {
	return &bounded{Listener: l, limit: int64(limit), log: log}
}

type bounded struct {
	net.Listener
	limit int64
	open  atomic.Int64
	log   logr.Logger
}

// Accept implements net.Listener.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if b.open.Add(1) <= b.limit {
			return &counted{Conn: c, leave: sync.OnceFunc(func() { b.open.Add(-1) })}, nil
		}
		b.open.Add(-1)
		_ = c.Close()
		b.log.V(1).Info("Refuse a connection", "address", c.RemoteAddr().String(), "reason", "as many are open as may be", "limit", b.limit)
	}
}

// counted is a connection that leaves its place when it is closed.
type counted struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
