// Package usage works out what servers do from scrapes of the metrics of their adapters.
package usage

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// MaxBytes bounds what is read from a pod. A scrape of a busy adapter has some 100 KiB.
const MaxBytes = 4 << 20

// The metrics of the adapter that count here. docs/adapter.md describes them.
const (
	metricCalls     = "mcp_server_operation_duration_seconds"
	metricSessions  = "slipway_adapter_sessions"
	metricLimit     = "slipway_adapter_sessions_limit"
	metricInFlight  = "slipway_adapter_operations_in_flight"
	metricProcesses = "slipway_adapter_server_processes"
	metricUsed      = "slipway_adapter_budget_used_bytes"
	metricMemory    = "slipway_adapter_server_memory_bytes"
	metricMemoryMax = "slipway_adapter_server_memory_limit_bytes"

	labelMethod = "mcp_method_name"
	labelError  = "error_type"
)

// Methods are those that count as calls. The probes of the manager use none of them, so a server that
// nothing calls shows no calls.
func Methods() []string { return []string{"tools/call", "resources/read", "prompts/get", "batch"} }

// Scrape is what an adapter has counted since it started.
type Scrape struct {
	at     time.Time
	calls  map[string]series // by labels
	gauges map[string]float64
}

// series is a histogram of calls with the same labels.
type series struct {
	failed  bool
	count   float64
	buckets map[float64]float64 // how many took no longer, by upper bound
}

// Parse reads a scrape of some time.
func Parse(from io.Reader, at time.Time) (*Scrape, error) {
	limited := &io.LimitedReader{R: from, N: MaxBytes + 1}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(limited)
	if limited.N <= 0 {
		return nil, fmt.Errorf("read metrics: more than %d MiB", MaxBytes>>20)
	}
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	s := &Scrape{at: at, calls: map[string]series{}, gauges: map[string]float64{}}
	for _, name := range []string{metricSessions, metricLimit, metricInFlight, metricProcesses, metricUsed, metricMemory, metricMemoryMax} {
		for _, metric := range families[name].GetMetric() {
			if value := gaugeOf(metric); isCount(value) {
				s.gauges[name] += value
			}
		}
	}
	if _, ok := s.gauges[metricSessions]; !ok {
		return nil, errors.New("read metrics: they are not those of an adapter, which says how many sessions are open")
	}
	for _, metric := range families[metricCalls].GetMetric() {
		if metric.GetHistogram() != nil && slices.Contains(Methods(), labelOf(metric, labelMethod)) {
			s.calls[keyOf(metric)] = seriesOf(metric)
		}
	}
	return s, nil
}

// gaugeOf is the value of a gauge, also if the adapter does not say that it is one.
func gaugeOf(metric *dto.Metric) float64 {
	switch {
	case metric.GetGauge() != nil:
		return metric.GetGauge().GetValue()
	case metric.GetUntyped() != nil:
		return metric.GetUntyped().GetValue()
	default:
		return math.NaN()
	}
}

// isCount says whether a value can be a number of things.
func isCount(value float64) bool { return value >= 0 && !math.IsInf(value, 0) } // NaN is not

func labelOf(metric *dto.Metric, name string) string {
	for _, label := range metric.GetLabel() {
		if label.GetName() == name {
			return label.GetValue()
		}
	}
	return ""
}

func keyOf(metric *dto.Metric) string {
	var labels []string
	for _, label := range metric.GetLabel() {
		labels = append(labels, fmt.Sprintf("%q=%q", label.GetName(), label.GetValue()))
	}
	slices.Sort(labels)
	return strings.Join(labels, ",")
}

func seriesOf(metric *dto.Metric) series {
	histogram := metric.GetHistogram()
	s := series{failed: labelOf(metric, labelError) != "", buckets: map[float64]float64{}}
	s.count = float64(histogram.GetSampleCount())
	for _, bucket := range histogram.GetBucket() {
		if bound := bucket.GetUpperBound(); !math.IsNaN(bound) { // a key that equals itself
			s.buckets[bound] = float64(bucket.GetCumulativeCount())
		}
	}
	return s
}
