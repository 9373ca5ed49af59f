package sidecar

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/listener"
)

// Serve serves clients and administrators until the context ends, then drains:
// calls in flight may finish within the drain timeout, and no new session is opened.
func (a *Adapter) Serve(ctx context.Context, clients, administrators net.Listener) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	// After the drain the server's container ends, and no process is missed any more.
	useful, drained := context.WithCancel(background)
	var running sync.WaitGroup
	running.Go(func() { a.backend.run(useful) })
	running.Go(func() { a.keeper.Run(useful) })
	running.Go(func() { a.findEra(useful) })
	running.Go(func() { a.sessions.Run(background) })
	running.Go(func() { budget.TuneHeap(background) })
	running.Go(func() { a.settle(background) })
	running.Go(func() {
		a.drainWhenTold(background)
		drained()
	})

	running.Go(func() { a.clients.Run(background) })
	running.Go(func() { a.admin.Run(background) })
	running.Go(func() { a.config.Keys.Run(background, a.config.Log.WithName("keys")) })
	running.Go(func() { a.config.Settings.Run(background) })
	failed := make(chan error, 2)
	go func() { failed <- a.clients.Serve(clients) }()
	go func() { failed <- a.admin.Serve(administrators) }()

	var err error
	select {
	case err = <-failed:
		err = fmt.Errorf("serve: %w", err)
	case <-a.draining:
		<-a.drained
		err = awaitEnd(ctx)
	case <-ctx.Done():
		a.Drain()
		<-a.drained
	}
	// Answers that were given a moment ago are still on their way.
	closing, cancel := context.WithTimeout(background, listener.HeaderTimeout)
	defer cancel()
	defer context.AfterFunc(a.hurried, func() { _ = a.clients.Close() })()
	err = errors.Join(err, a.clients.Shutdown(closing), a.admin.Close())
	stop()
	running.Wait()
	a.backend.eras.close()
	a.backend.close()
	return err
}

// awaitEnd waits to be told to end after a drain. A drain that nothing follows was
// not that of a pod that goes away: a container was restarted in place, or somebody in
// the server's container asked for it. Whoever runs the adapter then starts it afresh.
func awaitEnd(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(drainLinger):
		return fmt.Errorf("serve: drained %s ago and not told to end", drainLinger)
	}
}

// Leave is for an instance that goes away. It returns at once. The adapter serves
// everything, new sessions included, for the settle time: until then proxies and
// clients may not know that there are other instances. Then it drains. An adapter that was
// never ready has no clients, and drains at once. Further calls do nothing.
func (a *Adapter) Leave() { a.startLeave.Do(func() { close(a.leaving) }) }

// Drain begins to drain, and returns at once. Further calls do nothing.
func (a *Adapter) Drain() {
	a.Leave()
	a.startDrain.Do(func() {
		// Before any answer says that the instance goes away: a session that is opened after
		// that would end at once.
		a.sessions.Refuse()
		close(a.draining)
	})
}

// Hurry has a drain wait for nothing any more: calls in flight are answered with an
// error. Processes still end gently.
func (a *Adapter) Hurry() { a.hurry() }

// Drained is closed when no session is left after a drain was begun.
func (a *Adapter) Drained() <-chan struct{} { return a.drained }

// settle drains when it is time to, after the adapter was told to leave.
func (a *Adapter) settle(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-a.leaving:
	}
	if state, _ := a.keeper.State(); state.Catalog != nil && a.config.SettleTime > 0 {
		a.config.Log.Info("Going away; serving clients until they know", "for", a.config.SettleTime.String())
		select {
		case <-ctx.Done():
			return
		case <-a.draining:
		case <-a.hurried.Done():
		case <-time.After(a.config.SettleTime):
		}
	}
	a.Drain()
}

func (a *Adapter) drainWhenTold(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-a.draining:
	}
	a.config.Log.Info("Draining; a second SIGINT or SIGTERM ends at once", "sessions", a.sessions.Len(), "timeout", a.config.DrainTimeout.String())
	defer close(a.drained)
	ctx, cancel := context.WithTimeout(ctx, a.config.DrainTimeout)
	defer cancel()
	defer context.AfterFunc(a.hurried, cancel)()
	a.backend.eras.stateless.Refuse()
	a.backend.eras.drain(ctx, a.sessions.Drain)
}
