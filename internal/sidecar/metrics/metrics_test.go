package metrics

import (
	"net/url"
	"reflect"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slipway-mcp/slipway/internal/sidecar/front/stateless"
	"github.com/slipway-mcp/slipway/internal/sidecar/proxy"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/shared"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/translate/tolegacy"
	"github.com/slipway-mcp/slipway/internal/sidecar/translate/tomodern"
)

// Each counter of a part is in its table, once.
func TestEveryCounterIsPublished(t *testing.T) {
	var routing session.Metrics
	var process shared.Metrics
	var front stateless.Metrics
	var single sessionless.Metrics
	var modern tomodern.Metrics
	var legacy tolegacy.Metrics
	var junk session.Counter
	proxy := proxy.New(proxy.Options{URL: &url.URL{}})
	for name, test := range map[string]struct {
		tables  []Metric
		structs []any
	}{
		"sessions":    {Sessions(session.NewRegistry(session.Policy{}), 1, &routing), []any{&routing}},
		"shared":      {Shared(&process), []any{&process}},
		"stateless":   {Stateless(&front, &single), []any{&front, &single}},
		"translation": {Translation(&modern, &legacy), []any{&modern, &legacy}},
		"proxy":       {Proxy(proxy), []any{&proxy.Metrics}},
		"SSE":         {HTTPSSE(&junk), []any{&struct{ Junk *session.Counter }{&junk}}},
	} {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			Register(registry, test.tables)
			counters := map[string]*session.Counter{}
			for _, from := range test.structs {
				collect(counters, from)
			}
			want := map[string]float64{} // values that tell them apart
			for name, counter := range counters {
				for range 1000 + len(want) {
					counter.Inc()
				}
				want[name] = float64(1000 + len(want))
			}
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			got := map[float64]int{}
			for _, family := range families {
				if value := family.GetMetric()[0].GetCounter().GetValue(); value > 0 {
					got[value]++
				}
			}
			for name, value := range want {
				if got[value] != 1 {
					t.Errorf("%s is published %d times", name, got[value])
				}
			}
			if len(got) != len(want) || len(want) == 0 {
				t.Errorf("%d counters are published, want %d", len(got), len(want))
			}
		})
	}
}

// collect adds the counters of a struct.
func collect(to map[string]*session.Counter, from any) {
	value := reflect.ValueOf(from).Elem()
	for i := range value.NumField() {
		field := value.Field(i)
		if field.Kind() != reflect.Pointer {
			field = field.Addr()
		}
		if counter, ok := reflect.TypeAssert[*session.Counter](field); ok {
			to[value.Type().String()+"."+value.Type().Field(i).Name] = counter
		}
	}
}
