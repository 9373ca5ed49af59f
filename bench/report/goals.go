package report

import (
	"fmt"
	"math"

	"github.com/slipway-mcp/slipway/bench/stats"
)

// comparison says what a goal's metric is held against.
type comparison int

const (
	ratioTo     comparison = iota // the base, or the best peer
	byItself                      // nothing: the metric is a ratio, or a number, already
	moreThan                      // the base, and it is the difference that counts
	withinNoise                   // the base; what the same system twice shows is allowed
)

// goal is what one of our systems is to reach.
type goal struct {
	workload, system, metric string
	comparison               comparison
	base                     string
	want                     float64
	atLeast                  bool
	// noise is where withinNoise finds what two of the same differ by: another system
	// with the base's own work, or a metric of the workload.
	noise string
}

// hopBase is the least that a hop between two programs can be.
const hopBase = "L3f"

const bestNode = "the best Node.js peer"

// goals are what "fast" means. They are about ratios: no time is good or bad by itself.
var goals = []goal{
	{workload: "calls-1", system: "adapter", metric: "rate", base: Base, want: 0.87, atLeast: true},
	{workload: "calls-8", system: "adapter", metric: "rate", base: Base, want: 0.87, atLeast: true},
	{workload: "calls-64", system: "adapter", metric: "rate", base: Base, want: 0.87, atLeast: true},
	{workload: "calls-1", system: "adapter", metric: "p99", base: Base, want: 1.3},
	{workload: "calls-8", system: "adapter", metric: "p99", base: Base, want: 1.3},
	{workload: "calls-64", system: "adapter", metric: "p99", base: Base, want: 1.3},
	{workload: "calls-1", system: "adapter", metric: "cpu", base: Base, want: 1.2},
	{workload: "calls-8", system: "adapter", metric: "cpu", base: Base, want: 1.2},
	{workload: "calls-64", system: "adapter", metric: "cpu", base: Base, want: 1.2},
	{workload: "calls-1-one-core", system: "adapter", metric: "rate", base: Base, want: 0.87, atLeast: true},
	{workload: "calls-8-one-core", system: "adapter", metric: "rate", base: Base, want: 0.87, atLeast: true},
	{workload: "calls-64-one-core", system: "adapter", metric: "rate", base: Base, want: 0.87, atLeast: true},
	{workload: "calls-warm", system: "adapter", metric: "rate1", base: bestNode, want: 9, atLeast: true},
	{workload: "calls-warm", system: "adapter", metric: "rate8", base: bestNode, want: 9, atLeast: true},
	{workload: "calls-warm", system: "adapter", metric: "rate64", base: bestNode, want: 9, atLeast: true},
	{workload: "reply-1m", system: "adapter", metric: "p50", base: Base, want: 1.5},
	{workload: "request-1m", system: "adapter", metric: "p50", base: Base, want: 1.5},
	{workload: "reply-1m-one-core", system: "adapter", metric: "p50", base: Base, want: 1.5},
	{workload: "request-1m-one-core", system: "adapter", metric: "p50", base: Base, want: 1.5},
	{workload: "reply-8m", system: "adapter", metric: "p50", base: Base, want: 1.5},
	{workload: "request-8m", system: "adapter", metric: "p50", base: Base, want: 1.5},
	{workload: "progress", system: "adapter", metric: "rate", base: Base, want: 0.25, atLeast: true},
	{workload: "progress", system: "adapter", metric: "rate", base: bestNode, want: 10, atLeast: true},
	{workload: "progress", system: "adapter", metric: "lost", comparison: byItself, want: 0},
	{workload: "forwarded-1", system: "adapter-forwarded", metric: "rate", base: hopBase, want: 0.85, atLeast: true},
	{workload: "forwarded-8", system: "adapter-forwarded", metric: "rate", base: hopBase, want: 0.85, atLeast: true},
	{workload: "forwarded-64", system: "adapter-forwarded", metric: "rate", base: hopBase, want: 0.85, atLeast: true},
	{workload: "forwarded-1", system: "adapter-forwarded", metric: "p50", base: "adapter", want: 2},
	{workload: "forwarded-1", system: "adapter-forwarded", metric: "cpu", base: "adapter", want: 2.8},
	{workload: "forwarded-reply-1m", system: "adapter-forwarded", metric: "p50", base: hopBase, want: 1.2},
	{workload: "forwarded-progress", system: "adapter-forwarded", metric: "rate", base: "adapter", want: 0.5, atLeast: true},
	{workload: "forwarded-progress", system: "adapter-forwarded", metric: "lost", comparison: byItself, want: 0},
	{workload: "idle-forwarded", system: "adapter-forwarded", metric: "kib", comparison: byItself, want: 130},
	{workload: "forwarded-1", system: "adapter-peers", metric: "rate", comparison: withinNoise, base: "adapter", noise: "L3-again", want: 0.95, atLeast: true},
	{workload: "forwarded-8", system: "adapter-peers", metric: "rate", comparison: withinNoise, base: "adapter", noise: "L3-again", want: 0.95, atLeast: true},
	{workload: "forwarded-64", system: "adapter-peers", metric: "rate", comparison: withinNoise, base: "adapter", noise: "L3-again", want: 0.95, atLeast: true},
	{workload: "initialize", system: "adapter-no-spare", metric: "p50", base: Base, want: 1.15},
	{workload: "initialize", system: "adapter", metric: "p50", base: Base, want: 0.5},
	{workload: "idle", system: "adapter", metric: "kib", base: Base, want: 1},
	{workload: "idle", system: "adapter", metric: "kib", comparison: byItself, want: 40},
	{workload: "idle", system: "adapter", metric: "threadsMore", comparison: moreThan, base: Base, want: 0},
	{workload: "idle", system: "adapter", metric: "change", comparison: withinNoise, noise: "again", want: 1.05},
	{workload: "slow-reader", system: "adapter", metric: "change", comparison: byItself, want: 1.1},
	{workload: "slow-reader", system: "adapter", metric: "lost", comparison: byItself, want: 0},
	{workload: "slow-same", system: "adapter", metric: "lost", comparison: byItself, want: 0},
	{workload: "tokens-1", system: "adapter-auth", metric: "change", comparison: byItself, want: 0.95, atLeast: true},
	{workload: "tokens-1-one-core", system: "adapter-auth", metric: "change", comparison: byItself, want: 0.95, atLeast: true},
	{workload: "tokens-8", system: "adapter-auth", metric: "change", comparison: byItself, want: 0.95, atLeast: true},
	{workload: "tokens-8-one-core", system: "adapter-auth", metric: "change", comparison: byItself, want: 0.95, atLeast: true},
	{workload: "tokens-64", system: "adapter-auth", metric: "change", comparison: byItself, want: 0.95, atLeast: true},
	{workload: "tokens-64-one-core", system: "adapter-auth", metric: "change", comparison: byItself, want: 0.95, atLeast: true},
	{workload: "bad-tokens", system: "adapter-auth", metric: "change", comparison: byItself, want: 1.3},
	{workload: "calls-8", system: "adapter-launcher", metric: "rate", comparison: withinNoise, base: "adapter", noise: "L3-again", want: 0.95, atLeast: true},
	{workload: "progress", system: "adapter-launcher", metric: "rate", comparison: withinNoise, base: "adapter", noise: "L3-again", want: 0.95, atLeast: true},
}

