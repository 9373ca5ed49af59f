package sidecar

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/test/hang"
)

// nativeAdapters are adapters with StatelessClients Native in front of servers that have
// sessions only.
func nativeAdapters() map[string]func(t *testing.T) string {
	native := func(c *config.Config) { c.StatelessClients, c.Names.Fields = config.Native, true }
	return map[string]func(t *testing.T) string{
		"stdio": func(t *testing.T) string {
			_, url := startAdapter(t, native)
			return url
		},
		"stdio, known to have sessions": func(t *testing.T) string {
			_, url := startAdapter(t, func(c *config.Config) {
				c.StatelessClients, c.Names.Fields, c.Era = config.Native, true, sessionless.Legacy
			})
			return url
		},
		"streamable-http": func(t *testing.T) string {
			_, url := adapterFor(t, &httpServer{initialize: agreeToInitialize, noDiscover: true}, native)
			return url
		},
		"sse": func(t *testing.T) string {
			_, url := startAdapter(t, func(c *config.Config) {
				handler := mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return countingServer() }, nil)
				c.StatelessClients, c.Names.Fields, c.Transport, c.UpstreamURL = config.Native, true, config.SSE, serveHTTP(t, handler)
			})
			return url
		},
	}
}

// A server that has sessions only refuses clients without, in the way on which the Go,
// TypeScript, Python, C# and Rust SDKs open a session. The answer says what the user can do
// for clients that cannot.
func TestSessionsOnlyServerRefusesStatelessClients(t *testing.T) {
	t.Parallel()
	for name, start := range nativeAdapters() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := start(t)
			for method, want := range map[string]struct {
				status int
				code   string
			}{
				"server/discover": {http.StatusNotFound, `"code":-32601`},
				"tools/list":      {http.StatusBadRequest, `"code":-32600`},
				"no/such":         {http.StatusBadRequest, `"code":-32600`},
			} {
				status, body := modernPost(t.Context(), t, url, method, "")
				if status != want.status {
					t.Errorf("%s: status %d, want %d", method, status, want.status)
				}
				for _, part := range []string{want.code, `"id":1`, "initialize", "spec.session.statelessClients"} {
					if !strings.Contains(body, part) {
						t.Errorf("%s: %s\nwant %s in it", method, body, part)
					}
				}
			}
		})
	}
}

// Clients of the Go SDK, which begin with 2026-07-28, open a session instead, so that
// two of them behind one address have processes of their own.
func TestStatelessClientsFallBackToSessions(t *testing.T) {
	t.Parallel()
	_, url := startAdapter(t, func(c *config.Config) { c.StatelessClients = config.Native })
	one, _ := sdkClient(t, url, "")
	two, _ := sdkClient(t, url, "")
	for _, client := range []*mcp.ClientSession{one, two} {
		if got := client.InitializeResult().ProtocolVersion; got != "2025-11-25" {
			t.Errorf("a client has revision %s", got)
		}
		if got := callTool(t, client, "count"); got != "1" {
			t.Errorf("a client counts %s, want its own first", got)
		}
	}
}

// Where all clients share a process, or the server speaks both eras, there is nothing to keep
// apart that sessions would.
func TestStatelessClientsThatAreServed(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) string{
		"one process for all": func(t *testing.T) string {
			_, url := startAdapter(t, func(c *config.Config) { c.StatelessClients, c.Shared = config.Native, true })
			return url
		},
		"both eras": func(t *testing.T) string {
			_, url := startAdapterOn(t, newListener(t), func(c *config.Config) { c.StatelessClients = config.Native }, bothServer)
			return url
		},
		"both eras over HTTP": func(t *testing.T) string {
			_, url := adapterFor(t, &httpServer{initialize: agreeToInitialize}, func(c *config.Config) { c.StatelessClients = config.Native })
			return url
		},
		"translated": func(t *testing.T) string {
			_, url := startAdapter(t, nil)
			return url
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := start(t)
			if status, body := modernPost(t.Context(), t, url, "server/discover", ""); status != http.StatusOK || !strings.Contains(body, "2026-07-28") {
				t.Errorf("%d: %s", status, body)
			}
		})
	}
}

// The catalog lists 2026-07-28 only for servers that speak it. The adapter finds that out
// without a client, and the process that this takes ends.
func TestCatalogListsWhatIsServedNatively(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		command []string
		era     sessionless.Era
	}{
		"sessions only":             {[]string{echoServer}, sessionless.Legacy},
		"sessions only, and strict": {[]string{eraFilter, "legacy", bothServer}, sessionless.Legacy},
		"both":                      {[]string{bothServer}, sessionless.Modern},
		"without sessions":          {[]string{eraFilter, "modern", bothServer}, sessionless.Auto}, // which the keeper knows
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			adapter, _ := startAdapterOn(t, newListener(t), func(c *config.Config) { c.StatelessClients, c.Warm = config.Native, 0 }, test.command...)
			g := gomega.NewWithT(t)
			g.Eventually(adapter.backend.(interface{ Era() sessionless.Era }).Era).WithTimeout(hang.Guard).Should(gomega.Equal(test.era))
			listed := func() bool {
				state, _ := adapter.env.Keeper.State()
				return state.Ready && slices.Contains(state.Catalog.Server.ProtocolVersions, "2026-07-28")
			}
			if test.era != sessionless.Legacy {
				g.Eventually(listed).WithTimeout(hang.Guard).Should(gomega.BeTrue())
			} else if listed() {
				t.Error("the catalog lists 2026-07-28")
			}
			const keepers = 1
			g.Eventually(published(t, adapter, "server_processes")).WithTimeout(hang.Guard).Should(gomega.BeEquivalentTo(keepers))
		})
	}
}
