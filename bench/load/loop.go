package load

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slipway-mcp/slipway/bench/histogram"
)

// Timing says for how long a loop runs.
type Timing struct {
	Warm, Measure time.Duration
}

// Result is what was measured of a loop.
type Result struct {
	Calls     uint64
	Elapsed   time.Duration
	Latencies *histogram.Histogram
}

// Rate is calls a second.
func (r Result) Rate() float64 { return float64(r.Calls) / r.Elapsed.Seconds() }

// The phases of a loop.
const (
	warming int32 = iota
	measuring
	over
)

// Loop has every session call as fast as it is answered, warms up, and measures what is
// answered in the time after that. mark is called when measuring begins and ends. The
// first error ends it all: a bridge that fails has no speed.
func Loop(ctx context.Context, sessions []Session, timing Timing, call func(session Session, index, number int) error, mark func() error) (Result, error) {
	var phase atomic.Int32
	failed := make(chan error, len(sessions))
	latencies := make([]histogram.Histogram, len(sessions))
	var working sync.WaitGroup
	for i, session := range sessions {
		working.Go(func() {
			begin := time.Now()
			for number := 1; phase.Load() != over; number++ {
				if err := call(session, i, number); err != nil {
					failed <- fmt.Errorf("session %d, call %d: %w", i, number, err)
					return
				}
				end := time.Now()
				if phase.Load() == measuring {
					latencies[i].Record(end.Sub(begin))
				}
				begin = end
			}
		})
	}
	wait := func(d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case err := <-failed:
			return err
		case <-ctx.Done():
			return ctx.Err() //nolint:wrapcheck // Who cancels knows why.
		}
	}
	measure := func() (elapsed time.Duration, err error) {
		if err := wait(timing.Warm); err != nil {
			return 0, err
		}
		if err := mark(); err != nil {
			return 0, err
		}
		begin := time.Now()
		phase.Store(measuring)
		if err := wait(timing.Measure); err != nil {
			return 0, err
		}
		phase.Store(over)
		elapsed = time.Since(begin)
		return elapsed, mark()
	}
	elapsed, err := measure()
	phase.Store(over)
	working.Wait()
	if err == nil && len(failed) > 0 {
		err = <-failed
	}
	if err != nil {
		return Result{}, err
	}
	whole := new(histogram.Histogram)
	for i := range latencies {
		whole.Merge(&latencies[i])
	}
	return Result{Calls: whole.Count(), Elapsed: elapsed, Latencies: whole}, nil
}
