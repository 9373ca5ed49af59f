package shared

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/slipway-mcp/slipway/internal/launcher"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge/edgetest"
	"github.com/slipway-mcp/slipway/internal/sidecar/front/streamable"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/child"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/test/hang"
)

// newReal is a Process over real ones that run the echo server.
func newReal(t *testing.T, lineBytes int, command ...string) (*Process, *child.Pool) {
	t.Helper()
	if len(command) == 0 {
		command = []string{echoServer}
	}
	direct, err := launcher.NewDirect(launcher.Options{Command: command, Stderr: io.Discard})
	if err != nil {
		t.Fatalf("NewDirect: %v", err)
	}
	pool := child.NewPool(direct, child.Options{
		LineBytes: lineBytes, Max: 2, Starts: 1,
		StartHold: time.Hour, EOFGrace: time.Hour, TermGrace: time.Hour, SendTimeout: time.Hour,
	})
	options := testOptions()
	options.Acquire = func(ctx context.Context) (mux.Server, error) { return pool.Acquire(ctx) }
	p := New(options)
	t.Cleanup(func() {
		p.Close()
		await(t, "processes to end", func() bool { return pool.Metrics().Running.Load() == 0 })
		if err := direct.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return p, pool
}

// R23, R24: all sessions share one process, and that is what it says it is.
func TestRealSharing(t *testing.T) {
	t.Parallel()
	p, pool := newReal(t, 16<<20)
	one, two := connect(t, p), connect(t, p)
	expect(t, "count", one.ask(tool("count", "")), `"text":"1"`)
	expect(t, "count", two.ask(tool("count", "")), `"text":"2"`)
	if pid := one.ask(tool("pid", "")); pid != two.ask(tool("pid", "")) {
		t.Error("two processes")
	}
	listening := two.listen()
	expect(t, "Q-01 ask", one.ask(tool("ask", `"text":"?"`)), `\"code\":-32601`)
	expect(t, "log", one.ask(tool("log", `"text":"secret"`)), `"done"`)
	expect(t, "junk", one.ask(tool("junk", "")), `"done"`)
	expect(t, "changed", one.ask(tool("changed", "")), `notifications/tools/list_changed`, `"done"`)
	got, _ := next(t, listening)
	expect(t, "other session", got, "notifications/tools/list_changed")

	const count = 200
	text := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"burst","arguments":{"n":200,"size":100},"_meta":{"progressToken":"t"}}}`
	streams := []*session.Stream{one.call(text), two.call(text)}
	for _, stream := range streams {
		if got := all(t, stream); len(got) != count+1 || !strings.Contains(got[count-1], `"progressToken":"t","progress":199,`) {
			t.Errorf("R55 burst: got %d messages, the last but one %.200s", len(got), got[max(0, len(got)-2)])
		}
	}
	expectNothing(t, "other session", listening)
	if pool.Metrics().Starts.Load() != 1 || p.Metrics().LogMessages.Value() != 1 || p.Metrics().RefusedRequests.Value() != 1 {
		t.Error("counted wrongly")
	}
}

// R10, R06, T-27: whatever ends the child process, every call in flight gets an error, and the next
// session has a fresh process.
func TestRealEnds(t *testing.T) {
	for name, test := range map[string]struct {
		lineBytes   int
		tool, args  string
		want, hides string
	}{
		"exit":          {16 << 20, "exit", `"n":3`, "exit code 3", "told to exit"},
		"kill":          {16 << 20, "kill", "", "signal 9", "stderr"},
		"output closed": {16 << 20, "close", "", "closed its standard output", "stderr"},
		"line too long": {1 << 10, "big", `"n":3000`, "more than 1024 bytes", "stderr"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, _ := newReal(t, test.lineBytes)
			culprit, others := connect(t, p), []*client{connect(t, p), connect(t, p)}
			before := culprit.ask(tool("pid", ""))
			var streams []*session.Stream
			for _, c := range others {
				streams = append(streams, c.call(tool("sleep", `"ms":600000`)))
			}
			streams = append(streams, culprit.call(tool(test.tool, test.args)))
			for _, stream := range streams {
				got := strings.Join(all(t, stream), "")
				expect(t, "call in flight", got, `"id":1,"error":{"code":-32603`, test.want)
				if strings.Contains(got, test.hides) {
					t.Errorf("sessions are told what another one's call made the server say: %s", got)
				}
			}
			for _, c := range append(others, culprit) {
				<-c.Done()
			}
			if after := connect(t, p).ask(tool("pid", "")); after == before {
				t.Error("the same process")
			}
		})
	}
}

// A session's end cancels its calls at the process, which goes on.
func TestRealCancel(t *testing.T) {
	t.Parallel()
	p, pool := newReal(t, 16<<20)
	one, two := connect(t, p), connect(t, p)
	one.call(tool("sleep", `"ms":600000`))
	stream := two.call(tool("sleep", `"ms":50`))
	one.End(errors.New("gone"))
	expect(t, "other call", strings.Join(all(t, stream), ""), `"id":1`, "slept")
	if pool.Metrics().Running.Load() != 1 {
		t.Error("the process was ended with the session")
	}
}

// R06: a command that ends instead of answering says why, with its last words, and the
// client does not wait until the start has taken too long.
func TestR06RealStart(t *testing.T) {
	t.Parallel()
	p, _ := newReal(t, 16<<20, "sh", "-c", "read hello; echo no license >&2; exit 4")
	p.options.StartTimeout = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), hang.Guard)
	defer cancel()
	_, err := p.Open(ctx)
	if err == nil {
		t.Fatal("opened")
	}
	expect(t, "error", err.Error(), "exit code 4", "no license")
}

// R47: large messages both ways from many sessions at once.
func TestR47RealBothDirections(t *testing.T) {
	t.Parallel()
	p, _ := newReal(t, 16<<20)
	const size = 1 << 17
	var all sync.WaitGroup
	for i := range 8 {
		c := connect(t, p)
		all.Go(func() {
			text := strings.Repeat(fmt.Sprintf("%d\u00a0", i), size/3)
			expect(t, "echo", c.ask(tool("echo", `"text":"`+text+`"`)), text)
		})
	}
	all.Wait()
}

// serveHTTP offers sessions of the process at a URL.
func serveHTTP(t *testing.T, p *Process) string {
	t.Helper()
	registry := session.NewRegistry(session.Policy{Max: 8, IdleTimeout: time.Hour, MaxLifetime: time.Hour})
	var mu sync.Mutex
	ids := 0
	server := httptest.NewServer(edgetest.At(streamable.New(streamable.Options{
		Sessions: registry,
		Open:     func(ctx context.Context, _ *caller.Caller) (*session.Session, error) { return p.Open(ctx) },
		MintID: func() string {
			mu.Lock()
			defer mu.Unlock()
			ids++
			return fmt.Sprintf("s%d", ids)
		},
		OpenTimeout: hang.Guard, WriteTimeout: hang.Guard,
		KeepAlive: time.Second, Retry: time.Second,
	}).Route()))
	t.Cleanup(server.Close)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		registry.Drain(ctx)
	})
	return server.URL
}

// Official clients over HTTP, all on one process.
func TestRealOverHTTP(t *testing.T) {
	t.Parallel()
	p, pool := newReal(t, 16<<20)
	url := serveHTTP(t, p)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			progress := make(chan string, 100)
			c := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, &mcp.ClientOptions{
				ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
					progress <- fmt.Sprint(r.Params.ProgressToken)
				},
			})
			connected, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url}, nil)
			if err != nil {
				t.Errorf("connect: %v", err)
				return
			}
			params := &mcp.CallToolParams{Name: "burst", Arguments: map[string]any{"n": 10}}
			params.SetProgressToken(fmt.Sprintf("token-%d", i))
			if _, err := connected.CallTool(t.Context(), params); err != nil {
				t.Errorf("call: %v", err)
			}
			for range 10 {
				if got := <-progress; got != fmt.Sprintf("token-%d", i) {
					t.Errorf("client %d got progress of %s", i, got)
				}
			}
			result, err := connected.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": strconv.Itoa(i)}})
			if err != nil || result.Content[0].(*mcp.TextContent).Text != strconv.Itoa(i) {
				t.Errorf("client %d: %v, %v", i, result, err)
			}
			if err := connected.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
	all.Wait()
	if n := pool.Metrics().Starts.Load(); n != 1 {
		t.Errorf("%d processes", n)
	}
}
