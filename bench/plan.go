package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"

	"github.com/slipway-mcp/slipway/bench/report"
)

// step is a cell that is to be run.
type step struct {
	workload workload
	system   system
	round    int
}

// makePlan puts the cells in order. The systems of one workload and round follow each
// other, so that they are compared under the same conditions, in an order that is
// random, so that none always comes after the same other.
func makePlan(o options, only *regexp.Regexp) (plan []step) {
	random := rand.New(rand.NewPCG(o.seed, 0))
	most := 0
	for _, w := range workloads {
		most = max(most, w.count(o))
	}
	for round := range most {
		for _, w := range workloads {
			if round >= w.count(o) {
				continue
			}
			chosen := w.chosen(round)
			random.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
			if w.baseFirst {
				slices.SortStableFunc(chosen, func(a, b system) int { return basePlace(a) - basePlace(b) })
			}
			for _, s := range chosen {
				if only.MatchString(w.Name + "/" + s.Name) {
					plan = append(plan, step{w, s, round})
				}
			}
		}
	}
	return plan
}

func basePlace(s system) int {
	if s.Name == naive {
		return 0
	}
	return 1
}

// count is how many rounds a workload has.
func (w workload) count(o options) int {
	n := w.rounds
	if o.quick {
		n = w.quick
	}
	if o.rounds > 0 && n > 0 {
		n = o.rounds
	}
	return n
}

// chosen are the systems of a round.
func (w workload) chosen(round int) (chosen []system) {
	for _, s := range systems {
		for _, p := range w.participants {
			if slices.Contains(p.systems, s.Name) && round%p.every == 0 {
				chosen = append(chosen, s)
			}
		}
	}
	return chosen
}

// baseOf is what L3 had in this round of this workload, if it was there already.
func (s step) baseOf(samples []report.Sample) values {
	for _, sample := range samples {
		if sample.Workload == s.workload.Name && sample.System == naive && sample.Round == s.round {
			return sample.Values
		}
	}
	return nil
}

// run starts the system, has it do its work and ends it. What goes wrong makes the
// cell void, and is told.
func (s step) run(ctx context.Context, t *tools, quick bool, base values) report.Sample {
	sample := report.Sample{Workload: s.workload.Name, System: s.system.Name, Round: s.round}
	started, err := s.system.start(ctx, t)
	if err != nil {
		sample.Void = err.Error()
		return sample
	}
	c := &cell{running: started, node: s.system.isNode(), quick: quick, base: base}
	var found values
	if err = started.settle(); err == nil {
		found, err = s.workload.run(ctx, c)
	}
	if left := started.stop(); left > 0 {
		c.note = fmt.Sprintf("%s leaves %d processes behind", c.note, left)
	}
	sample.Note = c.note
	if err != nil {
		sample.Void = err.Error()
		return sample
	}
	sample.Others = found["others"]
	sample.Values = found
	return sample
}
