package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/launcher"
	"github.com/slipway-mcp/slipway/internal/promise"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/test/hang"
	"github.com/slipway-mcp/slipway/test/servers"
)

// echoServer is the program that the tests run for each session.
var echoServer string

func TestMain(m *testing.M) {
	os.Exit(servers.Run(m, map[string]*string{"test/servers/echo": &echoServer}))
}

// testOptions have no limit that a slow machine can reach.
var testOptions = Options{
	LineBytes: 16 << 20, Max: 8, Starts: 2,
	StartHold: time.Hour, EOFGrace: time.Hour, TermGrace: time.Hour, SendTimeout: time.Hour,
}

func newPool(t *testing.T, options Options, command ...string) *Pool {
	t.Helper()
	if len(command) == 0 {
		command = []string{echoServer}
	}
	direct, err := launcher.NewDirect(launcher.Options{Command: command, Stderr: &testLog{t: t}})
	if err != nil {
		t.Fatalf("NewDirect: %v", err)
	}
	t.Cleanup(func() {
		if err := direct.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	options.Log = testr.New(t)
	return NewPool(direct, options)
}

type testLog struct{ t *testing.T }

func (l *testLog) Write(b []byte) (int, error) { return len(b), nil }

// conversation is a server with what it has said so far.
type conversation struct {
	*Server
	t     *testing.T
	said  chan string
	ended chan error
}

func converse(t *testing.T, pool *Pool) *conversation {
	t.Helper()
	server, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatalf("acquire: %v", err)
	}
	c := &conversation{server, t, make(chan string, 1024), make(chan error, 1)}
	server.Serve(func(m session.Message) { c.said <- string(m.Bytes) }, func(err error) { c.ended <- err })
	return c
}

func (c *conversation) send(message string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), hang.Guard)
	defer cancel()
	if err := c.Send(ctx, session.Message{Bytes: []byte(message)}); err != nil {
		c.t.Fatalf("send: %v", err)
	}
}

func (c *conversation) call(tool, arguments string) {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `","arguments":{` + arguments + `},"_meta":{"progressToken":1}}}`)
}

func (c *conversation) hear() string {
	c.t.Helper()
	select {
	case said := <-c.said:
		return said
	case err := <-c.ended:
		c.t.Fatalf("the server ended: %v", err)
	case <-time.After(hang.Guard):
		c.t.Fatal("the server says nothing")
	}
	return ""
}

func (c *conversation) end() error {
	c.t.Helper()
	select {
	case err := <-c.ended:
		return err
	case <-time.After(hang.Guard):
		c.t.Fatal("the server does not end")
		return nil
	}
}

func eventuallyNone(t *testing.T, pool *Pool) {
	t.Helper()
	gomega.NewWithT(t).Eventually(pool.metrics.Running.Load).WithTimeout(hang.Guard).Should(gomega.BeZero())
}

func TestConversation(t *testing.T) {
	t.Parallel()
	pool := newPool(t, testOptions)
	c := converse(t, pool)
	c.call("echo", `"text":"\u00e9\u200d"`)
	if got := c.hear(); !strings.Contains(got, "\u00e9\u200d") {
		t.Errorf("got %s", got)
	}
	c.Close()
	if err := c.end(); !errors.Is(err, session.ErrEnded) {
		t.Errorf("ended with %v", err)
	}
	eventuallyNone(t, pool)
}

// R23: two sessions have two processes, and no state of one is seen by the other.
func TestProcessesAreApart(t *testing.T) {
	t.Parallel()
	pool := newPool(t, testOptions)
	one, two := converse(t, pool), converse(t, pool)
	one.call("count", "")
	one.hear()
	one.call("count", "")
	if got := one.hear(); !strings.Contains(got, `"text":"2"`) {
		t.Errorf("first session: %s", got)
	}
	two.call("count", "")
	if got := two.hear(); !strings.Contains(got, `"text":"1"`) {
		t.Errorf("second session: %s", got)
	}
	if one.process.PID == two.process.PID {
		t.Error("both have one process")
	}
}

