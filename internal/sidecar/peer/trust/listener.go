package trust

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

const (
	// maxHandshakes bounds the connections that Accept has not returned yet. Each may be a
	// stranger's, and costs memory and a signature.
	maxHandshakes = 64
	// handshakeTimeout is longer than a dialer waits for its dial and handshake. In TLS 1.3 the handshake ends first
	// for the dialer, which sends its request at once. The request would be lost if a pod without time
	// for the rest of the handshake closed the connection then.
	handshakeTimeout = 10 * time.Second
)

// listener is a net.Listener whose connections come from pods of the server. The handshakes run
// beside each other, so that a slow one holds up no other.
type listener struct {
	net.Listener
	config  *tls.Config
	timeout time.Duration // of a handshake
	log     logr.Logger

	ctx       context.Context // ends when the listener is closed
	cancel    context.CancelFunc
	places    chan struct{} // one for each connection that Accept has not returned yet
	accepted  chan accepted
	running   sync.WaitGroup
	closeOnce sync.Once
}

// accepted is what Accept returns.
type accepted struct {
	conn net.Conn
	err  error
}

// Listen returns a listener that accepts only connections from pods of the server. Each is a
// *tls.Conn that has done its handshake. It closes connections that take too long for the
// handshake, and new ones while too many are at it.
func Listen(inner net.Listener, t *Trust, log logr.Logger) net.Listener {
	return listenWithin(handshakeTimeout, inner, t, log)
}

func listenWithin(timeout time.Duration, inner net.Listener, t *Trust, log logr.Logger) net.Listener {
	l := &listener{
		Listener: inner, config: t.server(), timeout: timeout, log: log,
		places: make(chan struct{}, maxHandshakes), accepted: make(chan accepted),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.running.Go(l.run)
	return l
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case next := <-l.accepted:
		return next.conn, next.err
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. It also closes the connections that Accept has not returned, and
// waits until nothing of them is left.
func (l *listener) Close() error {
	err := net.ErrClosed
	l.closeOnce.Do(func() {
		l.cancel()
		err = l.Listener.Close()
		l.running.Wait()
	})
	return err
}

// run accepts connections until the listener is closed. Accept returns errors to net/http, which
// calls it again after a pause if the error is temporary.
func (l *listener) run() {
	for {
		raw, err := l.Listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			l.cancel() // the owner of the inner listener may have closed that one
			return
		case err != nil:
			if !l.hand(accepted{nil, err}) {
				return
			}
		case !l.enter():
			_ = raw.Close()
		default:
			l.running.Go(func() {
				defer l.leave()
				l.admit(raw)
			})
		}
	}
}

func (l *listener) enter() bool {
	select {
	case l.places <- struct{}{}:
		return true
	default:
		return false
	}
}

func (l *listener) leave() { <-l.places }

// admit has Accept return the connection after its handshake, or closes it.
func (l *listener) admit(raw net.Conn) {
	conn := tls.Server(raw, l.config)
	if err := l.handshake(conn); err != nil {
		_ = raw.Close()
		l.log.V(1).Info("Refuse a connection to the port for peers", "address", raw.RemoteAddr().String(), "reason", err.Error())
		return
	}
	if !l.hand(accepted{conn, nil}) {
		_ = raw.Close()
	}
}

// handshake recovers from panics, as net/http does in the handshakes that it makes: what a stranger
// sends must not end the sessions of clients.
func (l *listener) handshake(conn *tls.Conn) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("shake hands with peer: panic: %v", reason)
			l.log.Error(err, "Lose a connection to the port for peers")
		}
	}()
	ctx, cancel := context.WithTimeout(l.ctx, l.timeout)
	defer cancel()
	return conn.HandshakeContext(ctx)
}

// hand has Accept return something. It returns false if the listener is closed before.
func (l *listener) hand(next accepted) bool {
	select {
	case l.accepted <- next:
		return true
	case <-l.ctx.Done():
		return false
	}
}
