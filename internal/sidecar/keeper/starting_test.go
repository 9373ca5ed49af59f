package keeper

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
)

func starts(o *Options) { o.Starts = true }

const unanswered = "ready false, Starting: the server runs and has not answered yet"

// A server that loads for long is not called broken before it answers.
func TestKeeperOfASlowServer(t *testing.T) {
	for name, test := range map[string]struct{ takes, timeout time.Duration }{
		"12 seconds":            {12 * time.Second, time.Minute},
		"more than a minute":    {90 * time.Second, 2 * time.Minute},
		"a model that is large": {50 * time.Minute, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := watch(t, &gate{start: test.takes}, func(o *Options) { o.Starts, o.StartTimeout = true, test.timeout })
				w.after(t, test.takes+time.Second, starting, unanswered, "ready, stateless false")
				if got, want := w.log.at(0), []string{"Server is ready"}; !cmp.Equal(got, want) {
					t.Errorf("logged %q, want %q", got, want)
				}
			})
		})
	}
}

// is lets time pass and checks what the state says then.
func (w *watched) is(t *testing.T, after time.Duration, want string) {
	t.Helper()
	time.Sleep(after)
	synctest.Wait()
	if state, _ := w.State(); describe(state) != want {
		t.Errorf("after %s: got %s, want %s", after, describe(state), want)
	}
}

// A server that never answers is a failure when its time is up, and stays one.
func TestKeeperOfAServerThatNeverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const silent = "ready false, Silent: the server runs and has not answered for more than 1m0s"
		w := watch(t, &gate{answers: map[string]string{"initialize": ignored}}, starts)
		w.after(t, 59*time.Second, starting, unanswered)
		w.wantFailures(t, 0)
		w.after(t, 2*time.Second, starting, unanswered, silent)
		w.wantFailures(t, 1)
		w.after(t, time.Minute, starting, unanswered, silent)
		w.wantFailures(t, 2)
	})
}

func (w *watched) wantFailures(t *testing.T, want int64) {
	t.Helper()
	if state, _ := w.State(); state.Failures != want {
		t.Errorf("%d failures, want %d", state.Failures, want)
	}
}

// Junk is told when the patience is over, whether it came before or after that. A server that prints
// a banner may answer later.
func TestKeeperOfAServerWithABanner(t *testing.T) {
	const junk = `ready false, Silent: the server runs and has not answered for more than 3s; it wrote text that is not MCP to standard output: "Loading the model"`
	for name, test := range map[string]struct{ speaks, told time.Duration }{
		"early": {time.Second, 3 * time.Second},
		"late":  {10 * time.Second, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := watch(t, &gate{start: 30 * time.Second, banner: test.speaks}, starts)
				w.after(t, test.told-time.Millisecond, starting, unanswered)
				w.after(t, 2*time.Millisecond, starting, unanswered, junk)
				w.wantFailures(t, 0)
				w.after(t, 31*time.Second, starting, unanswered, junk, "ready, stateless false")
			})
		})
	}
}

// An exit is told at once, each is a failure, and a server that answers ends the count.
func TestKeeperCountsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{answers: map[string]string{"initialize": "-32603"}, dies: true}
		w := watch(t, g, func(o *Options) { o.Starts, o.Pinned = true, true })
		w.after(t, 50*time.Millisecond, starting, unanswered, "ready false, Exited: exit code 1")
		w.wantFailures(t, 1)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		w.wantFailures(t, 2)
		g.set(nil)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		w.wantFailures(t, 0)
		g.kill() // does not count as a failed start
		time.Sleep(time.Millisecond)
		synctest.Wait()
		w.wantFailures(t, 0)
		// Silence after an answer is told soon.
		g.set(map[string]string{"initialize": ignored})
		g.kill()
		w.is(t, 5*time.Second, "ready false, Silent: the server runs and has not answered for more than 3s")
	})
}

// A server that the adapter does not start fails once in each StartTimeout, however often the keeper
// looks for it.
func TestKeeperOfAServerThatDoesNotListen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("connection refused")
		w := watch(t, &gate{}, func(o *Options) {
			o.Connect = func(context.Context, bool) (Connection, error) {
				return Connection{}, fault.Caused(refused, ErrNotListening)
			}
		})
		const want = "ready false, Unstartable: connection refused"
		w.after(t, 50*time.Second, starting, want)
		w.wantFailures(t, 0)
		w.after(t, 20*time.Second, starting, want)
		w.wantFailures(t, 1)
		w.after(t, time.Minute, starting, want)
		w.wantFailures(t, 2)
	})
}

// box is a container that comes and goes.
type box struct {
	mu      sync.Mutex
	changed chan struct{}
	running bool
}

func newBox() *box { return &box{changed: make(chan struct{})} }

func (b *box) set(running bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running = running
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *box) Connected() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.running
}

func (b *box) WaitConnected(ctx context.Context) error {
	for {
		b.mu.Lock()
		running, changed := b.running, b.changed
		b.mu.Unlock()
		if running {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// While the image is pulled there is no server that could be broken. Its container's start is noticed
// at once.
func TestKeeperWithoutAContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, g := newBox(), &gate{}
		w := watch(t, g, func(o *Options) {
			o.Starts, o.Container = true, b
			o.Connect = func(ctx context.Context, stateless bool) (Connection, error) {
				if !b.Connected() {
					return Connection{}, fmt.Errorf("%w: no launcher is connected", ErrNoContainer)
				}
				return g.connect(ctx, stateless)
			}
		})
		const (
			pulled  = "ready false, Starting: the server's container has not started yet"
			ready   = "ready, stateless false"
			restart = "ready false, Starting: the server's container has ended, and has not started again yet"
		)
		w.after(t, 5*time.Minute, starting, pulled)
		w.wantFailures(t, 0)
		if got, want := w.log.at(0), []string{"Waiting for the server's container: the server's container has not started yet"}; !cmp.Equal(got, want) {
			t.Errorf("logged %q, want %q", got, want)
		}
		b.set(true)
		w.is(t, time.Millisecond, ready)
		time.Sleep(time.Minute)
		b.set(false)
		g.kill()
		w.is(t, time.Minute, restart)
		w.wantFailures(t, 0)
		b.set(true)
		w.is(t, time.Millisecond, ready)
	})
}

// Without room for the first process there is no room for any: that is a failure of the server. Later
// it says nothing of the server.
func TestKeeperWithoutRoomForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		noRoom := fmt.Errorf("%w: process refused (memory): 31 of 32 MiB in use", ErrNoRoom)
		w := watch(t, &gate{}, func(o *Options) {
			o.Starts = true
			o.Connect = func(context.Context, bool) (Connection, error) { return Connection{}, noRoom }
		})
		w.after(t, time.Minute, starting, "ready false, Unstartable: "+noRoom.Error())
		if state, _ := w.State(); state.Failures < 2 {
			t.Errorf("%d failures", state.Failures)
		}
	})
}

// The error of a server with a wrong path names the URL that the adapter asked.
func TestKeeperNamesTheURL(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	k := newKeeper(t, &fleet{}, func(o *Options) {
		o.Connect = func(context.Context, bool) (Connection, error) {
			return Connection{Target: mcpprobe.HTTP(server.URL+"/wrong", nil), Close: func() {}, Reason: func(time.Duration) error { return nil }}, nil
		}
	})
	await(t, "a failure", func() bool { state, _ := k.State(); return state.Reason == adapterapi.Broken })
	state, _ := k.State()
	if got, want := state.Err.Error(), "probe connect: Rejected (POST "+server.URL+"/wrong: HTTP 404)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
