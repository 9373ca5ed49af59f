package child

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/test/hang"
)

// Whichever part of the adapter has the process, an end that none of them asked for is counted, and no other.
func TestCrashesAreCounted(t *testing.T) {
	acquire := func(t *testing.T, pool *Pool) *Server {
		t.Helper()
		server, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return server
	}
	pipes := func(t *testing.T, server *Server) (io.Reader, io.WriteCloser) {
		t.Helper()
		output, input, err := server.Pipes()
		if err != nil {
			t.Fatal(err)
		}
		return output, input
	}
	for name, test := range map[string]struct {
		do   func(t *testing.T, pool *Pool)
		want uint64
	}{
		"a session's": {func(t *testing.T, pool *Pool) {
			c := converse(t, pool)
			c.call("exit", `"n":3`)
			_ = c.end()
			c.Close()
		}, 1},
		"a session's, which is closed": {func(t *testing.T, pool *Pool) {
			c := converse(t, pool)
			c.Close()
			_ = c.end()
		}, 0},
		"one that no session uses": {func(t *testing.T, pool *Pool) {
			server := acquire(t, pool)
			server.process.Stop(0)
			<-server.Done()
			server.Close()
		}, 1},
		"one that no session uses, which is closed": {func(t *testing.T, pool *Pool) {
			acquire(t, pool).Close()
		}, 0},
		"the keeper's": {func(t *testing.T, pool *Pool) {
			server := acquire(t, pool)
			output, input := pipes(t, server)
			server.process.Stop(0)
			_, _ = io.Copy(io.Discard, output)
			_ = input.Close() // which may be before it is known that the process has ended
			server.Close()
		}, 1},
		"the keeper's, whose input is closed": {func(t *testing.T, pool *Pool) {
			server := acquire(t, pool)
			output, input := pipes(t, server)
			_ = input.Close()
			_, _ = io.Copy(io.Discard, output)
			server.Close()
		}, 0},
		"one that could not be written to": {func(t *testing.T, pool *Pool) {
			server := acquire(t, pool)
			server.process.Stop(0)
			gomega.NewWithT(t).Eventually(func() error { return server.Send(t.Context(), session.Message{Bytes: []byte("{}")}) }).WithTimeout(hang.Guard).ShouldNot(gomega.Succeed())
			server.Close()
		}, 1},
		"one that sends too much, which is ended for that": {func(t *testing.T, pool *Pool) {
			c := converse(t, pool)
			c.call("big", `"n":100000`)
			_ = c.end()
		}, 0},
		"one that closes its output, and is of no use": {func(t *testing.T, pool *Pool) {
			c := converse(t, pool)
			c.call("close", "")
			_ = c.end()
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := testOptions
			options.LineBytes = 64 << 10
			pool := newPool(t, options)
			test.do(t, pool)
			eventuallyNone(t, pool)
			if got := pool.metrics.Crashes.Load(); got != test.want {
				t.Errorf("%d crashes, want %d", got, test.want)
			}
		})
	}
}

// newSpares has a pool keep one spare, which runs the script, until finish is called. The
// channel has what the pool logs.
func newSpares(t *testing.T, script string) (pool *Pool, lines <-chan string, finish func()) {
	t.Helper()
	logged := make(chan string, 64)
	options := testOptions
	options.Warm = 1
	pool = newPool(t, options, "sh", "-c", script)
	pool.options.Log = logr.Discard().WithSink(funcr.NewJSON(func(line string) { logged <- line }, funcr.Options{}).GetSink())
	ctx, cancel := context.WithCancel(t.Context())
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		pool.Run(ctx)
	}()
	return pool, logged, func() {
		cancel()
		<-finished
	}
}

// The log says how a spare ended that did not stay.
func TestSpareThatEndsSaysHow(t *testing.T) {
	t.Parallel()
	pool, lines, finish := newSpares(t, "exit 7")
	line := <-lines
	finish()
	if !strings.Contains(line, "exit code 7") {
		t.Errorf("logged %s", line)
	}
	if _, err := pool.Acquire(t.Context()); !errors.Is(err, fault.ErrDraining) {
		t.Errorf("acquire afterwards: %v", err)
	}
}
