package child

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/launcher"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// What a process wrote before it ended arrives, however slowly it is taken.
func TestLastWordsOfAProcessAreHeard(t *testing.T) {
	t.Parallel()
	pool := newPool(t, testOptions, "sh", "-c",
		`for i in 1 2 3 4 5 6; do printf '{"jsonrpc":"2.0","method":"n","params":{"p":"%09000d"}}\n' $i; done`)
	server, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	heard, ended := 0, make(chan error, 1)
	server.Serve(func(session.Message) {
		heard++
		<-server.process.Done()
		<-time.After(exitGrace + 10*time.Millisecond) // a receiver that is behind
	}, func(err error) { ended <- err })
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "exit code 0") {
		t.Errorf("ended with %v", err)
	}
	if heard != 6 {
		t.Errorf("%d of 6 messages were heard", heard)
	}
}

// Spares that end by themselves are replaced ever more slowly.
func TestSparesThatDoNotStay(t *testing.T) {
	t.Parallel()
	_, lines, finish := newSpares(t, "sleep 0.05; exit 1")
	for _, want := range []string{`"nextTry":"1s"`, `"nextTry":"2s"`} {
		if line := <-lines; !strings.Contains(line, want) {
			t.Errorf("logged %s, want %s in it", line, want)
		}
	}
	finish()
}

// starterFunc is a Starter.
type starterFunc func() (*launcher.Process, error)

func (f starterFunc) Spawn(context.Context, string) (*launcher.Process, error) { return f() }

// A command that cannot be started is tried again ever more slowly.
func TestSparesThatDoNotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var tries []time.Duration
		pool := NewPool(starterFunc(func() (*launcher.Process, error) {
			tries = append(tries, time.Since(begin)/time.Second)
			return nil, errors.New("no such command")
		}), Options{Warm: 1, Max: 1, Starts: 1})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
		defer cancel()
		pool.Run(ctx)
		if want := []time.Duration{0, 1, 3, 7, 15, 31, 61, 91}; !slices.Equal(tries, want) {
			t.Errorf("tried at seconds %d, want %d", tries, want)
		}
	})
}

// Some servers write null for what they do not have.
func TestNullStandsForNothing(t *testing.T) {
	t.Parallel()
	const answer = `{"jsonrpc":"2.0","id":2,"result":{},"error":null}`
	pool := newPool(t, testOptions, "sh", "-c", "echo '"+answer+"'; cat")
	c := converse(t, pool)
	defer c.Close()
	if got := c.hear(); got != answer {
		t.Errorf("heard %s", got)
	}
}

// A mistake of the adapter costs one session, where a process is that session's alone.
func TestPanicEndsOneSession(t *testing.T) {
	t.Parallel()
	pool := newPool(t, testOptions)
	server, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	server.ServeSession(func(session.Message) { panic(errors.New("a mistake")) }, func(err error) { ended <- err })
	if err := server.Send(t.Context(), session.Message{Bytes: []byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("the session has not ended")
	}
	if got := pool.metrics.Panics.Load(); got != 1 {
		t.Errorf("%d panics counted", got)
	}
	eventuallyNone(t, pool)
}

// A mistake of the adapter in code that all clients share ends the program: a lock that it
// left locked would have every client hang.
func TestPanicEndsTheProgram(t *testing.T) {
	const inside = "SLIPWAY_TEST_PANIC"
	if os.Getenv(inside) != "" {
		pool := newPool(t, testOptions, "sh", "-c", `echo '{"jsonrpc":"2.0","method":"n"}'; exec cat`)
		server, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		server.Serve(func(session.Message) { panic(errors.New("a mistake")) }, func(err error) { ended <- err })
		<-ended
		return
	}
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	again.Env = append(os.Environ(), inside+"=1")
	if output, err := again.CombinedOutput(); err == nil || !strings.Contains(string(output), "panic: a mistake") {
		t.Errorf("the program ended with %v, want a panic: %s", err, output)
	}
}

// What is in the pipe is read also long after the deadline, up to its end; but a process
// that holds the pipe open is not waited for.
func TestLastWordsAfterTheDeadline(t *testing.T) {
	const words = "last words"
	for name, test := range map[string]struct {
		held bool
		want error
	}{
		"ended":             {false, nil}, // io.ReadAll says nothing of io.EOF
		"held by a process": {true, os.ErrDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			output, input, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = errors.Join(output.Close(), input.Close()) })
			if _, err := input.WriteString(words); err != nil {
				t.Fatal(err)
			}
			if !test.held {
				_ = input.Close()
			}
			if err := output.SetReadDeadline(time.Now().Add(-time.Hour)); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(iotest.OneByteReader(&remainingReader{output, remainingBytes}))
			if string(got) != words || !errors.Is(err, test.want) {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}
