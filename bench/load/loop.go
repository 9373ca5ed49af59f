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
	// Late is by how much a call was sent after it was due, when nothing but the
	// generator was in its way. Without a schedule it is empty.
	Late *histogram.Histogram
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
	l := &loop{failed: make(chan error, len(sessions)), latencies: make([]histogram.Histogram, len(sessions))}
	var working sync.WaitGroup
	for i, session := range sessions {
		working.Go(func() { l.work(i, func(number int) error { return call(session, i, number) }) })
	}
	elapsed, err := l.measure(ctx, timing, mark)
	l.phase.Store(over)
	working.Wait()
	if err == nil && len(l.failed) > 0 {
		err = <-l.failed
	}
	if err != nil {
		return Result{}, err
	}
	return l.result(elapsed, new(histogram.Histogram)), nil
}

type loop struct {
	phase     atomic.Int32
	failed    chan error
	latencies []histogram.Histogram // of each session
}

func (l *loop) result(elapsed time.Duration, late *histogram.Histogram) Result {
	whole := new(histogram.Histogram)
	for i := range l.latencies {
		whole.Merge(&l.latencies[i])
	}
	return Result{Calls: whole.Count(), Elapsed: elapsed, Latencies: whole, Late: late}
}

// work is one session's.
func (l *loop) work(index int, call func(number int) error) {
	begin := time.Now()
	for number := 1; l.phase.Load() != over; number++ {
		if err := call(number); err != nil {
			l.failed <- fmt.Errorf("session %d, call %d: %w", index, number, err)
			return
		}
		end := time.Now()
		if l.phase.Load() == measuring {
			l.latencies[index].Record(end.Sub(begin))
		}
		begin = end
	}
}

func (l *loop) measure(ctx context.Context, timing Timing, mark func() error) (elapsed time.Duration, err error) {
	if err := l.wait(ctx, timing.Warm); err != nil {
		return 0, err
	}
	if err := mark(); err != nil {
		return 0, err
	}
	begin := time.Now()
	l.phase.Store(measuring)
	if err := l.wait(ctx, timing.Measure); err != nil {
		return 0, err
	}
	l.phase.Store(over)
	elapsed = time.Since(begin)
	return elapsed, mark()
}

func (l *loop) wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case err := <-l.failed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
