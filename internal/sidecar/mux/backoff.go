package mux

import (
	"context"
	"fmt"
	"time"
)

// Pace says how long to wait after failures in a row. The wait is First, and doubles with each failure
// up to Last.
type Pace struct {
	First, Last time.Duration
	Free        int // failures without a wait
}

var (
	// OnDemand is the pace of starts that clients ask for. The first failure costs no wait, because
	// many processes end for a reason that the next one does not have.
	OnDemand = Pace{First: time.Second, Last: 30 * time.Second, Free: 1}
	// Background is the pace of tries that the adapter makes by itself. A failure without a wait would
	// be a busy loop.
	Background = Pace{First: time.Second, Last: 30 * time.Second}
)

// Lasting is how long a process must have lasted, with its start, for the next one to start at once.
// Starts that are this far apart are no load.
const Lasting = 10 * time.Second

// After returns how long to wait after so many failures in a row.
func (p Pace) After(failures int) time.Duration {
	if failures <= p.Free {
		return 0
	}
	wait := p.First
	for i := p.Free + 1; i < failures && wait < p.Last; i++ {
		wait *= 2
	}
	return min(wait, p.Last)
}

// BackOff counts failures in a row and says when to try again. The zero value has none. Its user must
// guard it.
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

// Wait returns the time until the next try. It is negative if the try is overdue.
func (b *BackOff) Wait() time.Duration { return time.Until(b.retryAt) }

// Err returns why to wait, or nil if there is no need to wait.
func (b *BackOff) Err() error {
	if wait := b.Wait(); wait > 0 {
		return fmt.Errorf("the next start is in %s, because of the last: %w", wait.Round(time.Millisecond), b.last)
	}
	return nil
}

// Pause waits. It returns false if the context ends meanwhile.
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
