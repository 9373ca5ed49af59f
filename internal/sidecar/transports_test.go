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

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/sidecar/config"
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
		change func(*config.Config)
		want   string // what the second client counts
		sse    bool   // clients of 2024-11-05 are served, too
	}{
		"a process for each session": {func(c *config.Config) { c.LegacySSE = true }, "1", true},
		"one process for all":        {func(c *config.Config) { c.Shared, c.LegacySSE = true, true }, "2", true},
		"streamable-http": {func(c *config.Config) {
			c.Transport, c.UpstreamURL = config.StreamableHTTP, serveHTTP(t, mcp.NewStreamableHTTPHandler(always(countingServer()), nil))
		}, "2", false},
		"sse": {func(c *config.Config) {
			c.Transport, c.UpstreamURL, c.LegacySSE = config.SSE, serveHTTP(t, mcp.NewSSEHandler(always(countingServer()), nil)), true
		}, "2", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			adapter, address := startAdapter(t, test.change)
			gomega.NewWithT(t).Eventually(func() error {
				state, _ := adapter.env.Keeper.State()
				if state.Ready {
					return nil
				}
				return state.Err
			}).WithTimeout(hang.Guard).Should(gomega.Succeed())
			state, _ := adapter.env.Keeper.State()
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
