package mux

import (
	"context"
	"fmt"
	"time"
)

// Pace is how tries follow failures in a row: the first that costs anything costs First,
// each one after it twice as much, and none more than Last.
type Pace struct {
	First, Last time.Duration
	Free        int // failures that cost nothing
}

var (
	// OnDemand is the pace of what a client asks for. The first failure costs nothing: the
	// client tries again at once, and many processes end for a reason that ends with them.
	OnDemand = Pace{First: time.Second, Last: 30 * time.Second, Free: 1}
	// Background is the pace of what the adapter repeats by itself, where a failure that
	// costs nothing would be a busy loop.
	Background = Pace{First: time.Second, Last: 30 * time.Second}
)

// Lasting is how long a process must have lasted, its start included, for its end to be no
// reason to wait with the next: starts that are as far apart as this are no load.
const Lasting = 10 * time.Second

// After is how long to wait after so many failures in a row.
func (p Pace) After(failures int) time.Duration {
	if failures <= p.Free {
		return 0
	}
	wait := p.First
	for range failures - p.Free - 1 {
		if wait >= p.Last {
			break
		}
		wait *= 2
	}
	return min(wait, p.Last)
}

// BackOff counts failures in a row and says when to try again. The zero value has none.
// It has no lock of its own.
type BackOff struct {
	failures int
	retryAt  time.Time
	last     error
}

// Failed counts a failure, and returns how long to wait before the next try.
func (b *BackOff) Failed(reason error, pace Pace) time.Duration {
	b.failures++
	wait := pace.After(b.failures)
	b.last, b.retryAt = reason, time.Now().Add(wait)
	return wait
}

// Reset forgets all failures.
func (b *BackOff) Reset() { *b = BackOff{} }

// Wait is how long it is until the next try. It is negative if that is overdue.
func (b *BackOff) Wait() time.Duration { return time.Until(b.retryAt) }

// Err says why nothing is started now; it is nil if there is no need to wait.
func (b *BackOff) Err() error {
	if wait := b.Wait(); wait > 0 {
		return fmt.Errorf("the next start is in %s, because of the last: %w", wait.Round(time.Millisecond), b.last)
	}
	return nil
}

// Pause waits between two tries, and says whether there should be another: the context has
// not ended.
func Pause(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
