package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/listener"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/test/hang"
)

// mustOpen opens a session.
func mustOpen(t *testing.T, url string) *client {
	t.Helper()
	c, err := newClient(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.http.CloseIdleConnections)
	return c
}

// wantAnswer makes a call whose answer must be this text.
func (c *client) wantAnswer(t *testing.T, tool, text string) {
	t.Helper()
	got, err := c.messages(t.Context(), call(1, tool, ""))
	if err == nil {
		err = answers(`"id":1,`, text)(got)
	}
	if err != nil {
		t.Errorf("%s: %v", tool, err)
	}
}

func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// R07: when a client goes away while the adapter opens its session, the adapter ends the
// process: no client knows the session's ID, so no client could ever use it.
func TestR07ClientGoneDuringInitialize(t *testing.T) {
	t.Parallel()
	listener, err := listener.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	// A server that reads and never answers.
	adapter, url := startAdapterOn(t, listener, func(c *config.Config) {
		c.Warm, c.MaxSessions, c.StartTimeout, c.Era = 0, 1, time.Hour, sessionless.Legacy
	}, "sh", "-c", "while read line; do :; done")
	running := published(t, adapter, "server_processes")
	g := gomega.NewWithT(t)
	g.Eventually(running).WithTimeout(hang.Guard).Should(gomega.BeNumerically("==", 1)) // the keeper's
	for range 3 {                                                                       // there is one place: it must be free again each time
		ctx, leave := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			_, err := newClient(ctx, url)
			gone <- err
		}()
		g.Eventually(running).WithTimeout(hang.Guard).Should(gomega.BeNumerically("==", 2))
		leave()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Fatalf("the client ended with %v", err)
		}
		g.Eventually(running).WithTimeout(hang.Guard).Should(gomega.BeNumerically("==", 1))
	}
}

// hold opens a session with a stream, which keeps it from being idle until it is released.
// When the session was idle for too long before that, the client opens another, as clients
// do.
func hold(ctx context.Context, url string) (c *client, release func(), err error) {
	for {
		if c, err = newClient(ctx, url); err != nil {
			return nil, nil, err
		}
		stream, err := c.do(ctx, http.MethodGet, "")
		if err != nil {
			return nil, nil, err
		}
		release = func() {
			_ = stream.Body.Close()
			c.http.CloseIdleConnections()
		}
		if stream.StatusCode == http.StatusOK {
			return c, release, nil
		}
		release()
		if stream.StatusCode != http.StatusNotFound {
			return nil, nil, fmt.Errorf("open stream: %s", stream.Status)
		}
	}
}

// R08: clients leave without ending their sessions. Their processes still end, and so do
// those of an adapter that ends. The test asks the kernel, not the adapter's own count.
func TestR08ProcessesEnd(t *testing.T) {
	t.Parallel()
	const sessions = 12
	pids := make([]int, sessions)
	last := 0
	t.Run("adapter", func(t *testing.T) {
		adapter, url := startAdapter(t, func(c *config.Config) {
			c.MaxSessions, c.IdleTimeout, c.ConcurrentStarts = sessions, time.Second, 8
		})
		var running sync.WaitGroup
		for i := range pids {
			running.Go(func() {
				c, release, err := hold(t.Context(), url)
				if err != nil {
					t.Errorf("client %d: %v", i, err)
					return
				}
				defer release()
				if pids[i], err = c.pid(t.Context()); err != nil {
					t.Errorf("client %d: %v", i, err)
				}
			})
		}
		running.Wait()
		if t.Failed() {
			return
		}
		g := gomega.NewWithT(t)
		for _, pid := range pids {
			g.Eventually(func() bool { return alive(pid) }).WithTimeout(hang.Guard).Should(gomega.BeFalse(), "process %d", pid)
		}
		g.Eventually(adapter.env.Sessions.Len).WithTimeout(hang.Guard).Should(gomega.BeZero())
		c, release, err := hold(t.Context(), url) // until the adapter ends
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(release)
		if last, err = c.pid(t.Context()); err != nil || !alive(last) {
			t.Fatalf("process %d of an open session: %v", last, err)
		}
	})
	if last != 0 && alive(last) {
		t.Errorf("process %d outlives its adapter", last)
	}
}

