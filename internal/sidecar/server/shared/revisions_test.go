package shared

import (
	"context"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
)

// revisionServer speaks one revision, and says which.
func revisionServer(revision string) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, &mcp.ServerOptions{SupportedProtocolVersions: []string{revision}})
	mcp.AddTool(server, &mcp.Tool{Name: "revision"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: revision}}}, nil, nil
	})
	return server
}

// L-02: all sessions have the revision that the child process speaks, because the adapter initializes
// the process once and does not translate. Official clients that ask for another revision accept it.
func TestOfficialClientsOfEveryRevision(t *testing.T) {
	for _, speaks := range front.Revisions() {
		t.Run("server "+speaks, func(t *testing.T) {
			options := testOptions()
			options.Acquire = func(context.Context) (mux.Server, error) { return startSDK(t, revisionServer(speaks)), nil }
			p := New(options)
			t.Cleanup(p.Close)
			url := serveHTTP(t, p)
			for _, asks := range front.Revisions() {
				t.Run("client "+asks, func(t *testing.T) {
					client := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil)
					connected, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url}, &mcp.ClientSessionOptions{ProtocolVersion: asks})
					if err != nil {
						t.Fatalf("connect: %v", err)
					}
					if got := connected.InitializeResult().ProtocolVersion; got != speaks {
						t.Errorf("the session has revision %s, want %s", got, speaks)
					}
					result, err := connected.CallTool(t.Context(), &mcp.CallToolParams{Name: "revision"})
					if err != nil || result.Content[0].(*mcp.TextContent).Text != speaks {
						t.Errorf("call: %v, %v", result, err)
					}
					if err := connected.Close(); err != nil {
						t.Errorf("close: %v", err)
					}
				})
			}
		})
	}
}
