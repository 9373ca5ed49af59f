package relay

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slipway-mcp/slipway/internal/sidecar/peer/trust"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
)

const (
	// keepAlive is how long a connection is silent before the kernel asks whether the pod has it still.
	keepAlive = 5 * time.Second
	// unacknowledged is how long the pod's kernel may leave data unacknowledged. Newer kernels seem to
	// count a window that stays closed, so less would cut requests to pods that read slowly.
	unacknowledged = 30 * time.Second
)

var dialer = net.Dialer{
	KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepAlive, Interval: keepAlive, Count: 3},
	Control: func(_, _ string, raw syscall.RawConn) error {
		var setErr error
		err := raw.Control(func(fd uintptr) {
			setErr = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unacknowledged.Milliseconds()))
		})
		return errors.Join(err, setErr)
	},
}

func dialTCP(ctx context.Context, address netip.AddrPort) (net.Conn, error) {
	return dialer.DialContext(ctx, "tcp", address.String())
}

// dial connects to a pod, and makes certain that it is the one. Its errors are of type *DialError.
func (r *Relay) dial(ctx context.Context, to sessionid.Owner) (*conn, error) {
	ctx, cancel := within(ctx, r.options.DialTimeout)
	defer cancel()
	c, outcome, err := r.connect(ctx, to)
	if r.over.Err() != nil {
		outcome, err = Busy, errClosed
		if c != nil {
			c.close()
		}
	}
	if !errors.Is(context.Cause(ctx), context.Canceled) { // otherwise the pod had no time to answer
		r.counts.dials[outcome].Add(1)
	}
	if err != nil {
		return nil, &DialError{Outcome: outcome, Err: err}
	}
	return c, nil
}

// Reach reports whether a pod can be connected to. The error is a *DialError if not.
func (r *Relay) Reach(ctx context.Context, to sessionid.Owner) error {
	c, err := r.dial(ctx, to)
	if err != nil {
		return err
	}
	c.close()
	return nil
}

func (r *Relay) connect(ctx context.Context, to sessionid.Owner) (*conn, Outcome, error) {
	raw, err := r.options.Dial(ctx, to.Address)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, Refused, err
	case errors.Is(err, syscall.ECONNRESET): // the pod closed the connection before this pod had noticed that it was there
		return nil, Unready, err
	case isOwnLimit(err):
		return nil, Busy, err
	case err != nil:
		return nil, Unreachable, err
	}
	secure, err := r.options.Handshake(ctx, raw, to.UID)
	switch {
	case errors.Is(err, trust.ErrStranger):
		return nil, Stranger, err
	case err != nil:
		return nil, Unready, err // the kernel of the pod has answered, so its node is there
	}
	return r.newConn(raw, secure), Connected, nil
}

// isOwnLimit reports whether this pod could not even try to connect.
func isOwnLimit(err error) bool {
	for _, limit := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL, syscall.EAGAIN} {
		if errors.Is(err, limit) {
			return true
		}
	}
	return false
}
