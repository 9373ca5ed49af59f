// Command greeter is the MCP server of the demo: a few small tools on standard input
// and output, made with the official SDK.
package main

import (
	"context"
	"fmt"
	"log"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type greetArguments struct {
	Name string `json:"name" jsonschema:"who is to be greeted"`
}

type addArguments struct {
	A int `json:"a" jsonschema:"the first number"`
	B int `json:"b" jsonschema:"the second number"`
}

func main() {
	server := mcp.NewServer(&mcp.Implementation{Name: "greeter", Title: "Greeter", Version: "1.0.0"}, &mcp.ServerOptions{
		Instructions: "Greets people, adds numbers, and counts how often it was asked.",
	})
	var visits atomic.Int64 // of this session: every session has a process of its own
	readOnly := &mcp.ToolAnnotations{ReadOnlyHint: true}
	mcp.AddTool(server, &mcp.Tool{Name: "greet", Description: "Greets a person by name.", Annotations: readOnly},
		func(_ context.Context, _ *mcp.CallToolRequest, arguments greetArguments) (*mcp.CallToolResult, any, error) {
			return say("Hello, %s! This answer came from a pod.", arguments.Name), nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "add", Description: "Adds two numbers.", Annotations: readOnly},
		func(_ context.Context, _ *mcp.CallToolRequest, arguments addArguments) (*mcp.CallToolResult, any, error) {
			return say("%d", arguments.A+arguments.B), nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "visits", Description: "Says how often this session has asked."},
		func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return say("%d", visits.Add(1)), nil, nil
		})
	if err := server.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		log.Fatalf("greeter: %v", err)
	}
}

func say(format string, values ...any) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(format, values...)}}}
}
