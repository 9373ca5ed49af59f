package plugin

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Servers give long lists in pages, and may give them without end.
func TestCountTools(t *testing.T) {
	session := listing(t, 7, &mcp.ServerOptions{PageSize: 3})
	pages := 0
	endless := func(next func(int) string) func(context.Context, *mcp.ListToolsParams) (*mcp.ListToolsResult, error) {
		return func(context.Context, *mcp.ListToolsParams) (*mcp.ListToolsResult, error) {
			pages++
			return &mcp.ListToolsResult{NextCursor: next(pages)}, nil
		}
	}
	for name, test := range map[string]struct {
		list func(context.Context, *mcp.ListToolsParams) (*mcp.ListToolsResult, error)
		want int
		err  string
	}{
		"three pages":             {session.ListTools, 7, ""},
		"a page leads to itself":  {endless(func(int) string { return "a" }), 0, "the list does not end: a page leads to itself"},
		"every page has a cursor": {endless(strconv.Itoa), 0, "the list does not end: it has more than 1000 pages"},
		"refused": {func(context.Context, *mcp.ListToolsParams) (*mcp.ListToolsResult, error) {
			return nil, errors.New("refused")
		}, 0, "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			pages = 0
			got, err := countTools(t.Context(), test.list)
			if got != test.want || (err == nil) != (test.err == "") || err != nil && err.Error() != test.err {
				t.Errorf("got %d, %v, want %d, %s", got, err, test.want, test.err)
			}
			if pages > maxPages {
				t.Errorf("it asked for %d pages", pages)
			}
		})
	}
}

// listing is a session with a server that has so many tools.
func listing(t *testing.T, tools int, options *mcp.ServerOptions) *mcp.ClientSession {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "many", Version: "1"}, options)
	for i := range tools {
		server.AddTool(&mcp.Tool{Name: fmt.Sprint("tool", i), InputSchema: map[string]any{"type": "object"}}, nil)
	}
	ours, theirs := mcp.NewInMemoryTransports()
	if _, err := server.Connect(t.Context(), theirs, nil); err != nil {
		t.Fatal(err)
	}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), ours, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}
