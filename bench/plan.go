package main

import (
	"context"
	"errors"
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

// withCPUs leaves out the cells that need more CPUs than there are, and names their
// workloads.
func withCPUs(plan []step, cpus []int) (possible []step, skipped []string) {
	if _, err := placeOn(cpus); err == nil {
		return plan, nil
	}
	for _, s := range plan {
		switch {
		case !s.workload.Pinned:
			possible = append(possible, s)
		case !slices.Contains(skipped, s.workload.Name):
			skipped = append(skipped, s.workload.Name)
		}
	}
	return possible, skipped
}

// run measures a cell. What goes wrong makes the cell void, and is told.
func (s step) run(ctx context.Context, t *tools, quick bool, base values) report.Sample {
	sample := report.Sample{Workload: s.workload.Name, System: s.system.Name, Round: s.round}
	c := &cell{node: s.system.isNode(), quick: quick, base: base}
	found, err := s.place(ctx, t, c)
	sample.Note = c.note
	if err != nil {
		sample.Void = err.Error()
		return sample
	}
	sample.Others = found["others"]
	sample.Values = found
	return sample
}

// place pins the generator and the system, if the workload asks for it, for as long as
// the cell takes.
func (s step) place(ctx context.Context, t *tools, c *cell) (found values, err error) {
	if !s.workload.Pinned {
		return s.measure(ctx, t, c)
	}
	pinned, release, err := t.pin()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, release()) }()
	return s.measure(ctx, pinned, c)
}

// measure starts the system, has it do its work and ends it.
func (s step) measure(ctx context.Context, t *tools, c *cell) (found values, err error) {
	c.tools = t
	if c.running, err = s.system.start(ctx, t); err != nil {
		return nil, err
	}
	if err = c.settle(); err == nil {
		found, err = s.workload.run(ctx, c)
	}
	if left := c.stop(); left > 0 {
		c.note = fmt.Sprintf("%s leaves %d processes behind", c.note, left)
	}
	return found, err
}
