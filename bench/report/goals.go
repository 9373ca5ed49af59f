package report

import (
	"fmt"
	"strings"

	"github.com/slipway-mcp/slipway/bench/stats"
)

// goal is a ratio that one of our systems is to have.
type goal struct {
	workload, system, metric string
	// base is a system; bestNode is whichever peer is best, and itself means that the
	// metric is a ratio already.
	base    string
	want    float64
	atLeast bool
}

const (
	bestNode = "the best peer"
	itself   = ""
)

// goals are what "fast" means. They are about ratios: no time is good or bad by itself.
var goals = []goal{
	{"calls-1", "adapter", "rate", Base, 0.87, true},
	{"calls-8", "adapter", "rate", Base, 0.87, true},
	{"calls-64", "adapter", "rate", Base, 0.87, true},
	{"calls-1", "adapter", "p99", Base, 1.3, false},
	{"calls-8", "adapter", "p99", Base, 1.3, false},
	{"calls-64", "adapter", "p99", Base, 1.3, false},
	{"calls-1", "adapter", "cpu", Base, 1.2, false},
	{"calls-8", "adapter", "cpu", Base, 1.2, false},
	{"calls-64", "adapter", "cpu", Base, 1.2, false},
	{"calls-warm", "adapter", "rate1", bestNode, 9, true},
	{"calls-warm", "adapter", "rate8", bestNode, 9, true},
	{"calls-warm", "adapter", "rate64", bestNode, 9, true},
	{"reply-1m", "adapter", "p50", Base, 1.5, false},
	{"request-1m", "adapter", "p50", Base, 1.5, false},
	{"reply-8m", "adapter", "p50", Base, 1.5, false},
	{"request-8m", "adapter", "p50", Base, 1.5, false},
	{"progress", "adapter", "rate", Base, 0.25, true},
	{"progress", "adapter", "rate", bestNode, 10, true},
	{"initialize", "adapter-no-spare", "p50", Base, 1.15, false},
	{"initialize", "adapter", "p50", Base, 0.5, false},
	{"idle", "adapter", "kib", Base, 1, false},
	{"idle", "adapter", "change", itself, 1.1, false},
	{"slow-reader", "adapter", "change", itself, 1.1, false},
	{"calls-8", "adapter-launcher", "rate", "adapter", 0.95, true},
	{"progress", "adapter-launcher", "rate", "adapter", 0.95, true},
}

// goalTable says of each goal whether it is met: with confidence, without, or not.
func goalTable(r *Run) string {
	var b strings.Builder
	for _, g := range goals {
		w, ok := r.workload(g.workload)
		if !ok {
			continue
		}
		metric, ok := w.metric(g.metric)
		if !ok {
			continue
		}
		base := g.base
		if base == bestNode {
			base = r.bestPeer(g.workload, metric)
		}
		found := r.ratio(g.workload, g.system, base, g.metric)
		compared := r.title(g.system) + " ÷ " + r.title(base)
		if base == itself {
			found, compared = r.itself(g.workload, g.system, g.metric), r.title(g.system)
		}
		if found.N == 0 {
			continue
		}
		sign := "≤"
		if g.atLeast {
			sign = "≥"
		}
		fmt.Fprintf(&b, "| %s: %s | %s | %s %s | %s | %s |\n", w.Title, metric.Title, compared, sign, number(g.want), ratio(found, false), g.verdict(found))
	}
	if b.Len() == 0 {
		return ""
	}
	return "| | ratio | goal | measured [95 %] | |\n|---|---|---|---|---|\n" + b.String()
}

// itself is a metric that is a ratio already, with bounds.
func (r *Run) itself(workload, system, metric string) stats.Ratio {
	found := r.values(workload, system, metric)
	ones := map[int]float64{}
	for round := range found {
		ones[round] = 1
	}
	return stats.Paired(found, ones, r.Seed)
}

// verdict goes by the bound of confidence, where there are enough rounds for one.
func (g goal) verdict(r stats.Ratio) string {
	low, high := r.Low, r.High
	if r.N < fewestForBounds {
		low, high = r.Median, r.Median
	}
	if g.atLeast {
		low, high = -high, -low
		g.want = -g.want
	}
	switch {
	case high <= g.want:
		return "met"
	case low > g.want:
		return "**missed**"
	}
	return "within noise"
}

func (w Workload) metric(key string) (Metric, bool) {
	for _, m := range w.Metrics {
		if m.Key == key {
			return m, true
		}
	}
	return Metric{}, false
}

func (r *Run) title(system string) string {
	if system == Base {
		return Base // its title is long
	}
	for _, s := range r.Systems {
		if s.Name == system {
			return s.Title
		}
	}
	return system
}