// pagingServer is a server of the official SDK with pages of two.
func pagingServer() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "paging", Version: "1"}, &mcp.ServerOptions{PageSize: 2})
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		mcp.AddTool(server, &mcp.Tool{Name: name}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{}, nil, nil
		})
	}
	return server
}

// R18: a client of the stateless revision calls a server that does not know it. The adapter
// serves the client or returns an error. No process dies, and the next request works.
func TestR18StatelessRequestToAnOlderServer(t *testing.T) {
	t.Parallel()
	const discover = `{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	stateful := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return countingServer() }, nil)
	older := mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return countingServer() }, nil)
	for name, test := range map[string]struct {
		change func(*config.Config)
		status int
		want   string
	}{
		"a process for each session": {nil, 200, `"supportedVersions":["2026-07-28",`},
		"one process for all":        {func(c *config.Config) { c.Shared = true }, 200, `"supportedVersions":["2026-07-28",`},
		"streamable-http":            {func(c *config.Config) { c.Transport, c.UpstreamURL = config.StreamableHTTP, serveHTTP(t, stateful) }, 200, `"supportedVersions":["2026-07-28",`},
		"sse":                        {func(c *config.Config) { c.Transport, c.UpstreamURL = config.SSE, serveHTTP(t, older) }, 200, `"supportedVersions":["2026-07-28",`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			adapter, url := startAdapter(t, test.change)
			gomega.NewWithT(t).Eventually(func() bool {
				state, _ := adapter.env.Keeper.State()
				return state.Ready
			}).WithTimeout(hang.Guard).Should(gomega.BeTrue())
			stranger := &client{url: url, http: &http.Client{}}
			t.Cleanup(stranger.http.CloseIdleConnections)
			c := mustOpen(t, url)
			modern := map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "server/discover"}
			for _, who := range []client{*stranger, *c, *stranger} {
				who.headers = modern
				response, err := who.post(t.Context(), discover)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(response.Body)
				_ = response.Body.Close()
				if err != nil || response.StatusCode != test.status || !strings.Contains(string(body), test.want) {
					t.Errorf("got %s: %s, %v; want %d with %s", response.Status, body, err, test.status, test.want)
				}
			}
			c.wantAnswer(t, "count", `"text":"1"`)
			mustOpen(t, url) // what the stranger would do next
		})
	}
}

// R21: connections come and go, by either side's doing; the session stays.
func TestR21SessionOutlivesItsConnections(t *testing.T) {
	t.Parallel()
	t.Run("the client closes", func(t *testing.T) {
		t.Parallel()
		_, url := startAdapter(t, nil)
		c := mustOpen(t, url)
		for i := range 5 {
			c.http.CloseIdleConnections()
			c.wantAnswer(t, "count", fmt.Sprintf(`"text":"%d"`, i+1))
		}
	})
	t.Run("the server closes", func(t *testing.T) {
		t.Parallel()
		adapter, _ := startAdapter(t, nil)
		// The same server with less patience for silent connections.
		impatient := &listener.NewServer(adapter.clients.Handler, 1, logr.Discard()).Server
		impatient.IdleTimeout = 10 * time.Millisecond
		closed := make(chan struct{}, 16)
		impatient.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				closed <- struct{}{}
			}
		}
		listener, err := listener.Listen(t.Context(), "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = impatient.Serve(listener) }()
		t.Cleanup(func() { _ = impatient.Close() })
		c := mustOpen(t, "http://"+listener.Addr().String()+Path)
		for i := range 5 {
			gomega.NewWithT(t).Eventually(closed).WithTimeout(hang.Guard).Should(gomega.Receive())
			c.http.CloseIdleConnections() // it may not have noticed yet
			c.wantAnswer(t, "count", fmt.Sprintf(`"text":"%d"`, i+1))
		}
	})
}

// R36: the cursor reaches the server, so that clients and the keeper see every page
// and each of them once.
func TestR36EveryPageIsSeen(t *testing.T) {
	t.Parallel()
	always := func(*http.Request) *mcp.Server { return pagingServer() }
	const echoTools, sdkTools = "echo count pid sleep burst big ask log junk stderr exit kill close changed spawn whoami allocate flood", "a b c d e"
	for name, test := range map[string]struct {
		change func(*config.Config)
		want   string
	}{
		"a process for each session": {nil, echoTools},
		"one process for all":        {func(c *config.Config) { c.Shared = true }, echoTools},
		"streamable-http": {func(c *config.Config) {
			c.Transport, c.UpstreamURL = config.StreamableHTTP, serveHTTP(t, mcp.NewStreamableHTTPHandler(always, nil))
		}, sdkTools},
		"sse": {func(c *config.Config) {
			c.Transport, c.UpstreamURL = config.SSE, serveHTTP(t, mcp.NewSSEHandler(always, nil))
		}, sdkTools},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listener, err := listener.Listen(t.Context(), "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			adapter, url := startAdapterOn(t, listener, test.change, echoServer, "--page", "2")
			c := mustOpen(t, url)
			names, pages := listTools(t, c)
			if names != test.want || pages != (strings.Count(test.want, " ")+2)/2 {
				t.Errorf("the client sees %q on %d pages, want %q", names, pages, test.want)
			}
			gomega.NewWithT(t).Eventually(func() int {
				state, _ := adapter.env.Keeper.State()
				if state.Catalog == nil {
					return 0
				}
				return len(state.Catalog.Tools)
			}).WithTimeout(hang.Guard).Should(gomega.Equal(strings.Count(test.want, " ") + 1))
		})
	}
}

// listTools follows the cursors up to a limit.
func listTools(t *testing.T, c *client) (names string, pages int) {
	t.Helper()
	var all []string
	params := `{}`
	for pages = 1; pages <= 100; pages++ {
		got, err := c.messages(t.Context(), fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/list","params":%s}`, pages, params))
		var answer struct {
			Result struct {
				Tools      []struct{ Name string }
				NextCursor string
			}
		}
		if err == nil {
			err = json.Unmarshal([]byte(got[len(got)-1]), &answer)
		}
		if err != nil {
			t.Fatalf("page %d: %v", pages, err)
		}
		for _, tool := range answer.Result.Tools {
			all = append(all, tool.Name)
		}
		if answer.Result.NextCursor == "" {
			break
		}
		params = fmt.Sprintf(`{"cursor":%q}`, answer.Result.NextCursor)
	}
	return strings.Join(all, " "), pages
}

// While an adapter drains, every answer outside sessions tells the client to connect
// elsewhere. A session is nowhere else.
func TestAnswersWhileDrainingCloseTheConnection(t *testing.T) {
	t.Parallel()
	adapter, url := startAdapter(t, nil)
	c := mustOpen(t, url)
	question, err := c.post(t.Context(), call(1, "ask", `"text":"busy"`)) // keeps the session from ending
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = question.Body.Close() }()
	const ping = `{"jsonrpc":"2.0","id":2,"method":"ping"}`
	closes := func(body string) (status int, closes bool) {
		t.Helper()
		response, err := c.post(t.Context(), body)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		return response.StatusCode, response.Close
	}
	if status, closes := closes(ping); status != http.StatusOK || closes {
		t.Errorf("before: %d, closes %t", status, closes)
	}
	adapter.Drain()
	if status, closes := closes(ping); status != http.StatusOK || closes {
		t.Errorf("in the session: %d, closes %t", status, closes)
	}
	stranger := &client{url: url, http: c.http}
	response, err := stranger.post(t.Context(), `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusServiceUnavailable || !response.Close {
		t.Errorf("a new session: %s, closes %t", response.Status, response.Close)
	}
	if status, closes := closes(`{"jsonrpc":"2.0","id":1,"result":{"action":"accept"}}`); status != http.StatusAccepted || closes {
		t.Errorf("the answer to the question: %d, closes %t", status, closes)
	}
	if rest, err := io.ReadAll(question.Body); err != nil || !strings.Contains(string(rest), `"id":1,"result"`) {
		t.Errorf("the call in flight: %s, %v", rest, err)
	}
}