// Verdict is what a run says of a goal.
type Verdict string

// The verdicts. They go by the bound of confidence, not by the estimate.
const (
	Met       Verdict = "met"
	Missed    Verdict = "**missed**"
	Undecided Verdict = "within noise: not decided"
)

// judged is a goal and what a run says of it.
type judged struct {
	goal
	title    string // workload and metric
	compared string
	against  string // who the best peer was
	found    stats.Ratio
	verdict  Verdict
}

// judge holds a run against the goals, those that it has measured anything of.
func judge(r *Run) (all []judged) {
	for _, g := range goals {
		w, known := r.workload(g.workload)
		metric, has := w.metric(g.metric)
		if !known || !has {
			continue
		}
		j := judged{goal: g, title: w.Title + ": " + metric.Title, compared: r.title(g.system)}
		switch {
		case g.comparison == byItself || g.base == "":
			j.found = r.itself(g.workload, g.system, g.metric)
		case g.comparison == moreThan:
			j.compared += " − " + r.title(g.base)
			j.found = r.difference(g.workload, g.system, g.base, g.metric)
		case g.base == bestNode:
			j.compared += " ÷ " + bestNode
			peer := r.bestPeer(g.workload, metric)
			j.against = r.title(peer)
			j.found = r.ratio(g.workload, g.system, peer, g.metric)
		default:
			j.compared += " ÷ " + r.title(g.base)
			j.found = r.ratio(g.workload, g.system, g.base, g.metric)
		}
		if j.found.N == 0 {
			continue
		}
		if g.comparison == withinNoise {
			j.want = r.limitByNoise(g)
		}
		j.verdict = j.verdictAt(j.want)
		all = append(all, j)
	}
	return all
}

