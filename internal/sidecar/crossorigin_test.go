package sidecar

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/front/sse"
)

// A browser asks beforehand whether a page may call, and whether it may read what is
// answered, at every endpoint.
func TestBrowserMayCall(t *testing.T) {
	t.Parallel()
	const page = "https://chat.example.com"
	upstream := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*") // as some frameworks do
		w.Header().Set("Access-Control-Allow-Credentials", "true")
		w.Header().Set("Vary", "Accept")
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"u","version":"1"}}}`)
	}))
	_, own := startAdapter(t, func(c *config.Config) { c.LegacySSE, c.Origins.Origins = true, []string{page} })
	_, proxied := startAdapter(t, func(c *config.Config) {
		c.Transport, c.UpstreamURL, c.Origins.Origins = config.StreamableHTTP, upstream, []string{page}
	})
	send := func(t *testing.T, method, url, from string, more ...string) http.Header {
		t.Helper()
		body := ""
		if method == http.MethodPost {
			body = initializeBody
		}
		request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Origin", from)
		for i := 0; i < len(more); i += 2 {
			request.Header.Set(more[i], more[i+1])
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		response.Header.Set("Status", response.Status)
		return response.Header
	}
	host := strings.TrimSuffix(own, Path)
	for name, test := range map[string]struct{ url, method, allowed string }{
		"stdio":    {own, "POST", "GET, POST, DELETE"},
		"stream":   {host + sse.StreamPath, "GET", "GET"},
		"messages": {host + sse.MessagesPath, "POST", "POST"},
		"proxy":    {proxied, "POST", "GET, POST, DELETE"},
	} {
		t.Run(name, func(t *testing.T) {
			h := send(t, http.MethodOptions, test.url, page, "Access-Control-Request-Method", test.method, "Access-Control-Request-Headers", "content-type")
			if h.Get("Status") != "204 No Content" || h.Get("Access-Control-Allow-Methods") != test.allowed || h.Get("Access-Control-Allow-Origin") != page || h.Get("Access-Control-Allow-Headers") != "content-type" {
				t.Errorf("preflight: %v", h)
			}
			h = send(t, test.method, test.url, page)
			if got := h.Values("Access-Control-Allow-Origin"); len(got) != 1 || got[0] != page || h.Get("Access-Control-Allow-Credentials") != "" || h.Values("Vary")[0] != "Origin" {
				t.Errorf("answer: %v", h)
			}
			if name == "proxy" && len(h.Values("Vary")) != 2 {
				t.Errorf("the server's own Vary is gone: %v", h)
			}
			h = send(t, test.method, test.url, "https://evil.example.com")
			if h.Get("Status") != "403 Forbidden" || h.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("another origin: %v", h)
			}
		})
	}
}
