package mux

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
)

var errFine = errors.New("it was not needed")

// process is one that a test plays.
type process struct {
	plant *plant

	mu      sync.Mutex
	dead    error
	retired bool
}

// fail ends the process, as real ones do: it is dead, then it says so.
func (p *process) fail(reason error) {
	p.die(reason)
	p.plant.Ended(p, reason)
}

func (p *process) die(reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = reason
}

func (p *process) retire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retired = true
}

func (p *process) deadBy() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

func (p *process) isRetired() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.retired
}

// plant is a Supervisor of processes, with what it does written down.
type plant struct {
	*Supervisor[*process]
	t     *testing.T
	start func(context.Context, *process) error

	mu  sync.Mutex
	log []string
}

const timeout = time.Minute

func newPlant(t *testing.T, start func(context.Context, *process) error) *plant {
	p := &plant{t: t, start: start}
	p.Supervisor = NewSupervisor(Policy[*process]{
		Start: func(ctx context.Context) (*process, error) {
			p.note("start")
			made := &process{plant: p}
			if err := p.start(ctx, made); err != nil {
				return nil, err
			}
			return made, nil
		},
		Timeout: timeout,
		Dead:    (*process).deadBy, Retired: (*process).isRetired,
		Fail: func(made *process, reason error) {
			p.note("fail: " + reason.Error())
			made.fail(reason)
		},
		Harmless: func(err error) bool { return errors.Is(err, errFine) },
		Started:  func() { p.note("started") },
		Failed:   func() { p.note("failed") },
		Ended:    func(reason error) { p.note("ended: " + reason.Error()) },
	})
	return p
}

func (p *plant) note(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = append(p.log, what)
}

// want is what has happened since the last time.
func (p *plant) want(want ...string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Equal(p.log, want) {
		p.t.Errorf("got  %q\nwant %q", p.log, want)
	}
	p.log = nil
}

// get wants a process.
func (p *plant) get() *process {
	p.t.Helper()
	got, err := p.Get(p.t.Context())
	if err != nil {
		p.t.Fatalf("no process: %v", err)
	}
	return got
}

// refused wants an error of which a part is known.
func (p *plant) refused(by error, part string) {
	p.t.Helper()
	if got, err := p.Get(p.t.Context()); got != nil || !errors.Is(err, by) || !strings.Contains(err.Error(), part) {
		p.t.Errorf("got a process: %t; error %v, want %v with %q", got != nil, err, by, part)
	}
}

func works(context.Context, *process) error { return nil }

// Callers that come at once wait for one start, and one that goes away stops nothing.
func TestOneStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		p := newPlant(t, func(ctx context.Context, _ *process) error {
			select {
			case <-goOn:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		hasty, leave := context.WithCancel(t.Context())
		left := make(chan error)
		go func() { // the one that the start is for
			_, err := p.Get(hasty)
			left <- err
		}()
		synctest.Wait()
		var all sync.WaitGroup
		got := make([]*process, 10)
		for i := range got {
			all.Go(func() { got[i], _ = p.Get(t.Context()) })
		}
		synctest.Wait()
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "wait for server to start: ") {
			t.Errorf("one that left: got %v", err)
		}
		if current, ok := p.Current(); ok {
			t.Errorf("there is one already: %v", current)
		}
		close(goOn)
		all.Wait()
		current, ok := p.Current()
		if !ok || slices.ContainsFunc(got, func(one *process) bool { return one != current }) {
			t.Errorf("not all have the same: %v", got)
		}
		p.want("start", "started")
		if p.get() != current {
			t.Error("one that comes later has another")
		}
		p.want()
	})
}

