package sidecar

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/slipway-mcp/slipway/internal/sidecar/config"
)

// A client that has the address but not the path gets an answer that names the path.
func TestOtherPaths(t *testing.T) {
	t.Parallel()
	_, plain := startAdapter(t, nil)
	_, legacy := startAdapter(t, func(c *config.Config) { c.LegacySSE = true })
	_, proxy := startAdapter(t, func(c *config.Config) {
		c.Transport, c.UpstreamURL = config.StreamableHTTP, serveHTTP(t, http.NotFoundHandler())
	})
	for name, test := range map[string]struct{ url, path, want string }{
		"root":              {plain, "/", "there is nothing at /: the MCP endpoint is /mcp\n"},
		"slash":             {plain, "/mcp/", "there is nothing at /mcp/: the MCP endpoint is /mcp\n"},
		"sse":               {plain, "/sse", "there is nothing at /sse: the MCP endpoint is /mcp; clients that know only the transport of /sse are served with --legacy-sse\n"},
		"messages":          {plain, "/messages?token=x", "there is nothing at /messages: the MCP endpoint is /mcp; clients that know only the transport of /sse are served with --legacy-sse\n"},
		"root, with legacy": {legacy, "/", "there is nothing at /: the MCP endpoint is /mcp, and /sse for clients that know only that transport\n"},
		"proxy":             {proxy, "/sse", "there is nothing at /sse: the MCP endpoint is /mcp; clients that know only the transport of /sse are served with --legacy-sse\n"},
		"odd":               {plain, "/%0a%3Cscript%3E" + strings.Repeat("x", 500), "there is nothing at /%0a%3Cscript%3Exxx"},
	} {
		t.Run(name, func(t *testing.T) {
			response, err := http.Get(strings.TrimSuffix(test.url, Path) + test.path)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			body, err := io.ReadAll(response.Body)
			if err != nil || response.StatusCode != http.StatusNotFound || !strings.HasPrefix(string(body), test.want) || len(body) > 300 {
				t.Errorf("%s: %s, %v", response.Status, body, err)
			}
			if got := response.Header.Get("Content-Type"); got != "text/plain; charset=utf-8" {
				t.Errorf("Content-Type %s", got)
			}
		})
	}
}

// R20: a client of the official SDK learns that its session is gone. Were the error the
// answer to its request, by the request's id, it would keep the session.
func TestSDKLearnsThatTheSessionIsGone(t *testing.T) {
	t.Parallel()
	_, url := startAdapter(t, nil)
	connected, err := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil).
		Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url, DisableStandaloneSSE: true}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connected.Close() }()
	c := &client{url: url, session: connected.ID(), http: http.DefaultClient}
	response, err := c.do(t.Context(), http.MethodDelete, "")
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if _, err := connected.ListTools(t.Context(), nil); !errors.Is(err, mcp.ErrSessionMissing) {
		t.Errorf("got %v", err)
	}
}
