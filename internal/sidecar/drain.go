package sidecar

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// An adapter ends in this order:
//
//  1. Leave: it still serves everything, new sessions included, and tells clients to connect
//     to other instances, for the settle time.
//  2. Drain: the registry refuses new sessions.
//  3. drainWhenTold: the backend refuses requests of clients without sessions, and ends processes
//     that do nothing for them. Sessions stay if
//     other instances pass requests on to this one, until they end by themselves or the time is
//     nearly up. Then calls in flight finish and sessions end; then requests without sessions
//     finish, because translated sessions make some; then calls finish that it passes on to other
//     instances.
//  4. Serve: the keeper and the spare processes end as soon as the drain is over. HTTP servers
//     close, and then the backend.
//
// A signal to end has sessions without a call in flight end at once. Hurry ends the waiting in all
// of the steps.

// lifecycle has the signals between these steps.
type lifecycle struct {
	hurried    context.Context // ends when a drain waits no longer
	hurry      context.CancelFunc
	hastened   context.Context // ends when a drain waits for calls in flight only
	hasten     context.CancelFunc
	startLeave sync.Once
	leaving    chan struct{}
	startDrain sync.Once
	draining   chan struct{}
	drained    chan struct{}
}

func newLifecycle() lifecycle {
	hurried, hurry := context.WithCancel(context.Background())
	hastened, hasten := context.WithCancel(context.Background())
	return lifecycle{hurried: hurried, hurry: hurry, hastened: hastened, hasten: hasten, leaving: make(chan struct{}), draining: make(chan struct{}), drained: make(chan struct{})}
}

// Leave is for an instance that goes away. It returns at once. The adapter serves everything,
// new sessions included, for the settle time: until then proxies and clients may not know the
// other instances. Then it drains. An adapter that was never ready has no clients, and drains
// at once. Further calls do nothing.
func (a *Adapter) Leave() { a.startLeave.Do(func() { close(a.leaving) }) }

// Drain begins to drain, and returns at once. Further calls do nothing.
func (a *Adapter) Drain() {
	a.Leave()
	a.startDrain.Do(func() {
		// Before any answer says that the instance goes away: a session that a client opened
		// after that would end at once.
		a.env.Sessions.Refuse()
		close(a.draining)
	})
}

// Hurry ends the waiting of a drain: the adapter answers calls in flight with an error. Processes
// still have time to end by themselves.
func (a *Adapter) Hurry() { a.hurry() }

// Drained returns a channel that is closed when a drain is over.
func (a *Adapter) Drained() <-chan struct{} { return a.drained }

// settle drains after the settle time of an adapter that leaves.
func (a *Adapter) settle(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-a.leaving:
	}
	if state, _ := a.env.Keeper.State(); state.Catalog != nil && a.env.SettleTime > 0 {
		a.env.Log.Info("Going away; serving clients until they know", "for", a.env.SettleTime.String())
		select {
		case <-ctx.Done():
			return
		case <-a.draining:
		case <-a.hurried.Done():
		case <-time.After(a.env.SettleTime):
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
	defer close(a.drained)
	d := newDrainTime(ctx, a.env.DrainTimeout)
	defer d.stop()
	defer context.AfterFunc(a.hurried, d.stop)()
	defer context.AfterFunc(a.hastened, d.hasten)()
	if a.peers == nil {
		d.hasten() // clients reach the sessions only as before
	} else {
		defer a.peers.drain(d)()
	}
	a.env.Log.Info("Draining; a second SIGINT or SIGTERM ends at once", "sessions", a.env.Sessions.Len(), "timeout", d.String())
	a.backend.Refuse()
	a.env.Sessions.Stay(d.stay)
	a.env.Sessions.Part(d.part, d.spread())
	a.env.Sessions.Drain(d.over)
	a.backend.Drain(d.over)
}

// drainLinger is how long a drained adapter waits for the signal to end. The kubelet sends it
// within seconds, once the hook of the server's container has returned.
const drainLinger = 30 * time.Second

// awaitEnd waits for the signal to end after a drain. Without one the pod does not go away: a
// container was restarted in place, or a process in the server's container has asked for the
// drain. The error ends the adapter, and the kubelet starts it again.
func awaitEnd(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(drainLinger):
		return fmt.Errorf("serve: drained %s ago and not told to end", drainLinger)
	}
}