// R06, T-27: the reason for an end names exit code or signal, and the last words.
// TestDeathIsToldInTime says how soon.
func TestReasons(t *testing.T) {
	for name, test := range map[string]struct {
		options      func(*Options)
		tool, params string
		want         []string
	}{
		"exit code":     {nil, "exit", `"n":3`, []string{"exit code 3", "echo: told to exit"}},
		"signal":        {nil, "kill", "", []string{"signal 9 (killed)"}},
		"output closed": {nil, "close", "", []string{"closed its standard output"}},
		"line too long": {func(o *Options) { o.LineBytes = 1 << 10 }, "big", `"n":2000`, []string{"more than 1024 bytes"}},
		"no room for it": {func(o *Options) {
			o.Memory, o.MemoryName = budget.New(64<<10, 1), "--memory-limit"
			o.Memory.Patience = time.Millisecond
		}, "big", `"n":200000`, []string{"read message of more than 65536 bytes", "memory budget has no room", "raise --memory-limit"}},
		"ended by itself": {nil, "exit", `"n":0`, []string{"exit code 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := testOptions
			if test.options != nil {
				test.options(&options)
			}
			pool := newPool(t, options)
			c := converse(t, pool)
			c.call("pid", "")
			c.hear()
			c.call(test.tool, test.params)
			reason := c.end().Error()
			for _, want := range test.want {
				if !strings.Contains(reason, want) {
					t.Errorf("reason %q, want %q in it", reason, want)
				}
			}
			c.Close()
			eventuallyNone(t, pool)
		})
	}
}

// Large messages take room of the budget while they are read, and give it back.
func TestLargeMessagesTakeRoom(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	options := testOptions
	options.Memory = budget.New(64<<20, 1)
	c := converse(t, newPool(t, options))
	pressed := make(chan struct{}, 1024)
	other := options.Memory.Account(func() { pressed <- struct{}{} })
	other.Change(63 << 20)
	c.call("big", fmt.Sprintf(`"n":%d`, size))
	select {
	case <-c.said:
		t.Fatal("the adapter read a message that the budget has no room for")
	case err := <-c.ended:
		t.Fatal(err)
	case <-pressed: // it waits
	case <-time.After(hang.Guard):
		t.Fatal("the reader does not wait for room")
	}
	other.Change(-63 << 20)
	if got := len(c.hear()); got < size {
		t.Errorf("got %d bytes", got)
	}
	c.call("count", "")
	c.hear()
	if used := options.Memory.Used(); used != 0 {
		t.Errorf("%d bytes are used", used)
	}
}

// The budget has the room of a large message until the session takes it over. In between, other
// holders could take it, and all together would exceed the budget.
func TestLargeMessagesKeepTheirRoom(t *testing.T) {
	t.Parallel()
	large := `{"jsonrpc":"2.0","method":"x","params":{"x":"` + strings.Repeat("x", 300<<10) + `"}}`
	for name, test := range map[string]struct {
		output string
		want   int // messages
	}{
		"one":   {large, 1},
		"two":   {large + "\n" + large, 2},
		"batch": {"[" + large + "," + large + "]", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := testOptions
			options.Memory = budget.New(64<<20, 1)
			output := filepath.Join(t.TempDir(), "output")
			if err := os.WriteFile(output, []byte(test.output+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			server, err := newPool(t, options, "cat", output).Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			taker, got, ended := options.Memory.Account(nil), 0, make(chan error)
			server.ServeSession(func(m session.Message) {
				got++
				if held := m.Room.Held(); !m.Charged || held < int64(len(m.Bytes)) {
					t.Errorf("the message has room for %d of %d bytes, charged: %t", held, len(m.Bytes), m.Charged)
				}
				taker.TakeOver(len(m.Bytes), m.Room, len(m.Bytes))
			}, func(err error) { ended <- err })
			<-ended
			if want := int64(test.want * len(large)); got != test.want || taker.Held() != want || options.Memory.Used() != want {
				t.Errorf("got %d messages, %d bytes are held and %d used, want %d", got, taker.Held(), options.Memory.Used(), want)
			}
			server.Close()
		})
	}
}

// The best of many tries must keep the promise: a busy machine delays one or the
// other, and a wait that does not belong there delays them all.
func TestDeathIsToldInTime(t *testing.T) {
	pool := newPool(t, testOptions)
	best := time.Hour
	for try := 0; try < 30 && best > promise.Death; try++ {
		c := converse(t, pool)
		c.call("pid", "")
		c.hear()
		start := time.Now()
		c.process.Stop(0)
		_ = c.end()
		best = min(best, time.Since(start))
		c.Close()
	}
	t.Logf("told after %s at best", best)
	if best > promise.Death {
		t.Errorf("told after %s at best, want %s", best, promise.Death)
	}
}

// A process that dies at once is noticed as surely as any other.
func TestShortLivedProcesses(t *testing.T) {
	t.Parallel()
	pool := newPool(t, testOptions, "sh", "-c", "echo gone >&2; exit 4")
	for range 30 {
		c := converse(t, pool)
		if reason := c.end().Error(); !strings.Contains(reason, "exit code 4") {
			t.Fatalf("ended with %q", reason)
		}
		c.Close()
		eventuallyNone(t, pool)
	}
}

// S-03, R44: what is not a message is skipped and counted.
func TestJunk(t *testing.T) {
	t.Parallel()
	pool := newPool(t, testOptions)
	c := converse(t, pool)
	c.call("junk", "")
	if got := c.hear(); !strings.Contains(got, `"done"`) {
		t.Errorf("got %s", got)
	}
	if got := pool.metrics.JunkLines.Load(); got != 2 {
		t.Errorf("%d junk lines, want 2", got)
	}
}

// R47: both directions at once, each larger than any pipe.
func TestBothDirectionsAtOnce(t *testing.T) {
	t.Parallel()
	pool := newPool(t, testOptions)
	c := converse(t, pool)
	const size = 2 << 20
	go c.call("echo", `"text":"`+strings.Repeat("y", size)+`"`)
	c.call("big", fmt.Sprintf(`"n":%d`, size))
	for range 2 {
		if got := c.hear(); len(got) < size {
			t.Errorf("got %d bytes", len(got))
		}
	}
}

// R46: a server that floods its standard error is not blocked by it.
func TestStderrFlood(t *testing.T) {
	t.Parallel()
	pool := newPool(t, testOptions)
	c := converse(t, pool)
	c.call("stderr", `"n":20000,"text":"`+strings.Repeat("e", 200)+`"`)
	c.hear()
}

// A server that does not read is ended once part of a message has reached it: the
// rest of the stream would make no sense. A sender need not say how long to wait.
func TestServerThatDoesNotRead(t *testing.T) {
	const short, long = time.Second, time.Hour // by then part of the message is written, also on a slow machine
	for name, test := range map[string]struct{ timeout, patience time.Duration }{
		"for as long as the pool allows":  {short, long},
		"for as long as the sender waits": {long, short},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := testOptions
			options.SendTimeout = test.timeout
			pool := newPool(t, options, "sleep", "1000")
			c := converse(t, pool)
			ctx, cancel := context.WithTimeout(t.Context(), test.patience)
			defer cancel()
			if err := c.Send(ctx, session.Message{Bytes: []byte(strings.Repeat("x", 1<<20))}); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("send: got %v", err)
			}
			if reason := c.end().Error(); !strings.Contains(reason, "signal 9") {
				t.Errorf("ended with %s", reason)
			}
			if err := c.Send(t.Context(), session.Message{Bytes: []byte("{}")}); err == nil {
				t.Error("a message was sent after half of another")
			}
			eventuallyNone(t, pool)
		})
	}
}