// limitByNoise is the goal's own limit, or what two of the same differ by if that is more.
func (r *Run) limitByNoise(g goal) float64 {
	noise := r.ratio(g.workload, g.noise, Base, g.metric)
	if g.base == "" {
		noise = r.itself(g.workload, g.system, g.noise)
	}
	switch {
	case noise.N == 0:
		return g.want
	case g.atLeast:
		return min(g.want, noise.Low)
	}
	// Which of the two came first means nothing.
	return max(g.want, noise.High, 1/noise.Low)
}

// itself is a metric as it is, with bounds.
func (r *Run) itself(workload, system, metric string) stats.Ratio {
	found := r.values(workload, system, metric)
	return stats.Paired(found, ones(found), r.Seed)
}

// difference is how much more one has than another in the same round, with bounds.
func (r *Run) difference(workload, system, base, metric string) stats.Ratio {
	found, others := r.values(workload, system, metric), r.values(workload, base, metric)
	for round, value := range found {
		other, ok := others[round]
		if !ok {
			delete(found, round)
			continue
		}
		found[round] = value - other
	}
	return stats.Paired(found, ones(found), r.Seed)
}

func ones(like map[int]float64) map[int]float64 {
	all := map[int]float64{}
	for round := range like {
		all[round] = 1
	}
	return all
}

// verdictAt goes by the bounds. With fewer rounds than these need they are the least and
// the most, so all rounds have to agree; and one round decides nothing.
func (j judged) verdictAt(limit float64) Verdict {
	low, high := j.found.Low, j.found.High
	if j.atLeast {
		low, high, limit = -high, -low, -limit
	}
	switch {
	case j.found.N < 2:
		return Undecided
	case high <= limit:
		return Met
	case low > limit:
		return Missed
	}
	return Undecided
}

// regressionTolerance is by how much a bound may be beyond a goal that was met before.
const regressionTolerance = 0.1

// isFarOff says that even the better bound misses the goal by more than is tolerated.
func (j judged) isFarOff() bool {
	limit := j.want + math.Abs(j.want)*regressionTolerance
	if j.atLeast {
		limit = j.want - math.Abs(j.want)*regressionTolerance
	}
	return j.verdictAt(limit) == Missed
}

func (j judged) wanted() string {
	sign := "≤"
	if j.atLeast {
		sign = "≥"
	}
	text := sign + " " + number(j.want)
	if j.comparison == withinNoise {
		text += " (noise)"
	}
	return text
}

func (j judged) estimate() string {
	if j.against != "" {
		return number(j.found.Median) + " (" + j.against + ")"
	}
	return number(j.found.Median)
}

func (j judged) bounds() string {
	return fmt.Sprintf("[%s, %s], %d rounds", number(j.found.Low), number(j.found.High), j.found.N)
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
