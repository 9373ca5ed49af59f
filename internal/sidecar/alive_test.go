package sidecar

import (
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
)

// The kubelet restarts an adapter in which a part that all clients share is stuck, so each
// way to have a server names its parts.
func TestLive(t *testing.T) {
	at := serveHTTP(t, nil)
	always := []string{"registry of sessions", "keeper", "translation for clients without sessions", "endpoint for clients without sessions"}
	for name, test := range map[string]struct {
		change func(*Config)
		more   []string
	}{
		"a process for each session": {func(*Config) {}, nil},
		"one process for all":        {func(c *Config) { c.Shared = true }, []string{"shared process"}},
		"streamable-http": {
			func(c *Config) { c.Transport, c.UpstreamURL = StreamableHTTP, at },
			[]string{"endpoint for clients without sessions"},
		},
		"sse": {func(c *Config) { c.Transport, c.UpstreamURL = SSE, at }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			config := Defaults()
			config.Log = logr.Discard()
			test.change(&config)
			adapter := New(nil, config)
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
