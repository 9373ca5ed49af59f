package child

import (
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/test/hang"
)

// The average is of the last starts, and one that never ends does not spoil it.
func TestPace(t *testing.T) {
	var p pace
	want := func(when string, want time.Duration) {
		t.Helper()
		if got := p.average(); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	want("without a start", 0)
	p.started(time.Second, StartHold)
	want("one start", time.Second)
	p.started(time.Hour, 3*time.Second)
	want("one that takes long", 2*time.Second)
	for range pacedStarts {
		p.started(8*time.Millisecond, StartHold)
	}
	want("the last ones are fast", 8*time.Millisecond)
	p.started(16*time.Millisecond, StartHold)
	want("one of them is slower", 9*time.Millisecond)
}

// What a start takes is seen at processes that are started for a client, however it reads their output, and not at
// spares, which wait for one.
func TestStartTime(t *testing.T) {
	t.Parallel()
	const takes = 200 * time.Millisecond
	command := []string{"sh", "-c", `sleep 0.2; echo '{"jsonrpc":"2.0","method":"up"}'; cat`}
	for name, hear := range map[string]func(t *testing.T, pool *Pool){
		"by messages": func(t *testing.T, pool *Pool) {
			t.Helper()
			converse(t, pool).hear()
		},
		"by a pipe": func(t *testing.T, pool *Pool) {
			t.Helper()
			server, err := pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(server.Close)
			output, _, err := server.Pipes()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := output.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t, testOptions, command...)
			hear(t, pool)
			if got := pool.StartTime(); got < takes/2 || got > testOptions.StartHold {
				t.Errorf("a start takes %s", got)
			}
		})
	}
	t.Run("of a spare", func(t *testing.T) {
		t.Parallel()
		options := testOptions
		options.Warm = 1
		pool := newPool(t, options, command...)
		go pool.Run(t.Context())
		gomega.NewWithT(t).Eventually(pool.Spares).WithTimeout(hang.Guard).Should(gomega.Equal(1))
		converse(t, pool).hear()
		if got := pool.StartTime(); got != 0 {
			t.Errorf("a start takes %s", got)
		}
	})
}

// A pod that gets no sessions for now keeps no spares, and has them again later.
func TestRest(t *testing.T) {
	t.Parallel()
	options := testOptions
	options.Warm = 2
	pool := newPool(t, options)
	go pool.Run(t.Context())
	g := gomega.NewWithT(t)
	processes := func() []int64 { return []int64{int64(pool.Spares()), pool.metrics.Running.Load()} }
	g.Eventually(processes).WithTimeout(hang.Guard).Should(gomega.Equal([]int64{2, 2}))
	pool.Rest(true)
	g.Eventually(processes).WithTimeout(hang.Guard).Should(gomega.Equal([]int64{0, 0}))
	c := converse(t, pool) // which wakes what keeps spares
	c.call("pid", "")
	c.hear()
	c.Close()
	_ = c.end()
	g.Eventually(processes).WithTimeout(hang.Guard).Should(gomega.Equal([]int64{0, 0}))
	if started := pool.metrics.Starts.Load(); started != 3 {
		t.Errorf("%d processes were started, want 3", started)
	}
	pool.Rest(false)
	g.Eventually(processes).WithTimeout(hang.Guard).Should(gomega.Equal([]int64{2, 2}))
	pool.EndSpares()
	pool.Rest(false)
	g.Eventually(processes).WithTimeout(hang.Guard).Should(gomega.Equal([]int64{0, 0}))
}

// Spares start within the bound of all starts, so that they do not slow down processes that clients wait for.
func TestRefillsWaitForTheirTurn(t *testing.T) {
	t.Parallel()
	options := testOptions
	options.Warm, options.Starts = 2, 1
	pool := newPool(t, options)
	c := converse(t, pool) // says nothing, so it is still starting
	go pool.Run(t.Context())
	g := gomega.NewWithT(t)
	alive := func() int {
		pool.mu.Lock()
		defer pool.mu.Unlock()
		return pool.alive
	}
	g.Eventually(alive).WithTimeout(hang.Guard).Should(gomega.Equal(2)) // a spare waits for its turn
	if started, spares := pool.metrics.Starts.Load(), pool.Spares(); started != 1 || spares != 0 {
		t.Errorf("%d processes were started, %d spares", started, spares)
	}
	c.call("pid", "")
	c.hear()
	g.Eventually(alive).WithTimeout(hang.Guard).Should(gomega.Equal(3)) // the next one waits, because a spare says nothing
	if started, spares := pool.metrics.Starts.Load(), pool.Spares(); started != 2 || spares != 1 {
		t.Errorf("%d processes were started, %d spares", started, spares)
	}
}
