package main

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/bench/report"
)

func names(plan []step) (names []string) {
	for _, s := range plan {
		names = append(names, s.workload.Name+"/"+s.system.Name)
	}
	return names
}

func TestPlan(t *testing.T) {
	everything := regexp.MustCompile("")
	full := makePlan(options{seed: 1}, everything)
	if diff := cmp.Diff(names(full), names(makePlan(options{seed: 1}, everything))); diff != "" {
		t.Errorf("the same seed gives another order: %s", diff)
	}
	if slices.Equal(names(full), names(makePlan(options{seed: 2}, everything))) {
		t.Error("another seed gives the same order")
	}
	rounds := map[string]int{}
	for _, s := range full {
		rounds[s.workload.Name+"/"+s.system.Name]++
	}
	for cell, want := range map[string]int{
		"calls-1/L3": 12, "calls-1/L3-again": 6, "calls-8/L3-again": 12, "calls-64/adapter": 12, "calls-64/sdk-bridge": 3,
		"calls-1-one-core/adapter": 12, "calls-1-one-core/L3-again": 6, "calls-1-one-core/L2": 3, "request-1m-one-core/L3": 8,
		"progress/supergateway": 3, "calls-warm/mcp-proxy": 3, "calls-warm/adapter": 6, "idle/adapter": 3,
	} {
		if rounds[cell] != want {
			t.Errorf("%s has %d rounds, want %d", cell, rounds[cell], want)
		}
	}
	// Ratios need L3 in each round of everything but what it cannot do; and what is
	// derived from it needs it before.
	base := map[string]bool{"slow-same": true, "bad-tokens": true, "bad-tokens-many": true}
	for _, w := range []workload{tokens(1), tokens(8), tokens(64)} {
		base[w.Name], base[oneCore(w).Name] = true, true // they compare adapters with each other
	}
	for _, s := range full {
		place := s.workload.Name + strconv.Itoa(s.round)
		if s.system.Name == naive {
			base[place] = true
		}
		if s.workload.baseFirst && !base[place] {
			t.Errorf("%s has %s before L3 in round %d", s.workload.Name, s.system.Name, s.round)
		}
	}
	for _, s := range full {
		if !base[s.workload.Name+strconv.Itoa(s.round)] && !base[s.workload.Name] {
			t.Errorf("%s has no L3 in round %d", s.workload.Name, s.round)
		}
	}
}

func TestPlanOptions(t *testing.T) {
	only := regexp.MustCompile(`^calls-1/(L3|adapter)$`)
	for name, test := range map[string]struct {
		options options
		want    int
	}{
		"full":   {options{}, 24},
		"quick":  {options{quick: true}, 2},
		"rounds": {options{rounds: 3}, 6},
		"both":   {options{rounds: 3, quick: true}, 6},
	} {
		if got := len(makePlan(test.options, only)); got != test.want {
			t.Errorf("%s: %d cells, want %d", name, got, test.want)
		}
	}
}

func TestNamesAreKnown(t *testing.T) {
	known := map[string]bool{}
	for _, s := range systems {
		if known[s.Name] {
			t.Errorf("there are two %s", s.Name)
		}
		known[s.Name] = true
	}
	for _, w := range workloads {
		for _, p := range w.participants {
			for _, name := range p.systems {
				if !known[name] {
					t.Errorf("%s has %s, which is nothing", w.Name, name)
				}
			}
		}
	}
}

// A goal whose workload is spelled otherwise than here would never be judged.
func TestGoalsOfOneCore(t *testing.T) {
	run := &report.Run{}
	for _, w := range workloads {
		run.Workloads = append(run.Workloads, w.Workload)
		for _, m := range w.Metrics {
			for _, s := range w.chosen(0) {
				run.Samples = append(run.Samples, report.Sample{Workload: w.Name, System: s.Name, Values: values{m.Key: 1}})
			}
		}
	}
	for _, want := range []string{
		"Small calls, 1 session, on one core: calls/s | adapter ÷ L3 | ≥ 0.87",
		"Small calls, 8 sessions, on one core: calls/s | adapter ÷ L3 | ≥ 0.87",
		"Small calls, 64 sessions, on one core: calls/s | adapter ÷ L3 | ≥ 0.87",
		"A reply of 1 MiB, on one core: p50 ms | adapter ÷ L3 | ≤ 1.50",
		"A request of 1 MiB, on one core: p50 ms | adapter ÷ L3 | ≤ 1.50",
	} {
		if !strings.Contains(report.Markdown(run), want) {
			t.Errorf("there is no goal %q", want)
		}
	}
}
