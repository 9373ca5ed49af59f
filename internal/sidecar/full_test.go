package sidecar

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/slipway-mcp/slipway/internal/sidecar/config"
)

const initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`

// listAndLeave opens a session as a command line does that lists the tools and says no goodbye.
func listAndLeave(t *testing.T, url string) *client {
	t.Helper()
	c := mustOpen(t, url)
	response, err := c.post(t.Context(), initialized)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if _, err := c.messages(t.Context(), `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); err != nil {
		t.Fatalf("list tools: %v", err)
	}
	return c
}

// An adapter whose slots are taken ends a session that its client has left, but no session
// in use. If the client comes back, the adapter tells it why.
func TestFullServerMakesRoom(t *testing.T) {
	t.Parallel()
	const text = `"text":"`
	for name, change := range map[string]func(*config.Config){
		"stdio": func(*config.Config) {},
		"http": func(c *config.Config) {
			server := countingServer()
			c.Transport = config.StreamableHTTP
			c.UpstreamURL = serveHTTP(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			adapter, url := startAdapter(t, func(c *config.Config) {
				c.MaxSessions = 3
				change(c)
			})
			gone, worked, listening := listAndLeave(t, url), mustOpen(t, url), mustOpen(t, url)
			worked.wantAnswer(t, "count", text)
			stream, err := listening.do(t.Context(), http.MethodGet, "")
			if err != nil || stream.StatusCode != http.StatusOK {
				t.Fatalf("open a stream: %v, %v", stream, err)
			}
			defer func() { _ = stream.Body.Close() }()

			for _, c := range []*client{mustOpen(t, url), worked, listening} {
				c.wantAnswer(t, "count", text)
			}
			response, err := gone.post(t.Context(), call(9, "count", ""))
			if err != nil {
				t.Fatal(err)
			}
			answer, _ := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if response.StatusCode != http.StatusNotFound || !strings.Contains(string(answer), "ended to make room") {
				t.Errorf("the client that left gets %d %s", response.StatusCode, answer)
			}
			w := httptest.NewRecorder()
			adapter.admin.Handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
			if !strings.Contains(w.Body.String(), `slipway_adapter_evicted_sessions_total{use="listed"} 1`) {
				t.Error("no eviction is counted")
			}
		})
	}
}

// 60 sessions that are left one after the other all find a slot of the 20.
func TestLongAbandonedSessions(t *testing.T) {
	t.Parallel()
	_, url := startAdapter(t, nil)
	kept := mustOpen(t, url)
	kept.wantAnswer(t, "count", `"text":"1"`)
	for range 60 {
		listAndLeave(t, url)
	}
	kept.wantAnswer(t, "count", `"text":"2"`) // of the same process
}
