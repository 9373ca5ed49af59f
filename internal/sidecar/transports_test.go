package sidecar

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/test/hang"
)

// countingServer is an MCP server of the official SDK with one tool that counts.
func countingServer() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "counting", Version: "1"}, nil)
	var count atomic.Int64
	mcp.AddTool(server, &mcp.Tool{Name: "count"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: strconv.FormatInt(count.Add(1), 10)}}}, nil, nil
	})
	return server
}

func serveHTTP(t *testing.T, handler http.Handler) *url.URL {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	parsed, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// Whatever the server speaks, and however its processes are shared, clients of both
// transports find it, and the keeper knows what it offers.
func TestEveryBackend(t *testing.T) {
	t.Parallel()
	always := func(server *mcp.Server) func(*http.Request) *mcp.Server {
		return func(*http.Request) *mcp.Server { return server }
	}
	for name, test := range map[string]struct {
		change func(*Config)
		want   string // what the second client counts
		sse    bool   // clients of 2024-11-05 are served, too
	}{
		"a process for each session": {func(c *Config) { c.LegacySSE = true }, "1", true},
		"one process for all":        {func(c *Config) { c.Shared, c.LegacySSE = true, true }, "2", true},
		"streamable-http": {func(c *Config) {
			c.Transport, c.UpstreamURL = StreamableHTTP, serveHTTP(t, mcp.NewStreamableHTTPHandler(always(countingServer()), nil))
		}, "2", false},
		"sse": {func(c *Config) {
			c.Transport, c.UpstreamURL, c.LegacySSE = SSE, serveHTTP(t, mcp.NewSSEHandler(always(countingServer()), nil)), true
		}, "2", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			adapter, address := startAdapter(t, test.change)
			gomega.NewWithT(t).Eventually(func() error {
				state, _ := adapter.keeper.State()
				if state.Ready {
					return nil
				}
				return state.Err
			}).WithTimeout(hang.Guard).Should(gomega.Succeed())
			state, _ := adapter.keeper.State()
			if len(state.Catalog.Tools) == 0 {
				t.Errorf("the keeper knows of no tools: %+v", state.Catalog)
			}
			transports := []mcp.Transport{&mcp.StreamableClientTransport{Endpoint: address}, &mcp.StreamableClientTransport{Endpoint: address}}
			if test.sse {
				transports[0] = &mcp.SSEClientTransport{Endpoint: strings.TrimSuffix(address, Path) + "/sse"}
			}
			var got string
			for _, transport := range transports {
				got = countOnce(t, transport)
			}
			if got != test.want {
				t.Errorf("the second client counts %s, want %s", got, test.want)
			}
		})
	}
}

func countOnce(t *testing.T, transport mcp.Transport) string {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil)
	connected, err := client.Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer func() {
		if err := connected.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	result, err := connected.CallTool(t.Context(), &mcp.CallToolParams{Name: "count", Arguments: map[string]any{}})
	if err != nil {
		t.Fatalf("call: %v", err)
	}
	return result.Content[0].(*mcp.TextContent).Text
}

func TestValidate(t *testing.T) {
	config := Defaults()
	if err := config.Validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
	// No memory limit is no reason to refuse a limit that an MCPServer may have.
	config.BodyBytes, config.LineBytes = 1<<30, 1<<30
	if err := config.Validate(); err != nil || config.budget() < 2*config.BodyBytes {
		t.Errorf("the largest limits: %v, budget %d", err, config.budget())
	}
	config.MemoryLimit = 1 << 28
	if err := config.Validate(); err == nil || !strings.Contains(err.Error(), "raise memory-limit to 4294967296") {
		t.Errorf("a body that has no room: %v", err)
	}
	config.Origins.Origins = []string{"example.com"}
	config.MaxSessions, config.LineBytes, config.CallTimeout = 0, -1, -time.Second
	err := config.Validate()
	for _, want := range []string{"max-sessions is 0, want 1", "limit-line-bytes is -1", "call-timeout is -1s, want at least 1s", `allowed-origin "example.com" can never match`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}
