// Command client calls one tool of an MCP server and prints the answer, with the
// client of the official SDK, in a session of its own: client URL TOOL [ARGUMENTS AS JSON].
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// timeout bounds everything.
const timeout = 30 * time.Second

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	err := run(ctx, os.Args[1:])
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	if len(args) < 2 || len(args) > 3 {
		return errors.New("usage: client URL TOOL [ARGUMENTS AS JSON]")
	}
	params := &mcp.CallToolParams{Name: args[1]}
	if len(args) == 3 {
		var arguments map[string]any
		if err := json.Unmarshal([]byte(args[2]), &arguments); err != nil {
			return fmt.Errorf("read arguments: %w", err)
		}
		params.Arguments = arguments
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "slipway-client", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: args[0], DisableStandaloneSSE: true},
		&mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"}) // the next one has no sessions
	if err != nil {
		return fmt.Errorf("connect to %s: %w", args[0], err)
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	result, err := session.CallTool(ctx, params)
	if err != nil {
		return fmt.Errorf("call %s: %w", args[1], err)
	}
	for _, content := range result.Content {
		if text, ok := content.(*mcp.TextContent); ok {
			fmt.Println(text.Text)
		}
	}
	if result.IsError {
		return fmt.Errorf("call %s: the tool reports an error", args[1])
	}
	return nil
}
