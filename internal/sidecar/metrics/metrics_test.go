package metrics

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"reflect"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/slipway-mcp/slipway/internal/sidecar/front/stateless"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/news"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/relay"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/roster"
	"github.com/slipway-mcp/slipway/internal/sidecar/proxy"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/shared"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/sessionid"
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

// Each outcome of requests that are passed on, and of connections to other pods, has a value of its own.
func TestPeers(t *testing.T) {
	passes := relay.New(relay.Options{Dial: func(context.Context, netip.AddrPort) (net.Conn, error) { return nil, syscall.ECONNREFUSED }})
	t.Cleanup(passes.Close)
	for range 2 {
		err := passes.Forward(t.Context(), httptest.NewRecorder(), sessionid.Owner{}, &relay.Request{Method: http.MethodPost, Target: "/mcp", Host: "echo"})
		if _, ok := errors.AsType[*relay.DialError](err); !ok {
			t.Fatalf("got %v", err)
		}
	}
	want := map[string]float64{"slipway_adapter_peer_connections": 0, "slipway_adapter_forwarded_streams": 0, "slipway_adapter_waiting_streams": 0, "slipway_adapter_news_streams": 0, "slipway_adapter_peer_list_age_seconds": 0}
	for _, outcome := range relay.ForwardOutcomes() {
		want["slipway_adapter_forwarded_total "+outcome.String()] = 0
	}
	for _, outcome := range relay.DialOutcomes() {
		want["slipway_adapter_peer_dials_total "+outcome.String()] = 0
	}
	want["slipway_adapter_forwarded_total refused"], want["slipway_adapter_peer_dials_total refused"] = 2, 2
	registry := prometheus.NewRegistry()
	Register(registry, Peers(passes, roster.New(), news.New(news.Options{Relay: passes})))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			name := family.GetName()
			if labels := metric.GetLabel(); len(labels) == 1 {
				name += " " + labels[0].GetValue()
			}
			got[name] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
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
