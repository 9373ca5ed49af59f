package sidecar

import (
	"context"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/peer/roster"
)

const (
	// farewell is how long before its deadline a drain begins to end the sessions that stay. Their servers have that
	// time to end, and clients find out while the pod can still tell them.
	farewell = 5 * time.Second
	// partingTenths of it, which is 2 s, are for these sessions to end in, one after the other.
	partingTenths = 4
	// closingTimeout is for calls in flight when all pods of the server end.
	closingTimeout = time.Minute
	// mostDrainSeconds is longer than any drain, and far from what a time.Duration cannot hold.
	mostDrainSeconds = 1 << 30
)

// drainTime is how long a drain lasts. It can become shorter, and never longer.
type drainTime struct {
	begin time.Time
	// The phases of a drain end with these contexts, stay first: sessions stay; those without a call in flight end one
	// after the other; these end at once.
	stay, part, over context.Context
	hasten           context.CancelFunc // ends stay and part
	stop             context.CancelFunc // ends all
	stayed, passed   *time.Timer        // end stay and over

	mu      sync.Mutex
	timeout time.Duration // from begin to the deadline
	closing bool
}

// newDrainTime begins a drain. It ends all phases with the context. The caller calls stop when it is done.
func newDrainTime(ctx context.Context, timeout time.Duration) *drainTime {
	d := &drainTime{begin: time.Now(), timeout: timeout}
	d.over, d.stop = context.WithCancel(ctx)
	d.part, d.hasten = context.WithCancel(d.over)
	stay, endStay := context.WithCancel(d.part)
	d.stay = stay
	d.stayed, d.passed = time.AfterFunc(timeout-farewell, endStay), time.AfterFunc(timeout, d.stop)
	context.AfterFunc(d.over, func() {
		d.stayed.Stop()
		d.passed.Stop()
	})
	return d
}

// spread is how long sessions take to end one after the other: a part of the time that is left.
func (d *drainTime) spread() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := max(d.timeout-time.Since(d.begin), 0)
	return min(left, farewell) * partingTenths / 10
}

// obey shortens the drain as the manager wants. It reports whether that changed anything.
func (d *drainTime) obey(said roster.Ending) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	timeout := d.timeout
	if said.Seconds > 0 {
		timeout = min(timeout, time.Duration(min(said.Seconds, mostDrainSeconds))*time.Second)
	}
	closes := said.Closing && !d.closing
	if closes {
		d.closing = true
		d.hasten()
		timeout = min(timeout, time.Since(d.begin)+closingTimeout)
	}
	if timeout < d.timeout {
		d.timeout = timeout
		left := timeout - time.Since(d.begin)
		d.stayed.Reset(left - farewell)
		d.passed.Reset(left)
		return true
	}
	return closes
}

// String is the whole time of the drain.
func (d *drainTime) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.timeout.Round(time.Millisecond).String()
}
