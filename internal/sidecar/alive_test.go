package sidecar

import (
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/sidecar/config"
)

// The kubelet restarts an adapter in which a part that all clients share is stuck, so each
// way to have a server names its parts.
func TestLive(t *testing.T) {
	at := serveHTTP(t, nil)
	always := []string{"registry of sessions", "keeper", "translation for clients without sessions", "endpoint for clients without sessions"}
	for name, test := range map[string]struct {
		change func(*config.Config)
		more   []string
	}{
		"a process for each session": {func(*config.Config) {}, nil},
		"one process for all":        {func(c *config.Config) { c.Shared = true }, []string{"shared process"}},
		"streamable-http": {
			func(c *config.Config) { c.Transport, c.UpstreamURL = config.StreamableHTTP, at },
			[]string{"endpoint for clients without sessions"},
		},
		"sse": {func(c *config.Config) { c.Transport, c.UpstreamURL = config.SSE, at }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config.Defaults()
			cfg.Log = logr.Discard()
			test.change(&cfg)
			adapter := New(nil, cfg)
			var got []string
			for _, part := range adapter.parts() {
				got = append(got, part.Name)
			}
			if diff := cmp.Diff(slices.Concat(always, test.more), got); diff != "" {
				t.Error(diff)
			}
			w := httptest.NewRecorder()
			adapter.admin.Handler.ServeHTTP(w, httptest.NewRequest("GET", "/livez", nil))
			if w.Code != 200 {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
		})
	}
}
