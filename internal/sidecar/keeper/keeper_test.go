package keeper

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/test/hang"
)

// fleet starts servers of the official SDK on pipes, and breaks them on demand.
type fleet struct {
	started atomic.Int64
	refuse  atomic.Bool // the next ones cannot be started
	silent  atomic.Bool // the next ones never answer
	current atomic.Pointer[member]

	noisy atomic.Bool // silent ones write what is not a message

	initializeFirst bool // one that is asked for anything else first ends
}

type member struct {
	server *mcp.Server
	stop   context.CancelCauseFunc
	ctx    context.Context
}

func (f *fleet) connect(context.Context, bool) (Connection, error) {
	if f.refuse.Load() {
		return Connection{}, errors.New("no such command")
	}
	f.started.Add(1)
	ctx, stop := context.WithCancelCause(context.Background())
	m := &member{mcp.NewServer(&mcp.Implementation{Name: "kept", Version: "1"}, nil), stop, ctx}
	addTool(m.server, "first")
	f.current.Store(m)
	stdin, input := io.Pipe()
	output, stdout := io.Pipe()
	if f.initializeFirst {
		stdin = endUnless(stdin, "initialize", func() { stop(errors.New("exit code 1: expected initialize request")) })
	}
	if f.silent.Load() {
		go func() {
			if f.noisy.Load() {
				_, _ = io.WriteString(stdout, "Listening on port 3000\nand again\n")
			}
			_, _ = io.Copy(io.Discard, stdin)
		}()
	} else {
		go func() { _ = m.server.Run(ctx, &mcp.IOTransport{Reader: stdin, Writer: stdout}) }()
	}
	context.AfterFunc(ctx, func() { _ = errors.Join(stdout.Close(), stdin.Close()) })
	return Connection{
		Target: mcpprobe.Pipes(output, input),
		Close:  func() { stop(context.Canceled) },
		Reason: func(time.Duration) error {
			if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
				return cause
			}
			return nil
		},
	}, nil
}

// endUnless passes input on, but for the first message: if that lacks the word, end is called.
func endUnless(input *io.PipeReader, word string, end func()) *io.PipeReader {
	r, w := io.Pipe()
	go func() {
		buffered := bufio.NewReader(input)
		if line, err := buffered.ReadString('\n'); err == nil && strings.Contains(line, word) {
			_, _ = io.WriteString(w, line)
			_, _ = io.Copy(w, buffered)
		} else {
			end()
		}
		_ = w.Close()
	}()
	return r
}

func addTool(server *mcp.Server, name string) {
	mcp.AddTool(server, &mcp.Tool{Name: name}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{}, nil, nil
	})
}

func newKeeper(t *testing.T, f *fleet, change func(*Options)) *Keeper {
	t.Helper()
	options := Options{
		Connect: f.connect, StartTimeout: time.Hour, Patience: hang.Guard, PingInterval: 20 * time.Millisecond, PingTimeout: hang.Guard,
		Settle: 10 * time.Millisecond, Log: testr.New(t),
	}
	if change != nil {
		change(&options)
	}
	k := New(options)
	ctx, stop := context.WithCancel(context.Background())
	finished := make(chan struct{})
	go func() {
		k.Run(ctx)
		close(finished)
	}()
	t.Cleanup(func() {
		stop()
		<-finished
	})
	return k
}

// summary is a state in a few words.
func summary(k *Keeper) string {
	state, _ := k.State()
	tools := 0
	if state.Catalog != nil {
		tools = len(state.Catalog.Tools)
	}
	return fmt.Sprintf("ready %v, %d tools, %v", state.Ready, tools, state.Err)
}

func eventually(t *testing.T, k *Keeper, want string) {
	t.Helper()
	var got string
	defer func() {
		if t.Failed() {
			t.Logf("the state is: %s", got)
		}
	}()
	await(t, want, func() bool {
		got = summary(k)
		return got == want
	})
}

// await waits for a condition. In a bubble it takes no time.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(hang.Guard); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out waiting for: %s", what)
		}
	}
}

// awaitStarted waits until so many servers were started.
func (f *fleet) awaitStarted(t *testing.T, count int64) {
	t.Helper()
	await(t, fmt.Sprintf("%d servers", count), func() bool { return f.started.Load() == count })
}

func TestKeeperFollowsTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		k := newKeeper(t, f, nil)
		eventually(t, k, "ready true, 1 tools, <nil>")
		addTool(f.current.Load().server, "second") // which it announces
		eventually(t, k, "ready true, 2 tools, <nil>")
		if f.started.Load() != 1 {
			t.Errorf("%d servers were started, want one", f.started.Load())
		}
	})
}

// R11: the keeper replaces a server that dies, and the state stays ready. If the new server
// does not start either, the state becomes unready, and recovers without action.
func TestKeeperReplacesTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		k := newKeeper(t, f, nil)
		eventually(t, k, "ready true, 1 tools, <nil>")

		_, changed := k.State()
		f.current.Load().stop(errors.New("exit code 3"))
		<-changed
		if state, _ := k.State(); !state.Ready {
			t.Errorf("not ready after one death: %v", state.Err)
		}
		f.awaitStarted(t, 2)
		eventually(t, k, "ready true, 1 tools, <nil>")

		f.refuse.Store(true)
		f.current.Load().stop(errors.New("exit code 4"))
		eventually(t, k, "ready false, 1 tools, no such command")
		f.refuse.Store(false)
		eventually(t, k, "ready true, 1 tools, <nil>")
	})
}

// A server that runs and does not answer is not ready, and the state says so well
// before the server is given up.
func TestKeeperOfASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		f.silent.Store(true)
		k := newKeeper(t, f, func(o *Options) {
			o.Patience = 50 * time.Millisecond
			o.StartTimeout = 300 * time.Millisecond
			o.Probe.DiscoverTimeout = 100 * time.Millisecond
		})
		eventually(t, k, "ready false, 0 tools, the server runs and has not answered for more than 100ms")
		await(t, "a state that says so", func() bool {
			state, _ := k.State()
			return !state.Ready && state.Reason == adapterapi.Silent && mcpprobe.ClassOf(state.Err) == mcpprobe.Timeout
		})
	})
}

// The error shows what the first server printed in place of an answer. Its text is the same before and
// after the keeper gives the server up, whatever later servers print. The brief text has none of it.
func TestKeeperOfANoisyServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		f.silent.Store(true)
		f.noisy.Store(true)
		k := newKeeper(t, f, func(o *Options) {
			o.Patience = 50 * time.Millisecond
			o.StartTimeout = 300 * time.Millisecond
			o.Probe.DiscoverTimeout = 100 * time.Millisecond
		})
		const want = "the server runs and has not answered for more than 100ms"
		const named = `; it wrote text that is not MCP to standard output: "Listening on port 3000"`
		eventually(t, k, "ready false, 0 tools, "+want+named)
		before := f.started.Load()
		for f.started.Load() < before+2 { // two were given up since
			state, changed := k.State()
			if got := state.Err.Error(); state.Reason != adapterapi.Silent || got != want+named {
				t.Errorf("said of the same: %s %q", state.Reason, got)
			}
			if got := fault.Brief(state.Err); got != want {
				t.Errorf("sent to all clients: %q", got)
			}
			<-changed
		}
		f.silent.Store(false)
		eventually(t, k, "ready true, 1 tools, <nil>")
		f.noisy.Store(false)
		f.silent.Store(true)
		f.current.Load().stop(errors.New("exit code 3"))
		eventually(t, k, "ready false, 1 tools, "+want)
	})
}

// One that falls silent is not ready although others answered before it.
func TestKeeperOfAServerThatFallsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		k := newKeeper(t, f, func(o *Options) { o.Patience = 50 * time.Millisecond })
		eventually(t, k, "ready true, 1 tools, <nil>")
		f.silent.Store(true)
		f.current.Load().stop(errors.New("exit code 3"))
		await(t, "a server that is silent", func() bool {
			state, _ := k.State()
			return !state.Ready && state.Reason == adapterapi.Silent
		})
	})
}

// No room for another process says nothing of the server: it stays ready.
func TestKeeperWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		var full atomic.Bool
		k := newKeeper(t, f, func(o *Options) {
			o.Connect = func(ctx context.Context, stateless bool) (Connection, error) {
				if full.Load() {
					return Connection{}, fmt.Errorf("%w: near the memory limit", ErrNoRoom)
				}
				return f.connect(ctx, stateless)
			}
		})
		eventually(t, k, "ready true, 1 tools, <nil>")
		full.Store(true)
		f.current.Load().stop(errors.New("exit code 3"))
		eventually(t, k, "ready true, 1 tools, there is no room for another server process: near the memory limit")
		full.Store(false)
		eventually(t, k, "ready true, 1 tools, <nil>")
	})
}

