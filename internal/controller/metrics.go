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
		Help: "Status writes that the API server accepted but that changed nothing. The CRD is older than the manager: apply the CRD of the manager's version.",
	})
}

// newWaiting returns the gauge of servers that wait to be created. The work queue does not have
// them.
func newWaiting(c *creations) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "slipway_servers_waiting_for_creation",
		Help: "MCPServers that wait until other MCPServers are created. At most half of the workers create servers. The work queue's own metrics do not count these.",
	}, func() float64 { return float64(c.inLine()) })
}

// NewServerMetrics returns metrics of all MCPServers together, read from the cache at each
// scrape. None has the name of a server as a label: there may be thousands.
func NewServerMetrics(reader client.Reader) prometheus.Collector {
	return &serverMetrics{
		reader: reader,
		servers: prometheus.NewDesc("slipway_servers", "MCPServers by the status and the reason of their Ready condition. ready is Stopped for a server that is suspended or scaled to zero.",
			[]string{"ready", "reason"}, nil),
		outdated: prometheus.NewDesc("slipway_servers_template_outdated", "MCPServers whose pods run an older template than the one that this manager would create.", nil, nil),
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
