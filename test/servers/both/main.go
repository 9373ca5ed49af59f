// Command both is an MCP server of the official SDK, for tests: it speaks revisions with
// sessions and the one without, says which process it is, and changes when it is told to.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	server := mcp.NewServer(&mcp.Implementation{Name: "both", Version: "1"}, nil)
	add := func(name, description string, do func(context.Context, *mcp.CallToolRequest) string) {
		mcp.AddTool(server, &mcp.Tool{Name: name, Description: description},
			func(ctx context.Context, request *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: do(ctx, request)}}}, nil, nil
			})
	}
	var more, cancelled atomic.Int64
	add("pid", "Says which process this is.", func(context.Context, *mcp.CallToolRequest) string { return strconv.Itoa(os.Getpid()) })
	add("more", "Adds a tool.", func(context.Context, *mcp.CallToolRequest) string {
		name := fmt.Sprintf("more%d", more.Add(1))
		add(name, "Was added.", func(context.Context, *mcp.CallToolRequest) string { return name })
		return name
	})
	add("wait", "Reports progress once, and waits to be cancelled.", func(ctx context.Context, request *mcp.CallToolRequest) string {
		_ = request.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: request.Params.GetProgressToken(), Progress: 1})
		<-ctx.Done()
		cancelled.Add(1)
		return "cancelled"
	})
	add("cancelled", "Says how many calls were cancelled.", func(context.Context, *mcp.CallToolRequest) string {
		return strconv.FormatInt(cancelled.Load(), 10)
	})
	add("exit", "Ends the process.", func(context.Context, *mcp.CallToolRequest) string {
		fmt.Fprintln(os.Stderr, "both: a secret")
		os.Exit(7)
		return ""
	})
	mcp.AddTool(server, &mcp.Tool{Name: "remember", Description: "Asks to be called again, with a state that this process alone knows."}, remember)
	if err := server.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		log.Fatalf("both: %v", err)
	}
}

var remembered sync.Map // states

func remember(_ context.Context, request *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
	state := request.Params.RequestState
	if state == "" {
		state = rand.Text()
		remembered.Store(state, nil)
		return &mcp.CallToolResult{RequestState: state}, nil, nil
	}
	text := "forgotten"
	if _, ok := remembered.LoadAndDelete(state); ok {
		text = "remembered"
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
}