// What is started is told apart by how it fails and ends.
func TestStartsAndEnds(t *testing.T) {
	for name, test := range map[string]struct {
		start func(context.Context, *process) error
		play  func(*plant)
	}{
		"failure, back-off, success": {
			start: func(context.Context, *process) error { return errBroken },
			play: func(p *plant) {
				p.refused(errBroken, "")
				p.refused(errBroken, "") // the first costs nothing
				p.want("start", "failed", "start", "failed")
				p.refused(errBroken, "the next start is in 1s")
				time.Sleep(time.Second - time.Nanosecond)
				p.refused(errBroken, "the next start is in")
				p.want()
				time.Sleep(time.Nanosecond)
				p.refused(errBroken, "")
				p.refused(errBroken, "the next start is in 2s")
				time.Sleep(2 * time.Second)
				p.start = works
				p.want("start", "failed")
				p.get()
				p.want("start", "started")
			},
		},
		"a start that takes too long": {
			start: func(ctx context.Context, _ *process) error { <-ctx.Done(); return ctx.Err() },
			play: func(p *plant) {
				begin := time.Now()
				p.refused(context.DeadlineExceeded, "")
				if took := time.Since(begin); took != timeout {
					p.t.Errorf("it took %s", took)
				}
				p.want("start", "failed")
			},
		},
		"it dies during its start": {
			start: func(_ context.Context, made *process) error { made.fail(errBroken); return nil },
			play: func(p *plant) {
				p.refused(errBroken, "")
				p.refused(errBroken, "")
				p.refused(errBroken, "the next start is in 1s")
				p.want("start", "failed", "start", "failed")
			},
		},
		"a start without result that is harmless": {
			start: func(context.Context, *process) error { return errFine },
			play: func(p *plant) {
				for range 5 {
					p.refused(errFine, "")
				}
				p.want("start", "start", "start", "start", "start")
			},
		},
		"one that ends is replaced": {
			start: works,
			play: func(p *plant) {
				first := p.get()
				first.fail(errBroken)
				second := p.get()
				if first == second {
					p.t.Error("the dead one is used again")
				}
				first.fail(errBroken) // which is known
				if p.get() != second {
					p.t.Error("the end of another counts")
				}
				second.fail(errBroken)
				p.refused(errBroken, "the next start is in 1s") // they did not last
				p.want("start", "started", "ended: it is broken", "start", "started", "ended: it is broken")
			},
		},
		"one that is dead and has not said so is replaced": {
			start: works,
			play: func(p *plant) {
				first := p.get()
				first.die(errBroken)
				if p.get() == first {
					p.t.Error("the dead one is used again")
				}
				first.fail(errBroken)
				p.want("start", "started", "ended: it is broken", "start", "started")
			},
		},
		"the end of one that has lasted is no reason to wait": {
			start: works,
			play: func(p *plant) {
				for range 2 {
					p.get().fail(errBroken)
				}
				for range 5 {
					time.Sleep(Lasting)
					p.get()
					time.Sleep(Lasting)
					p.get().fail(errBroken)
				}
				p.get().fail(errBroken) // the first that counts
				time.Sleep(Lasting - time.Nanosecond)
				p.get().fail(errBroken)
				p.refused(errBroken, "the next start is in")
			},
		},
		"the time of a start counts": {
			start: func(context.Context, *process) error { time.Sleep(Lasting); return nil },
			play: func(p *plant) {
				for range 5 {
					p.get().fail(errBroken)
				}
			},
		},
		"an end that is harmless is no reason to wait": {
			start: works,
			play: func(p *plant) {
				p.get().fail(errBroken)
				for range 5 {
					p.get().fail(errFine)
				}
				p.get().fail(errBroken)
				p.get()
			},
		},
		"one that is retired is replaced, and its end does not count": {
			start: works,
			play: func(p *plant) {
				for range 5 {
					old := p.get()
					old.retire()
					next := p.get()
					if next == old {
						p.t.Error("the retired one is used again")
					}
					old.fail(errBroken)
					if p.get() != next {
						p.t.Error("the end of a retired one counts")
					}
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test.play(newPlant(t, test.start)) })
		})
	}
}

// Nothing is started after Close, whatever was under way then.
func TestClose(t *testing.T) {
	for name, test := range map[string]struct {
		start func(context.Context, *process) error
		want  []string
	}{
		"a start that stops": {
			func(ctx context.Context, _ *process) error { <-ctx.Done(); return ctx.Err() },
			[]string{"start"},
		},
		"a start that still succeeds": {
			func(ctx context.Context, _ *process) error { <-ctx.Done(); return nil },
			[]string{"start", "fail: this instance is going away"},
		},
		"a start whose process dies": {
			func(ctx context.Context, made *process) error { <-ctx.Done(); made.fail(errBroken); return nil },
			[]string{"start", "fail: this instance is going away"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlant(t, test.start)
				got := make(chan error)
				for range 3 {
					go func() {
						_, err := p.Get(t.Context())
						got <- err
					}()
				}
				synctest.Wait()
				begin := time.Now()
				if current, ok := p.Close(); ok {
					t.Errorf("there is one already: %v", current)
				}
				for range 3 {
					if err := <-got; !errors.Is(err, fault.ErrDraining) {
						t.Errorf("got %v", err)
					}
				}
				if took := time.Since(begin); took != 0 {
					t.Errorf("the start went on for %s", took)
				}
				p.want(test.want...)
				p.refused(fault.ErrDraining, "")
				p.want()
				if current, ok := p.Current(); ok {
					t.Errorf("there is one now: %v", current)
				}
			})
		})
	}
}

// The one that is in use at Close is for the caller to end, in its own time.
func TestCloseLeavesTheCurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(t, works)
		current := p.get()
		for range 2 {
			if closed, ok := p.Close(); !ok || closed != current || current.deadBy() != nil {
				t.Errorf("got another: %t, or it has ended: %v", closed != current, current.deadBy())
			}
		}
		if p.Context().Err() == nil {
			t.Error("the context goes on")
		}
		p.refused(fault.ErrDraining, "")
		current.fail(errBroken)
		if _, ok := p.Close(); ok {
			t.Error("it has ended, and is still there")
		}
		p.want("start", "started")
	})
}

// A caller that finds a process costs no memory.
func TestGetAllocatesNothing(t *testing.T) {
	p := newPlant(t, works)
	p.get()
	if allocs := testing.AllocsPerRun(100, func() { p.get() }); allocs != 0 {
		t.Errorf("%g allocations", allocs)
	}
}
