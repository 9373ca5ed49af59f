// Package forward leads from a port of this machine's loopback to wherever a test can connect, for programs
// that know nothing of the test's own way there.
package forward

import (
	"context"
	"errors"
	"io"
	"net"
)

// Listen connects every connection to a port of the loopback by dial, and returns the port's address. The function
// failed, which may be nil, gets those for which dial has failed, before they are closed.
func Listen(ctx context.Context, dial func(context.Context) (net.Conn, error), failed func(net.Conn, error)) (address string, end func() error, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	go func() {
		for {
			local, err := listener.Accept()
			if err != nil {
				return // It was closed.
			}
			go join(ctx, local, dial, failed)
		}
	}()
	return listener.Addr().String(), listener.Close, nil
}

func join(ctx context.Context, local net.Conn, dial func(context.Context) (net.Conn, error), failed func(net.Conn, error)) {
	defer func() { _ = local.Close() }()
	remote, err := dial(ctx)
	if err != nil {
		if failed != nil {
			failed(local, err)
		}
		return // The client sees that it is not connected.
	}
	defer func() { _ = remote.Close() }()
	done := make(chan struct{})
	go func() {
		defer close(done)
		pass(local, remote)
	}()
	pass(remote, local)
	<-done
}

// pass copies until the end, and passes the end on.
func pass(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); err != nil || !ok || half.CloseWrite() != nil {
		_ = errors.Join(to.Close(), from.Close()) // Neither way makes sense any more.
	}
}
