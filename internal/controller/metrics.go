package controller

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// newIdleWrites returns the counter of status writes without effect.
func newIdleWrites() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Name: "slipway_status_writes_without_effect_total",
		Help: "Status writes that the API server accepted and that changed nothing. They occur if the CRD is older than this manager.",
	})
}

// newWaiting returns the gauge of servers that wait to be created. The work queue does not have
// them.
func newWaiting(c *creations) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "slipway_servers_waiting_for_creation",
		Help: "MCPServers that wait until others are created. At most half of the workers create servers.",
	}, func() float64 { return float64(c.inLine()) })
}

// NewServerMetrics returns metrics of all MCPServers together, read from the cache when
// somebody asks. None has the name of a server as a label: there may be thousands.
func NewServerMetrics(reader client.Reader) prometheus.Collector {
	return &serverMetrics{
		reader: reader,
		servers: prometheus.NewDesc("slipway_servers", "MCPServers by whether they are ready, and why.",
			[]string{"ready", "reason"}, nil),
		outdated: prometheus.NewDesc("slipway_servers_template_outdated", "MCPServers whose pods this operator would render differently.", nil, nil),
	}
}

type serverMetrics struct {
	reader            client.Reader
	servers, outdated *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (m *serverMetrics) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- m.servers
	descriptions <- m.outdated
}

// scrapeTimeout bounds the wait for a cache that is not filled yet.
const scrapeTimeout = time.Second

// Collect implements prometheus.Collector. While the cache is not filled it says
// nothing, which is better than zero.
func (m *serverMetrics) Collect(metrics chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	var servers mcpv1alpha1.MCPServerList
	if err := m.reader.List(ctx, &servers, client.UnsafeDisableDeepCopy); err != nil {
		return
	}
	type labels struct{ ready, reason string }
	counts := map[labels]int{}
	outdated := 0
	for i := range servers.Items {
		status := &servers.Items[i].Status
		key := labels{"Unknown", "Unknown"}
		if ready := meta.FindStatusCondition(status.Conditions, mcpv1alpha1.ConditionReady); ready != nil {
			key = labels{string(ready.Status), ready.Reason}
		} else if available := meta.FindStatusCondition(status.Conditions, mcpv1alpha1.ConditionAvailable); available != nil {
			key = labels{"Stopped", available.Reason}
		}
		counts[key]++
		if status.Template != nil && status.Template.Outdated {
			outdated++
		}
	}
	for key, count := range counts {
		metrics <- prometheus.MustNewConstMetric(m.servers, prometheus.GaugeValue, float64(count), key.ready, key.reason)
	}
	metrics <- prometheus.MustNewConstMetric(m.outdated, prometheus.GaugeValue, float64(outdated))
}
