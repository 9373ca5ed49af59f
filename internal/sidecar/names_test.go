package sidecar

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/origin"
)

// Texts name what the user can set: flags on a laptop, and fields of the MCPServer in a pod.
func TestTextsNameWhatToSet(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fields                          bool
		sse, host, from, body, sessions string
	}{
		"laptop": {false, "--legacy-sse", "--allowed-host", "--allowed-origin", "--limit-body-bytes", "--max-sessions is 1"},
		"pod": {
			true, "spec.adapter.legacySSE", "spec.adapter.allowedHosts", "spec.adapter.allowedOrigins",
			"spec.adapter.limits.body", "spec.session.maxPerPod is 1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, log := countingServer(), &memory{}
			_, url := startAdapter(t, func(c *config.Config) {
				c.Transport = config.StreamableHTTP
				c.UpstreamURL = serveHTTP(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
				c.Names.Fields, c.BodyBytes, c.MaxSessions, c.Patience = test.fields, 1<<10, 1, 0
				c.Origins = origin.Policy{Hosts: []string{"mcp.example.com"}}
				c.Log = log.logger()
			})
			mustOpen(t, url)
			for _, request := range []struct {
				path, host, from, body string
				status                 int
				want                   string
			}{
				{"/sse", "", "", "{}", 404, "are served with " + test.sse + "\n"},
				{Path, "evil.example.com", "", "{}", 403, "allowed hosts are set by " + test.host + `"`},
				{Path, "", "http://evil.example.com", "{}", 403, "allowed origins are set by " + test.from + `"`},
				{Path, "", "", strings.Repeat(" ", 2<<10), 413, "larger than 1024 bytes, the limit of this server, which " + test.body + " sets"},
				{Path, "", "", initializeBody, 503, "every session slot is taken: " + test.sessions},
			} {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, strings.TrimSuffix(url, Path)+request.path, strings.NewReader(request.body))
				if err != nil {
					t.Fatal(err)
				}
				r.Host = request.host
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Accept", "application/json, text/event-stream")
				if request.from != "" {
					r.Header.Set("Origin", request.from)
				}
				response, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				text, err := io.ReadAll(response.Body)
				_ = response.Body.Close()
				if err != nil || response.StatusCode != request.status || !strings.Contains(string(text), request.want) {
					t.Errorf("%d %s, want %d and %s in it: %v", response.StatusCode, text, request.status, request.want, err)
				}
			}
			// Users who read the log find the same.
			lines := log.with("Request refused")
			for _, want := range []string{test.sse, test.host, test.from, test.body, test.sessions} {
				if !slices.ContainsFunc(lines, func(line map[string]any) bool {
					return strings.Contains(line["reason"].(string), want) && line["level"] == 0.
				}) {
					t.Errorf("the log has no refusal with %s in it: %v", want, lines)
				}
			}
		})
	}
}
