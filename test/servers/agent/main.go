// Command agent is an MCP client in a pod. It sends the token of a file with every request, and prints what
// it may see and call.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: agent URL TOKENFILE [TOOL...]")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

// tokenSender adds the token, which the kubelet replaces before it expires.
type tokenSender struct{ file string }

func (s tokenSender) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := os.ReadFile(s.file)
	if err != nil {
		return nil, fmt.Errorf("read token: %w", err)
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	return http.DefaultTransport.RoundTrip(r)
}

func run(url, tokenFile string, tools []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: tokenSender{tokenFile}}, MaxRetries: -1},
		&mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = session.Close() }()
	list, err := session.ListTools(ctx, nil)
	if err != nil {
		return fmt.Errorf("list tools: %w", err)
	}
	for _, tool := range list.Tools {
		fmt.Println("listed:", tool.Name)
	}
	for _, tool := range tools {
		result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"text": "hello"}})
		switch {
		case err != nil:
			fmt.Printf("call %s: %v\n", tool, err)
		default:
			fmt.Printf("call %s: error %t\n", tool, result.IsError)
		}
	}
	return nil
}
