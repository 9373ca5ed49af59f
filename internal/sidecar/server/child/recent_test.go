package child

import (
	"context"
	"errors"
	"io"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/launcher"
	"github.com/slipway-mcp/slipway/test/hang"
)

// awaitProcesses waits until the pool says so of its processes.
func awaitProcesses(t *testing.T, pool *Pool, want adapterapi.Processes) {
	t.Helper()
	end := time.Now().Add(hang.Guard)
	for pool.Processes() != want {
		if time.Now().After(end) {
			t.Fatalf("processes (-want +got):\n%s", cmp.Diff(want, pool.Processes()))
		}
		time.Sleep(time.Millisecond)
	}
}

// Every real process counts, and how it ended.
func TestProcesses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		command string
		use     func(*testing.T, *Server)
		want    adapterapi.Processes
	}{
		"asked to end": {"cat", func(_ *testing.T, s *Server) { s.Close() }, adapterapi.Processes{Ended: 1}},
		"exit code":    {"exit 3", nil, adapterapi.Processes{Ended: 1, Crashed: 1, Cause: "exit code 3"}},
		"exit code 0":  {"true", nil, adapterapi.Processes{Ended: 1, Crashed: 1, Cause: "exit code 0"}},
		"signal":       {"kill -SEGV $$", nil, adapterapi.Processes{Ended: 1, Crashed: 1, Cause: "signal 11"}},
		"asked for what it need not know": {
			"exit 1", func(_ *testing.T, s *Server) { s.Tentative() }, adapterapi.Processes{Ended: 1},
		},
		"answered that, and ended": {"echo; read line; exit 4", func(t *testing.T, s *Server) {
			s.Tentative()
			output, input, err := s.Pipes()
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(input, "go\n")
			_, _ = output.Read(make([]byte, 1))
		}, adapterapi.Processes{Ended: 1, Crashed: 1, Cause: "exit code 4"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t, testOptions, "sh", "-c", "read line; "+test.command)
			server, err := pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := pool.Processes(); got != (adapterapi.Processes{}) {
				t.Errorf("a process that runs counts: %+v", got)
			}
			if test.use != nil {
				test.use(t, server)
			}
			_, _ = server.process.Stdin.WriteString("go\n") // it fails after Close
			awaitProcesses(t, pool, test.want)
		})
	}
}

// Failed starts count with their cause. A start fails without counting if its container does not run,
// which is the kubelet's job, or if no client waits for it.
func TestUnstartableProcesses(t *testing.T) {
	for name, test := range map[string]struct {
		err   error
		cause string
	}{
		"no such command":     {&launcher.StartError{Message: `start command "/secret": no such file`}, "the command cannot be started"},
		"no memory":           {&launcher.RefusedError{Reason: launcher.ReasonMemory, Message: "31 of 32 MiB in use"}, "no memory for another process"},
		"no processes":        {&launcher.RefusedError{Reason: launcher.ReasonPIDs}, "too many processes and threads"},
		"something new":       {&launcher.RefusedError{Reason: "\x1b[31m"}, "no room for another process"},
		"the pod ends":        {&launcher.RefusedError{Reason: launcher.ReasonStopping}, ""},
		"no container":        {launcher.ErrNoLauncher, ""},
		"the client has gone": {context.Canceled, ""},
		"no client waits":     {context.DeadlineExceeded, ""},
	} {
		pool := NewPool(starterFunc(func() (*launcher.Process, error) { return nil, test.err }), Options{Max: 1, Starts: 1})
		if _, err := pool.Acquire(t.Context()); err == nil {
			t.Fatal("it started")
		}
		want := adapterapi.Processes{}
		if test.cause != "" {
			want = adapterapi.Processes{Ended: 1, Unstartable: 1, Cause: test.cause}
		}
		if diff := cmp.Diff(want, pool.Processes()); diff != "" {
			t.Errorf("%s: processes (-want +got):\n%s", name, diff)
		}
		if _, err := adapterapi.ParseProcesses(pool.Processes().String()); err != nil {
			t.Errorf("%s: the manager cannot read it: %v", name, err)
		}
	}
}

func TestCauses(t *testing.T) {
	for want, exit := range map[string]launcher.Exit{
		"out of memory":                {OOM: true, Signal: 9, Stderr: "secret"},
		"signal 9":                     {Signal: 9},
		"exit code 1":                  {Code: 1, Stderr: "secret"},
		"the server's container ended": {Lost: true},
	} {
		if got := causeOf(exit); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// The window moves on, and the report names the most frequent cause in it.
func TestRecent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recent
		crash := func(cause string, times int) {
			for range times {
				r.add(time.Now(), adapterapi.Processes{Ended: 1, Crashed: 1, Cause: cause})
			}
		}
		check := func(want adapterapi.Processes) {
			t.Helper()
			if diff := cmp.Diff(want, r.sum(time.Now())); diff != "" {
				t.Errorf("after %s (-want +got):\n%s", time.Now().Format("04:05"), diff)
			}
		}
		check(adapterapi.Processes{})
		crash("exit code 1", 3)
		r.add(time.Now(), adapterapi.Processes{Ended: 1, Crashed: 1, OutOfMemory: 1, Cause: "out of memory"})
		r.add(time.Now(), adapterapi.Processes{Ended: 1})
		check(adapterapi.Processes{Ended: 5, Crashed: 4, OutOfMemory: 1, Cause: "exit code 1"})
		time.Sleep(4 * time.Minute)
		crash("signal 11", 3) // as many as the other: the order is that of words
		check(adapterapi.Processes{Ended: 8, Crashed: 7, OutOfMemory: 1, Cause: "exit code 1"})
		time.Sleep(time.Minute)
		check(adapterapi.Processes{Ended: 3, Crashed: 3, Cause: "signal 11"})
		time.Sleep(4 * time.Minute)
		check(adapterapi.Processes{})
		for i := range 100_000 {
			crash("exit code "+strconv.Itoa(i%256), 1)
		}
		check(adapterapi.Processes{Ended: 100_000, Crashed: 100_000, Cause: "exit code 0"})
	})
}

// absent is a starter whose container comes later.
type absent struct {
	tries   int
	running chan struct{}
}

func (a *absent) Spawn(context.Context, string) (*launcher.Process, error) {
	a.tries++
	if a.Connected() {
		return nil, errors.New("no such command")
	}
	return nil, launcher.ErrNoLauncher
}

func (a *absent) Connected() bool {
	select {
	case <-a.running:
		return true
	default:
		return false
	}
}

func (a *absent) WaitConnected(ctx context.Context) error {
	select {
	case <-a.running:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A pool without a container waits for it, and logs nothing.
func TestSparesWaitForTheContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &absent{running: make(chan struct{})}
		var logged atomic.Int64
		log := funcr.New(func(string, string) { logged.Add(1) }, funcr.Options{})
		pool := NewPool(a, Options{Warm: 1, Max: 1, Starts: 1, Log: log})
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() { pool.Run(ctx); close(over) }()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if a.tries != 1 || logged.Load() != 0 {
			t.Errorf("tried %d times and logged %d lines while there was no container", a.tries, logged.Load())
		}
		close(a.running)
		synctest.Wait()
		if a.tries != 2 {
			t.Errorf("tried %d times, the last when the container was there", a.tries)
		}
		cancel()
		<-over
	})
}