// A server that answers and then ends, again and again, is not started in a tight loop.
func TestKeeperSlowsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var starts int
		k := New(Options{
			Connect: func(context.Context, bool) (Connection, error) {
				starts++
				f := &fleet{}
				connection, err := f.connect(t.Context(), false)
				time.AfterFunc(time.Second, func() { f.current.Load().stop(errors.New("exit code 3")) })
				return connection, err
			},
			StartTimeout: time.Minute, Patience: time.Minute, PingInterval: time.Minute, PingTimeout: time.Minute, Settle: time.Second, Log: testr.New(t),
		})
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		k.Run(ctx)
		if state, _ := k.State(); !state.Ready || starts > 15 {
			t.Errorf("%d starts in a minute, ready %t", starts, state.Ready)
		}
	})
}

// Some servers end when the first request is not initialize.
func TestKeeperOfAServerThatWantsInitializeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{initializeFirst: true}
		k := newKeeper(t, f, nil)
		eventually(t, k, "ready true, 1 tools, <nil>")
		if got := f.started.Load(); got != 2 {
			t.Errorf("%d servers were started, want 2", got)
		}
		f.current.Load().stop(errors.New("exit code 3"))
		f.awaitStarted(t, 3)
		eventually(t, k, "ready true, 1 tools, <nil>")
		if got := f.started.Load(); got != 3 {
			t.Errorf("the keeper forgot how the server wants to be asked: %d were started", got)
		}
	})
}

// A server that offers more than the keeper accepts still works.
func TestKeeperOfTooMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t, &fleet{}, func(o *Options) { o.Probe.Limits.ItemBytes = 5 })
		await(t, "a server that offers too much", func() bool {
			state, _ := k.State()
			return state.Ready && state.Reason == adapterapi.TooLarge && state.Err != nil && state.Catalog == nil
		})
	})
}

// A server that wants credentials is there, and its clients may have them.
func TestKeeperWithoutCredentials(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	defer server.Close()
	k := newKeeper(t, &fleet{}, func(o *Options) {
		o.Connect = func(context.Context, bool) (Connection, error) {
			return Connection{Target: mcpprobe.HTTP(server.URL, nil), Close: func() {}, Reason: func(time.Duration) error { return nil }}, nil
		}
	})
	await(t, "a server that wants credentials", func() bool {
		state, _ := k.State()
		return state.Ready && state.Reason == adapterapi.Unauthorized && state.Catalog == nil
	})
}

func TestReasons(t *testing.T) {
	alive := Connection{Reason: func(time.Duration) error { return nil }}
	dead := Connection{Reason: func(time.Duration) error { return errors.New("exit code 3") }}
	for name, test := range map[string]struct {
		err        error
		connection Connection
		want       adapterapi.Reason
	}{
		"its end comes first": {&mcpprobe.Error{Class: mcpprobe.Timeout}, dead, adapterapi.Exited},
		"no answer":           {&mcpprobe.Error{Class: mcpprobe.Timeout}, alive, adapterapi.Silent},
		"the end of output":   {&mcpprobe.Error{Class: mcpprobe.Closed}, alive, adapterapi.Exited},
		"nothing listens":     {&mcpprobe.Error{Class: mcpprobe.Unreachable}, alive, adapterapi.Unstartable},
		"no patience":         {&mcpprobe.Error{Class: mcpprobe.Busy}, alive, adapterapi.Busy},
		"credentials":         {&mcpprobe.Error{Class: mcpprobe.Unauthorized}, alive, adapterapi.Unauthorized},
		"nonsense":            {&mcpprobe.Error{Class: mcpprobe.Protocol}, alive, adapterapi.Broken},
		"too much":            {&mcpprobe.Error{Class: mcpprobe.TooLarge}, alive, adapterapi.Broken},
	} {
		t.Run(name, func(t *testing.T) {
			if got, _, _ := explain(test.err, test.connection); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
