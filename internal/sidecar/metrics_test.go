package sidecar

import (
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Whatever is counted can be seen.
func TestEveryCounterIsPublished(t *testing.T) {
	at := serveHTTP(t, nil)
	for name, change := range map[string]func(*config.Config){
		"a process for each session": func(*config.Config) {},
		"one process for all":        func(c *config.Config) { c.Shared = true },
		"streamable-http":            func(c *config.Config) { c.Transport, c.UpstreamURL = config.StreamableHTTP, at },
		"sse":                        func(c *config.Config) { c.Transport, c.UpstreamURL = config.SSE, at },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config.Defaults()
			cfg.Log = logr.Discard()
			change(&cfg)
			adapter := New(nil, cfg)
			counters := map[string]*session.Counter{}
			collect(counters, &adapter.metrics)
			if adapter.backend.shared != nil {
				collect(counters, adapter.backend.shared)
			}
			if adapter.backend.proxy != nil {
				collect(counters, &adapter.backend.proxy.Metrics)
			}
			if adapter.backend.junkEvents != nil {
				counters["Junk"] = adapter.backend.junkEvents
			}
			want := map[string]string{} // values that tell them apart
			n := 1000
			for name, counter := range counters {
				n++
				for range n {
					counter.Inc()
				}
				want[name] = strconv.Itoa(n)
			}
			w := httptest.NewRecorder()
			adapter.admin.Handler.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
			for name, value := range want {
				if strings.Count(w.Body.String(), "_total "+value+"\n") != 1 {
					t.Errorf("%s is not published, or twice", name)
				}
			}
		})
	}
}

// collect adds the counters of a struct.
func collect(to map[string]*session.Counter, from any) {
	value := reflect.ValueOf(from).Elem()
	for i := range value.NumField() {
		if counter, ok := reflect.TypeAssert[*session.Counter](value.Field(i).Addr()); ok {
			to[value.Type().String()+"."+value.Type().Field(i).Name] = counter
		}
	}
}