// The deadline of a message is not that of those that follow it, however late they come,
// and nor is that of a sender who waited less.
func TestDeadlineMoves(t *testing.T) {
	const message = `{"jsonrpc":"2.0","method":"n"}`
	for name, patience := range map[string]time.Duration{
		"as long as the pool allows":  2 * testOptions.SendTimeout,
		"as long as the sender waits": hang.Guard,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := converse(t, newPool(t, testOptions, "cat"))
			for range 3 {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				if err := c.Send(ctx, session.Message{Bytes: []byte(message)}); err != nil {
					t.Fatalf("send: %v", err)
				}
				c.hear()
				cancel()
				if left := time.Until(c.deadline); left > min(patience, testOptions.SendTimeout) {
					t.Errorf("the deadline of the message is in %s", left)
				}
				// The deadline that was set passes.
				c.deadline = time.Now().Add(-time.Second)
				if err := c.process.Stdin.SetWriteDeadline(c.deadline); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// S-06: end of input, then TERM, then KILL.
func TestStubbornServer(t *testing.T) {
	t.Parallel()
	options := testOptions
	options.EOFGrace, options.TermGrace = 50*time.Millisecond, 50*time.Millisecond
	pool := newPool(t, options, "sh", "-c", `trap "" TERM; echo '{"jsonrpc":"2.0","method":"ready"}'; while :; do sleep 1; done`)
	c := converse(t, pool)
	c.hear()
	c.Close()
	_ = c.end()
	eventuallyNone(t, pool)
}

func TestContentLengthFraming(t *testing.T) {
	t.Parallel()
	options := testOptions
	options.Framing = rpc.ContentLength
	pool := newPool(t, options, "cat") // it answers with what it is sent
	c := converse(t, pool)
	const message = `{"jsonrpc":"2.0","method":"hello"}`
	c.send(message)
	if got := c.hear(); got != message {
		t.Errorf("got %s", got)
	}
}

func TestLimits(t *testing.T) {
	t.Run("processes", func(t *testing.T) {
		options := testOptions
		options.Max = 2
		pool := newPool(t, options)
		one := converse(t, pool)
		converse(t, pool)
		if _, err := pool.Acquire(t.Context()); !errors.Is(err, fault.ErrFull) {
			t.Errorf("one too many: got %v", err)
		}
		one.Close()
		gomega.NewWithT(t).Eventually(func() error {
			server, err := pool.Acquire(t.Context())
			if err == nil {
				server.Close()
			}
			return err
		}).WithTimeout(hang.Guard).Should(gomega.Succeed())
	})
	t.Run("R12 starts", func(t *testing.T) {
		options := testOptions
		options.Starts = 1
		pool := newPool(t, options)
		first := converse(t, pool) // says nothing, so it is still starting
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := pool.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while the first one starts: got %v", err)
		}
		first.call("pid", "")
		first.hear()
		converse(t, pool)
	})
	t.Run("command that is not there", func(t *testing.T) {
		pool := newPool(t, testOptions, "/does/not/exist")
		_, err := pool.Acquire(t.Context())
		if err == nil || !strings.Contains(err.Error(), "/does/not/exist") {
			t.Errorf("got %v, want the command named", err)
		}
		if pool.alive != 0 || len(pool.starting) != 0 {
			t.Errorf("places are still taken: %d, %d", pool.alive, len(pool.starting))
		}
	})
}

func TestSpares(t *testing.T) {
	t.Parallel()
	options := testOptions
	options.Warm = 2
	pool := newPool(t, options)
	ctx, cancel := context.WithCancel(t.Context())
	finished := make(chan struct{})
	go func() {
		pool.Run(ctx)
		close(finished)
	}()
	g := gomega.NewWithT(t)
	spares := func() int {
		pool.mu.Lock()
		defer pool.mu.Unlock()
		return len(pool.spares)
	}
	g.Eventually(spares).WithTimeout(hang.Guard).Should(gomega.Equal(2))

	pool.mu.Lock()
	first := pool.spares[0]
	pool.mu.Unlock()
	c := converse(t, pool)
	if c.Server != first {
		t.Error("the oldest spare was not used")
	}
	c.call("pid", "")
	c.hear()
	g.Eventually(spares).WithTimeout(hang.Guard).Should(gomega.Equal(2))

	pool.mu.Lock()
	spare := pool.spares[0]
	pool.mu.Unlock()
	spare.process.Stop(0) // R10: a dead one is never handed out
	g.Eventually(func() bool {
		pool.mu.Lock()
		defer pool.mu.Unlock()
		return len(pool.spares) == 2 && pool.spares[0] != spare && pool.spares[1] != spare
	}).WithTimeout(hang.Guard).Should(gomega.BeTrue())

	pool.EndSpares() // and no others, though processes start when they are wanted
	late := converse(t, pool)
	late.call("pid", "")
	late.hear()
	g.Eventually(pool.metrics.Running.Load).WithTimeout(hang.Guard).Should(gomega.BeEquivalentTo(2))
	if n := spares(); n != 0 {
		t.Errorf("%d spares", n)
	}
	late.Close()
	c.Close()
	cancel()
	<-finished
	eventuallyNone(t, pool)
	if _, err := pool.Acquire(t.Context()); !errors.Is(err, fault.ErrDraining) {
		t.Errorf("acquire afterwards: %v", err)
	}
}

// R01, R22: many sessions leave no descriptor behind.
func TestNothingIsLeft(t *testing.T) {
	pool := newPool(t, testOptions)
	descriptors := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	c := converse(t, pool)
	c.Close()
	_ = c.end()
	eventuallyNone(t, pool)
	before := descriptors()
	for i := range 21 {
		c := converse(t, pool)
		switch i % 3 {
		case 0:
			c.Close()
		case 1:
			c.call("exit", "")
		case 2:
			c.process.Stop(0)
		}
		_ = c.end()
		c.Close()
		eventuallyNone(t, pool)
	}
	gomega.NewWithT(t).Eventually(descriptors).WithTimeout(hang.Guard).Should(gomega.BeNumerically("<=", before))
}

// R44: a message with a text that is not UTF-8 arrives, with characters that say so. What
// is not a message remains none.
func TestInvalidUTF8(t *testing.T) {
	pool := newPool(t, testOptions, "sh", "-c", `printf '{"jsonrpc":"2.0","method":"\303\251","params":{"a":"\377"}}\n{"\377"}\n{"jsonrpc":"2.0","method":"last"}\n'; cat`)
	c := converse(t, pool)
	defer c.Close()
	for _, want := range []string{"{\"jsonrpc\":\"2.0\",\"method\":\"\u00e9\",\"params\":{\"a\":\"\ufffd\"}}", `{"jsonrpc":"2.0","method":"last"}`} {
		if got := c.hear(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if junk := pool.metrics.JunkLines.Load(); junk != 1 {
		t.Errorf("%d lines are junk, want 1", junk)
	}
}
