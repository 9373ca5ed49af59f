package sidecar

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/slipway-mcp/slipway/internal/sidecar/listener"
)

// Ports are where an adapter listens.
type Ports struct {
	Clients, Admin net.Listener
	Peers          net.Listener // nil unless the configuration has peers
}

// Serve serves clients, administrators and other instances until the context ends, and then drains: calls in
// flight may finish within the drain timeout, and no new session is opened.
func (a *Adapter) Serve(ctx context.Context, ports Ports) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	// After the drain, the server's container ends, and the adapter replaces no process.
	useful, drained := context.WithCancel(background)
	var running sync.WaitGroup
	running.Go(func() { a.backend.Run(useful) })
	running.Go(func() { a.env.Keeper.Run(useful) })
	running.Go(func() { a.env.Sessions.Run(background) })
	running.Go(func() { a.tuneHeap(background) })
	running.Go(func() { a.settle(background) })
	running.Go(func() {
		a.drainWhenTold(background)
		drained()
	})
	running.Go(func() { a.clients.Run(background) })
	running.Go(func() { a.admin.Run(background) })
	running.Go(func() { a.env.Keys.Run(background, a.env.Log.WithName("keys")) })
	running.Go(func() { a.env.Settings.Run(background) })
	running.Go(func() { a.env.Access.Run(background) })
	failed := make(chan error, 3)
	go func() { failed <- a.clients.Serve(ports.Clients) }()
	go func() { failed <- a.admin.Serve(ports.Admin) }()
	if a.peers != nil {
		running.Go(func() { a.peers.server.Run(background) })
		running.Go(func() { a.peers.rest(background, a.backend.Rest) })
		running.Go(func() { a.peers.news.Run(useful) })
		go func() { failed <- a.peers.serve(ports.Peers) }()
	}

	var err error
	select {
	case err = <-failed:
		err = fmt.Errorf("serve: %w", err)
	case <-a.draining:
		defer context.AfterFunc(ctx, a.hasten)()
		<-a.drained
		err = awaitEnd(ctx)
	case <-ctx.Done():
		a.hasten()
		a.Drain()
		<-a.drained
	}
	// Answers of the last moment are still on their way to clients.
	closing, cancel := context.WithTimeout(background, listener.HeaderTimeout)
	defer cancel()
	defer context.AfterFunc(a.hurried, func() { _ = a.clients.Close() })()
	err = errors.Join(err, a.clients.Shutdown(closing), a.peers.close(background), a.admin.Close())
	stop()
	running.Wait()
	a.backend.Close()
	return err
}
