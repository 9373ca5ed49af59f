package sidecar

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/test/hang"
)

// shownServer returns the token that its caller sent over HTTP.
func shownServer() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "shown", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "shown"}, func(_ context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		text := "nothing"
		if shown := r.Extra.Header.Get("Authorization"); shown != "" {
			text = shown
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
	})
	return server
}

// requests notes by which methods a server is asked, and refuses some.
type requests struct {
	next    http.Handler
	refused string

	mu   sync.Mutex
	seen []string
}

func (s *requests) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if e, err := rpc.Scan(body); err == nil && e.Kind == rpc.Request {
		s.mu.Lock()
		s.seen = append(s.seen, string(e.Method))
		s.mu.Unlock()
		if string(e.Method) == s.refused {
			http.Error(w, `{"jsonrpc":"2.0","id":`+string(e.ID.Of(body))+`,"error":{"code":-32601,"message":"unknown"}}`, http.StatusBadRequest)
			return
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	s.next.ServeHTTP(w, r)
}

func (s *requests) has(method string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.seen, method)
}

// showing shows something with every request.
type showing string

func (s showing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", string(s))
	return http.DefaultTransport.RoundTrip(r)
}

// Clients of either era, and of the older transport, find their own at every server that
// speaks HTTP, and the server sees what each of them shows to be let in.
func TestHTTPServersOfOneEra(t *testing.T) {
	t.Parallel()
	with := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return shownServer() }, nil)
	without := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return shownServer() }, &mcp.StreamableHTTPOptions{Stateless: true})
	for name, test := range map[string]struct {
		handler *requests
		era     sessionless.Era
		way     string // by which both are asked
		never   string // what the server is not asked
	}{
		"legacy":           {&requests{next: with, refused: "server/discover"}, sessionless.Auto, "initialize", ""},
		"modern":           {&requests{next: without, refused: "initialize"}, sessionless.Auto, "server/discover", ""},
		"both":             {&requests{next: without}, sessionless.Auto, "server/discover", ""},
		"pinned: sessions": {&requests{next: with}, sessionless.Legacy, "initialize", "server/discover"},
		"pinned: none":     {&requests{next: without}, sessionless.Modern, "server/discover", "initialize"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := serveHTTP(t, test.handler)
			adapter, url := startAdapter(t, func(c *config.Config) {
				c.Transport, c.UpstreamURL, c.LegacySSE, c.Era = config.StreamableHTTP, at, true, test.era
			})
			gomega.NewWithT(t).Eventually(func() bool {
				state, _ := adapter.env.Keeper.State()
				return state.Ready
			}).WithTimeout(hang.Guard).Should(gomega.BeTrue())
			for _, revision := range []string{"2026-07-28", "2025-11-25", "2025-03-26", "2024-11-05"} {
				for _, shows := range []string{"Bearer one", "Bearer two"} {
					clients := &http.Client{Transport: showing(shows)}
					var transport mcp.Transport = &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: clients}
					if revision == "2024-11-05" {
						transport = &mcp.SSEClientTransport{Endpoint: url[:len(url)-len(Path)] + "/sse", HTTPClient: clients}
					}
					client, err := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil).
						Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: revision})
					if err != nil {
						t.Fatalf("%s: %v", revision, err)
					}
					if got := client.InitializeResult().ProtocolVersion; got != revision {
						t.Errorf("the client has revision %s, want %s", got, revision)
					}
					if got := callTool(t, client, "shown"); got != shows {
						t.Errorf("to a client of %s that shows %q it says %q", revision, shows, got)
					}
					_ = client.Close()
				}
			}
			if !test.handler.has(test.way) {
				t.Errorf("it was asked by %q", test.handler.seen)
			}
			if test.handler.has(test.never) {
				t.Errorf("it was asked for %s", test.never)
			}
		})
	}
}
