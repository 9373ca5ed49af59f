package report

import (
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/bench/stats"
)

func TestVerdict(t *testing.T) {
	most, least := goal{want: 1.5}, goal{want: 0.87, atLeast: true}
	for name, test := range map[string]struct {
		goal   goal
		ratio  stats.Ratio
		want   Verdict
		farOff bool
	}{
		"below":      {goal: most, ratio: stats.Ratio{N: 12, Median: 1.3, Low: 1.2, High: 1.4}, want: Met},
		"around":     {goal: most, ratio: stats.Ratio{N: 12, Median: 1.4, Low: 1.2, High: 1.6}, want: Undecided},
		"above":      {goal: most, ratio: stats.Ratio{N: 12, Median: 1.7, Low: 1.6, High: 1.8}, want: Missed},
		"far above":  {goal: most, ratio: stats.Ratio{N: 12, Median: 1.8, Low: 1.7, High: 1.9}, want: Missed, farOff: true},
		"enough":     {goal: least, ratio: stats.Ratio{N: 12, Median: 0.9, Low: 0.88, High: 0.95}, want: Met},
		"perhaps":    {goal: least, ratio: stats.Ratio{N: 12, Median: 0.9, Low: 0.85, High: 0.95}, want: Undecided},
		"not enough": {goal: least, ratio: stats.Ratio{N: 12, Median: 0.8, Low: 0.7, High: 0.86}, want: Missed},
		"far below":  {goal: least, ratio: stats.Ratio{N: 12, Median: 0.7, Low: 0.6, High: 0.75}, want: Missed, farOff: true},
		"two rounds": {goal: most, ratio: stats.Ratio{N: 2, Median: 1.4, Low: 1.3, High: 1.45}, want: Met},
		"one round":  {goal: most, ratio: stats.Ratio{N: 1, Median: 9, Low: 9, High: 9}, want: Undecided},
		"none lost":  {goal: goal{want: 0}, ratio: stats.Ratio{N: 6}, want: Met},
		"some lost":  {goal: goal{want: 0}, ratio: stats.Ratio{N: 6, Median: 1, Low: 1, High: 1}, want: Missed, farOff: true},
	} {
		t.Run(name, func(t *testing.T) {
			j := judged{goal: test.goal, found: test.ratio}
			if got := j.verdictAt(j.want); got != test.want {
				t.Errorf("it is %q, want %q", got, test.want)
			}
			if got := j.isFarOff(); got != test.farOff {
				t.Errorf("it is far off: %v", got)
			}
		})
	}
}

// slowed is the example with the adapter's answers of 1 MiB taking so many times as long.
func slowed(factor float64) *Run {
	r := example()
	for _, s := range r.Samples {
		if s.Workload == "reply-1m" && s.System == "adapter" {
			s.Values["p50"] *= factor
		}
	}
	return r
}

func TestRegressions(t *testing.T) {
	met, missed := goalTable(slowed(0.9)), goalTable(slowed(2))
	if !strings.Contains(met, "A reply of 1 MiB: p50 ms | adapter ÷ L3 | ≤ 1.50 | 1.40 | [1.33, 1.46], 6 rounds | met") {
		t.Fatalf("the goal is not met before: %s", met)
	}
	for name, test := range map[string]struct {
		page   string
		factor float64
		want   int
	}{
		"as before":           {met, 0.9, 0},
		"a little worse":      {met, 1.05, 0},
		"much worse":          {met, 2, 1},
		"as bad as it was":    {missed, 2, 0},
		"not decided before":  {strings.ReplaceAll(met, "| met |", "| within noise: not decided |"), 2, 1},
		"nothing known of it": {"", 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			found := Regressions(slowed(test.factor), test.page)
			if len(found) != test.want || test.want == 1 && !strings.Contains(found[0], "A reply of 1 MiB: p50 ms, adapter ÷ L3: it is 3.10") {
				t.Errorf("it says %q", found)
			}
		})
	}
}

// The page as it is committed has goals that the gate can read.
func TestRegressionsReadTheOldTable(t *testing.T) {
	page := "| A reply of 8 MiB: p50 ms | adapter ÷ L3 | ≤ 1.50 | 1.36 [1.17, 1.45] | met |\n| Small | adapter ÷ L3 | ≥ 0.87 | 0.66 | **missed** |\n"
	if got := notMissedBefore(page); len(got) != 1 || !got["A reply of 8 MiB: p50 ms | adapter ÷ L3"] {
		t.Errorf("it reads %v", got)
	}
}

func TestSummary(t *testing.T) {
	got := Summary(slowed(2))
	for _, want := range []string{"goals are met", "missed", "A reply of 1 MiB: p50 ms, adapter ÷ L3: 3.10"} {
		if !strings.Contains(got, want) {
			t.Errorf("it does not say %q: %s", want, got)
		}
	}
	if strings.Contains(got, "lost replies") {
		t.Errorf("it tells of a goal that is met: %s", got)
	}
}
