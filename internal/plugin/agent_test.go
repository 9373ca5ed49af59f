package plugin

import (
	"context"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// searchTickets is in docs/connect.md, as it stands here.
func searchTickets(ctx context.Context, url string) (result *mcp.CallToolResult, err error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1.0"}, nil)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url}, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, session.Close()) }() // ends the session, which frees its slot
	return session.CallTool(ctx, &mcp.CallToolParams{Name: "search_tickets", Arguments: map[string]any{"query": "printer"}})
}
