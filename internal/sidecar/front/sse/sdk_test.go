package sse

import (
	"context"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestSDKClient has the official client of this transport talk to a server.
func TestSDKClient(t *testing.T) {
	for requested, agreed := range map[string]string{
		"":           "2025-11-25", // E-07: it tries the stateless protocol first
		"2024-11-05": "2024-11-05",
		"2025-06-18": "2025-06-18",
	} {
		t.Run("requested "+requested, func(t *testing.T) {
			e := newEndpoint(t, nil)
			progress := make(chan float64, 10)
			logged := make(chan any, 10)
			changed := make(chan struct{}, 10)
			client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
				ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"heard": r.Params.Message}}, nil
				},
				ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { progress <- r.Params.Progress },
				LoggingMessageHandler:       func(_ context.Context, r *mcp.LoggingMessageRequest) { logged <- r.Params.Data },
				ToolListChangedHandler:      func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} },
			})
			connected, err := client.Connect(t.Context(), &mcp.SSEClientTransport{Endpoint: e.url + StreamPath}, &mcp.ClientSessionOptions{ProtocolVersion: requested})
			if err != nil {
				t.Fatalf("connect: %v", err)
			}
			if got := connected.InitializeResult().ProtocolVersion; got != agreed {
				t.Errorf("agreed on %s, want %s", got, agreed)
			}
			if err := connected.Ping(t.Context(), nil); err != nil {
				t.Errorf("ping: %v", err)
			}
			tools, err := connected.ListTools(t.Context(), nil)
			if err != nil || len(tools.Tools) < 10 {
				t.Errorf("list: %v, %v", tools, err)
			}
			wantIn(t, callTool(t, connected, "echo", map[string]any{"text": "héllo"}), "héllo")
			wantIn(t, callTool(t, connected, "ask", map[string]any{"text": "sure?"}), `"heard":"sure?"`)
			wantIn(t, callTool(t, connected, "burst", map[string]any{"n": 3}), "done")
			for i := range 3 {
				if got := <-progress; got != float64(i) {
					t.Errorf("progress %v, want %d", got, i)
				}
			}
			wantIn(t, callTool(t, connected, "log", map[string]any{"text": "noted"}), "done")
			if got := <-logged; got != "noted" {
				t.Errorf("logged %v", got)
			}
			wantIn(t, callTool(t, connected, "changed", nil), "done")
			<-changed
			if err := connected.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			e.eventuallyRunning(0)
		})
	}
}

func callTool(t *testing.T, client *mcp.ClientSession, name string, arguments map[string]any) string {
	t.Helper()
	params := &mcp.CallToolParams{Name: name, Arguments: arguments}
	params.SetProgressToken("token of " + name)
	result, err := client.CallTool(t.Context(), params)
	if err != nil || result.IsError {
		t.Fatalf("call %s: %+v, %v", name, result, err)
	}
	content, ok := result.Content[0].(*mcp.TextContent)
	if !ok {
		t.Fatalf("call %s: %T", name, result.Content[0])
	}
	return content.Text
}
