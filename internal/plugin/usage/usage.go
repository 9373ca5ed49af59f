package usage

import (
	"maps"
	"math"
	"slices"
)

// Usage is what the pods of a server do. What is not known is nil.
type Usage struct {
	Pods     int `json:"pods"`     // that serve
	Answered int `json:"answered"` // pods that said what they do

	CallsPerSecond *float64 `json:"callsPerSecond,omitempty"`
	ErrorRatio     *float64 `json:"errorRatio,omitempty"`
	P99Seconds     *float64 `json:"p99Seconds,omitempty"`

	Sessions       *float64 `json:"sessions,omitempty"`
	SessionsLimit  *float64 `json:"sessionsLimit,omitempty"`
	InFlight       *float64 `json:"inFlight,omitempty"`
	Processes      *float64 `json:"processes,omitempty"`
	BufferedBytes  *float64 `json:"bufferedBytes,omitempty"`
	MemoryBytes    *float64 `json:"memoryBytes,omitempty"`      // of the servers' containers
	MemoryMaxBytes *float64 `json:"memoryLimitBytes,omitempty"` // 0 is no limit
}

// Total adds up the pods of a server.
type Total struct {
	pods, answered  int
	measured        bool // whether a pod answered twice
	rate            float64
	calls, failures float64
	buckets         map[float64]float64
	gauges          map[string]float64
}

// Add adds a pod: what it said last, and what it said before. Either is nil if it did not answer.
func (t *Total) Add(before, now *Scrape) {
	t.pods++
	if now == nil {
		return
	}
	t.answered++
	if t.gauges == nil {
		t.gauges, t.buckets = map[string]float64{}, map[float64]float64{}
	}
	for name, value := range now.gauges {
		t.gauges[name] += value
	}
	if before == nil || !now.at.After(before.at) {
		return
	}
	t.measured = true
	calls := 0.0
	for key, last := range now.calls {
		grown := last.since(before.calls[key])
		calls += grown.count
		if last.failed {
			t.failures += grown.count
		}
		for bound, count := range grown.buckets {
			t.buckets[bound] += count
		}
	}
	t.calls += calls
	t.rate += calls / now.at.Sub(before.at).Seconds()
}

// since is what was added since an earlier scrape. If any number went down, the adapter has restarted
// and everything was added since.
func (s series) since(before series) series {
	if s.count < before.count {
		return s
	}
	grown := series{failed: s.failed, count: s.count - before.count, buckets: map[float64]float64{}}
	for bound, count := range s.buckets {
		if count < before.buckets[bound] {
			return s
		}
		grown.buckets[bound] = count - before.buckets[bound]
	}
	return grown
}

// Usage is the sum.
func (t *Total) Usage() Usage {
	u := Usage{
		Pods: t.pods, Answered: t.answered,
		Sessions: t.gauge(metricSessions), SessionsLimit: t.gauge(metricLimit), InFlight: t.gauge(metricInFlight),
		Processes: t.gauge(metricProcesses), BufferedBytes: t.gauge(metricUsed), MemoryBytes: t.gauge(metricMemory), MemoryMaxBytes: t.gauge(metricMemoryMax),
	}
	if !t.measured {
		return u
	}
	u.CallsPerSecond = known(t.rate)
	u.ErrorRatio = known(t.failures / t.calls)
	u.P99Seconds = known(Quantile(0.99, t.buckets))
	return u
}

func (t *Total) gauge(name string) *float64 {
	value, ok := t.gauges[name]
	if !ok {
		return nil
	}
	return known(value)
}

// known is a number, or nil for what is none: JSON has no other numbers.
func known(value float64) *float64 {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return nil
	}
	return &value
}

// Quantile is what a part of all observations does not exceed, as histogram_quantile of Prometheus has it:
// by linear interpolation in the bucket that it is in, and the highest finite bound for what is beyond that.
// It is NaN without observations, and without a finite bound.
func Quantile(part float64, cumulative map[float64]float64) float64 {
	bounds := slices.Sorted(maps.Keys(cumulative))
	if len(bounds) < 2 || !math.IsInf(bounds[len(bounds)-1], 1) {
		return math.NaN()
	}
	counts := make([]float64, len(bounds))
	highest := 0.0
	for i, bound := range bounds {
		highest = max(highest, cumulative[bound]) // pods of several versions may have several bounds
		counts[i] = highest
	}
	all := counts[len(counts)-1]
	if all == 0 {
		return math.NaN()
	}
	rank := part * all
	i, _ := slices.BinarySearch(counts[:len(counts)-1], rank)
	if i == len(counts)-1 {
		return bounds[i-1]
	}
	if i == 0 && bounds[0] <= 0 {
		return bounds[0]
	}
	start, below := 0.0, 0.0
	if i > 0 {
		start, below = bounds[i-1], counts[i-1]
	}
	return start + (bounds[i]-start)*(rank-below)/(counts[i]-below)
}
