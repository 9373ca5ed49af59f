package load

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slipway-mcp/slipway/bench/histogram"
)

// overdue is how far behind its schedule a system may fall before that is an error.
const overdue = 5 * time.Second

var errOverdue = fmt.Errorf("calls are answered more than %s after they were due", overdue)

// Paced has the sessions make so many calls a second together, at moments that are fixed
// before anything is sent. A call's latency begins when it is due: what a stalled system
// keeps from being sent counts as well, which a closed loop leaves out. mark is called
// when measuring begins and ends.
func Paced(ctx context.Context, sessions []Session, rate float64, timing Timing, call func(session Session, index, number int) error, mark func() error) (Result, error) {
	p := &pacer{
		loop:     loop{failed: make(chan error, len(sessions)), latencies: make([]histogram.Histogram, len(sessions))},
		late:     make([]histogram.Histogram, len(sessions)),
		interval: time.Duration(float64(len(sessions)) / rate * float64(time.Second)),
		timing:   timing,
	}
	var working sync.WaitGroup
	for i, session := range sessions {
		// They take turns, so that calls are due evenly.
		offset := p.interval * time.Duration(i+1) / time.Duration(len(sessions))
		working.Go(func() {
			if err := p.work(i, offset, func(number int) error { return call(session, i, number) }); err != nil {
				p.failed <- fmt.Errorf("session %d: %w", i, err)
			}
		})
	}
	elapsed, err := p.measure(ctx, timing, mark)
	p.stopped.Store(err != nil)
	working.Wait()
	if err == nil && len(p.failed) > 0 {
		err = <-p.failed
	}
	if err != nil {
		return Result{}, err
	}
	late := new(histogram.Histogram)
	for i := range p.late {
		late.Merge(&p.late[i])
	}
	return p.result(elapsed, late), nil
}

type pacer struct {
	loop
	late     []histogram.Histogram // by how much we were late, of each session
	interval time.Duration         // between two calls of a session
	timing   Timing
	stopped  atomic.Bool // something went wrong
}

// work makes one session's calls. All that are due while we measure are waited for.
func (p *pacer) work(index int, offset time.Duration, call func(number int) error) (err error) {
	ticks, err := newTicks(offset, p.interval)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ticks.file.Close()) }()
	begin := ticks.started.Add(p.timing.Warm)
	end := begin.Add(p.timing.Measure)
	due := ticks.started.Add(offset)
	for number := 1; due.Before(end) && !p.stopped.Load(); number++ {
		waited, err := ticks.wait()
		if err != nil {
			return err
		}
		sent := time.Now()
		if err := call(number); err != nil {
			return fmt.Errorf("call %d: %w", number, err)
		}
		answered := time.Now()
		if answered.Sub(due) > overdue {
			return errOverdue
		}
		if !due.Before(begin) {
			p.latencies[index].Record(answered.Sub(due))
			if waited {
				p.late[index].Record(sent.Sub(due))
			}
		}
		due = due.Add(p.interval)
	}
	return nil
}

// ticks is a timer of the kernel's, which a goroutine can wait for like for a
// connection. The runtime's own timers come up to a millisecond late when nothing else
// happens, which is more than most calls take.
type ticks struct {
	file    *os.File
	started time.Time
	left    uint64 // that have passed and were not waited for
}

func newTicks(first, interval time.Duration) (*ticks, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make timer: %w", err)
	}
	t := &ticks{file: os.NewFile(uintptr(fd), "timer"), started: time.Now()}
	setting := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(first)), Interval: unix.NsecToTimespec(int64(interval))}
	if err := unix.TimerfdSettime(fd, 0, &setting, nil); err != nil {
		return nil, errors.Join(fmt.Errorf("set timer: %w", err), t.file.Close())
	}
	return t, nil
}

// wait returns when the next tick has come, and says whether it had to wait for it.
func (t *ticks) wait() (waited bool, err error) {
	if t.left > 0 {
		t.left--
		return false, nil
	}
	var passed [8]byte
	if _, err := t.file.Read(passed[:]); err != nil {
		return false, fmt.Errorf("wait for timer: %w", err)
	}
	t.left = binary.NativeEndian.Uint64(passed[:]) - 1
	return t.left == 0, nil
}
