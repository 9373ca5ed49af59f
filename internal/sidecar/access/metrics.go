package access

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slipway-mcp/slipway/internal/sidecar/access/rules"
	"github.com/slipway-mcp/slipway/internal/sidecar/access/token"
)

// Metrics count what a Gate refuses. No caller can choose the value of a label.
type Metrics struct {
	verified atomic.Int64

	mu       sync.Mutex
	refused  map[string]*atomic.Int64 // by reason
	denied   map[[2]string]*atomic.Int64
	clockLog time.Time
}

var (
	authDescription   = prometheus.NewDesc("slipway_adapter_auth_total", "Tokens that the adapter verified, and requests that it refused before it read their body, by result. The adapter verifies each token once.", []string{"result"}, nil)
	deniedDescription = prometheus.NewDesc("slipway_adapter_access_denied_total", "Messages denied by the access rules, by kind and reason. Absent until the first denial.", []string{"kind", "reason"}, nil)
	generationDesc    = prometheus.NewDesc("slipway_adapter_access_generation", "Generation of the access rules in effect. 0 if there are none.", nil, nil)
)

// Describe implements prometheus.Collector.
func (g *Gate) Describe(to chan<- *prometheus.Desc) {
	to <- authDescription
	to <- deniedDescription
	to <- generationDesc
}

// Collect implements prometheus.Collector.
func (g *Gate) Collect(to chan<- prometheus.Metric) {
	m := &g.metrics
	to <- prometheus.MustNewConstMetric(generationDesc, prometheus.GaugeValue, float64(g.generation()))
	to <- prometheus.MustNewConstMetric(authDescription, prometheus.CounterValue, float64(m.verified.Load()), "verified")
	m.mu.Lock()
	defer m.mu.Unlock()
	for reason, count := range m.refused {
		to <- prometheus.MustNewConstMetric(authDescription, prometheus.CounterValue, float64(count.Load()), reason)
	}
	for labels, count := range m.denied {
		to <- prometheus.MustNewConstMetric(deniedDescription, prometheus.CounterValue, float64(count.Load()), labels[0], labels[1])
	}
}

// count counts a refusal, and returns it.
func (g *Gate) count(refusal *Refusal) *Refusal {
	m := &g.metrics
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refused == nil {
		m.refused = map[string]*atomic.Int64{}
	}
	counterOf(m.refused, refusal.Reason).Add(1)
	return refusal
}

func (g *Gate) countDenied(decision *rules.Decision, refusal *Refusal) *Refusal {
	m := &g.metrics
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.denied == nil {
		m.denied = map[[2]string]*atomic.Int64{}
	}
	counterOf(m.denied, [2]string{string(decision.Kind), refusal.Reason}).Add(1)
	return refusal
}

func counterOf[K comparable](counters map[K]*atomic.Int64, key K) *atomic.Int64 {
	counter := counters[key]
	if counter == nil {
		counter = new(atomic.Int64)
		counters[key] = counter
	}
	return counter
}

// clockPause is how long the log has no second line about clocks.
const clockPause = time.Minute

// noteClock logs by how much the time of a token is off: the clock of the node or the issuer may be wrong.
func (g *Gate) noteClock(wrong *token.Error) {
	m := &g.metrics
	m.mu.Lock()
	due := time.Since(m.clockLog) > clockPause
	if due {
		m.clockLog = time.Now()
	}
	m.mu.Unlock()
	if due {
		g.options.Log.Info("Token refused by its time; if clients get this at once after they log in, compare the clocks of the node and the issuer",
			"issuer", wrong.Issuer, "reason", string(wrong.Reason), "offSeconds", strconv.FormatFloat(wrong.Off.Seconds(), 'f', 0, 64))
	}
}
