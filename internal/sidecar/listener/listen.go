// Package listener serves HTTP on ports that any client can reach. It bounds the open
// connections, keeps read deadlines and notices clients that go away at less cost than
// net/http does by itself, and has large bodies leave the processors to small calls.
package listener

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/front"
)

// Listen opens a TCP port. The kernel closes connections to peers that vanish without a FIN
// or RST packet.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	return ListenWith(ctx, address, front.KeepAliveInterval, front.WriteTimeout)
}

// ListenWith is Listen with other times. The kernel probes a peer that was silent for the
// first one. It closes a connection whose peer does not acknowledge data within the second.
func ListenWith(ctx context.Context, address string, silence, unacknowledged time.Duration) (net.Listener, error) {
	config := net.ListenConfig{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: silence, Interval: silence / 3, Count: 3},
		Control: func(_, _ string, raw syscall.RawConn) error {
			const tcpUserTimeout = 18 // Connections inherit it from the listener.
			var setErr error
			err := raw.Control(func(fd uintptr) {
				setErr = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(unacknowledged.Milliseconds()))
			})
			return errors.Join(err, setErr)
		},
	}
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err // it names the address
	}
	return listener, nil
}
