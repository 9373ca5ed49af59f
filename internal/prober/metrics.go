package prober

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slipway-mcp/slipway/internal/mcpprobe"
)

// The kinds of questions, as a label.
const (
	kindVerify   = "verify"
	kindCatalog  = "catalog"
	kindSettings = "settings"
	kindAccess   = "access"
	kindPeers    = "peers"
)

// metrics have no label that a server could choose.
type metrics struct {
	duration *prometheus.HistogramVec
	failures *prometheus.CounterVec
}

func newMetrics(registry prometheus.Registerer, p *Prober) *metrics {
	m := &metrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "slipway_probe_duration_seconds", Help: "How long pods took to answer a request of the manager, or to fail, by kind of request: verify, catalog, settings, access or peers.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"kind"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slipway_probe_failures_total", Help: "Requests of the manager to pods that failed, by kind of request and class of error.",
		}, []string{"kind", "class"}),
	}
	if registry == nil {
		return m
	}
	registry.MustRegister(m.duration, m.failures,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "slipway_probe_instances", Help: "Pods that the manager probes.",
		}, func() float64 { return p.total(func(s *server) int64 { return int64(len(s.instances)) }) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "slipway_sessions", Help: "Open sessions, as the pods last reported.",
		}, func() float64 { return p.total(func(s *server) int64 { return s.sum().open }) }),
	)
	return m
}

// total adds up something over all servers.
func (p *Prober) total(of func(*server) int64) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	var sum int64
	for _, s := range p.servers {
		sum += of(s)
	}
	return float64(sum)
}

// timed measures a question.
func (m *metrics) timed(kind string, ask func() error) error {
	begin := time.Now()
	err := ask()
	if err != nil && mcpprobe.ClassOf(err) == mcpprobe.Canceled {
		return err // the prober canceled it
	}
	m.duration.WithLabelValues(kind).Observe(time.Since(begin).Seconds())
	switch {
	case errors.Is(err, errNoRoom):
		m.failures.WithLabelValues(kind, "Postponed").Inc()
	case err != nil:
		m.failures.WithLabelValues(kind, string(mcpprobe.ClassOf(err))).Inc()
	}
	return err
}
