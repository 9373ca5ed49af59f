package issuer

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics have no label that the author of an MCPServer could choose.
type metrics struct{ fetches *prometheus.CounterVec }

func newMetrics(registry prometheus.Registerer, s *Store) *metrics {
	m := &metrics{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "slipway_issuer_fetches_total", Help: "Attempts to fetch the public keys of token issuers, by result.",
	}, []string{"result"})}
	for _, result := range []string{resultSuccess, resultFailure} {
		m.fetches.WithLabelValues(result)
	}
	if registry != nil {
		registry.MustRegister(m.fetches, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "slipway_issuer_keys_age_seconds", Help: "Age of the oldest issuer keys in use. A value over 600 means that an issuer does not answer.",
		}, func() float64 { return s.oldest(time.Now()).Seconds() }))
	}
	return m
}

const (
	resultSuccess = "success"
	resultFailure = "failure"
)

func (m *metrics) fetched(err error) {
	result := resultSuccess
	if err != nil {
		result = resultFailure
	}
	m.fetches.WithLabelValues(result).Inc()
}

// oldest is the age of the oldest keys; zero without any.
func (s *Store) oldest(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var age time.Duration
	for _, f := range s.sources {
		if len(f.known.Keys) > 0 {
			age = max(age, now.Sub(f.reachedAt))
		}
	}
	return age
}
