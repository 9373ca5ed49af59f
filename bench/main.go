// Command bench measures the adapter beside what is possible and what others do. See
// docs/performance.md for what it measures and how; make bench runs it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slipway-mcp/slipway/bench/procfs"
	"github.com/slipway-mcp/slipway/bench/report"
)

type options struct {
	quick  bool
	rounds int
	out    string
	only   string
	seed   uint64
	from   string
	docs   string
	gate   string
}

func main() {
	var o options
	flag.BoolVar(&o.quick, "quick", false, "one round of less, to see that everything works")
	flag.IntVar(&o.rounds, "rounds", 0, "`number` of rounds of every workload; 0 is what each is worth")
	flag.StringVar(&o.out, "out", "dist/bench", "`directory` for results.json, report.md and the plots")
	flag.StringVar(&o.only, "only", "", "`expression` that the cells to run match, such as 'calls-8/(L3|adapter)$'")
	flag.Uint64Var(&o.seed, "seed", 0, "`number` that the order of systems depends on; 0 picks one")
	flag.StringVar(&o.from, "from", "", "results.json `file` to write the report of, instead of measuring; of several, separated by commas, later ones replace workloads of the first")
	flag.StringVar(&o.docs, "docs", "", "`page` to write the report into, between its markers; plots go beside it")
	flag.StringVar(&o.gate, "gate", "", "`page` whose goals are not to be missed if it says that they were met")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := bench(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench(ctx context.Context, o options) error {
	run, err := obtain(ctx, o)
	if err != nil {
		return err
	}
	if o.docs != "" {
		if err := isWhole(run); err != nil {
			return err
		}
		return report.WritePage(run, o.docs)
	}
	if err := report.Write(run, o.out); err != nil {
		return err
	}
	fmt.Print(report.Markdown(run))
	fmt.Print("\n" + report.Summary(run))
	return gate(run, o.gate)
}

// isWhole says which workloads a run lacks: a page of a part of them would lose the rest.
func isWhole(run *report.Run) error {
	for _, w := range workloads {
		if w.rounds > 0 && !slices.Contains(run.Skipped, w.Name) && !slices.ContainsFunc(run.Workloads, func(has report.Workload) bool { return has.Name == w.Name }) {
			return fmt.Errorf("write page: %s was not measured in this run", w.Name)
		}
	}
	return nil
}

var errRegressed = errors.New("goals that were met are missed")

// gate says which goals were met when the page was written and are not now.
func gate(run *report.Run, path string) error {
	if path == "" || run.Quick {
		return nil // a quick run says nothing about speed
	}
	page, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read goals: %w", err)
	}
	if found := report.Regressions(run, string(page)); len(found) > 0 {
		return fmt.Errorf("%w:\n  %s", errRegressed, strings.Join(found, "\n  "))
	}
	return nil
}

// obtain measures, or reads what was measured before.
func obtain(ctx context.Context, o options) (*report.Run, error) {
	if o.from == "" {
		return measure(ctx, o)
	}
	var whole *report.Run
	for path := range strings.SplitSeq(o.from, ",") {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read results: %w", err)
		}
		run := new(report.Run)
		if err := json.Unmarshal(text, run); err != nil {
			return nil, fmt.Errorf("read results: %w", err)
		}
		if whole == nil {
			whole = run
			continue
		}
		whole.Replace(run)
	}
	return whole, nil
}

func measure(ctx context.Context, o options) (run *report.Run, err error) {
	if o.seed == 0 {
		o.seed = rand.Uint64N(1_000_000)
	}
	run = &report.Run{Quick: o.quick, Seed: o.seed}
	plan, err := o.plan(run)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "slipway-bench")
	if err != nil {
		return nil, fmt.Errorf("make directory for programs: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	withPeers := slices.ContainsFunc(plan, func(s step) bool { return s.system.isNode() })
	t, err := prepare(ctx, dir, withPeers)
	if err != nil {
		return nil, err
	}
	run.Started, run.Machine = time.Now().UTC(), machine(ctx)
	run.Machine.UID = t.uid()
	for _, s := range systems {
		run.Systems = append(run.Systems, s.System)
	}
	for _, w := range workloads {
		if slices.ContainsFunc(plan, func(s step) bool { return s.workload.Name == w.Name }) {
			run.Workloads = append(run.Workloads, w.Workload)
		}
	}
	for i, s := range plan {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("stop after %d of %d cells: %w", i, len(plan), err)
		}
		sample := s.run(ctx, t, o.quick, s.baseOf(run.Samples))
		run.Samples = append(run.Samples, sample)
		fmt.Fprintf(os.Stderr, "%4.0f s  %d/%d  round %d  %s/%s  %s\n", time.Since(run.Started).Seconds(), i+1, len(plan), s.round+1, s.workload.Name, s.system.Name, brief(s.workload, sample))
	}
	run.Took = time.Since(run.Started)
	return run, nil
}

// plan is what this machine can do of what was asked for. What it cannot do is noted in
// the run, and told.
func (o options) plan(run *report.Run) (plan []step, err error) {
	only, err := regexp.Compile(o.only)
	if err != nil {
		return nil, fmt.Errorf("-only: %w", err)
	}
	cpus, err := allowedCPUs()
	if err != nil {
		return nil, err
	}
	plan, run.Skipped = withCPUs(makePlan(o, only), cpus)
	switch {
	case len(plan) == 0 && len(run.Skipped) > 0:
		return nil, errors.New(run.Lacks())
	case len(plan) == 0:
		return nil, errors.New("-only: no cell matches")
	case len(run.Skipped) > 0:
		fmt.Fprintln(os.Stderr, run.Lacks())
	}
	return plan, nil
}

// brief is a cell in a line, for who watches.
func brief(w workload, s report.Sample) string {
	if s.Void != "" {
		return "void: " + s.Void
	}
	return fmt.Sprintf("%s %.4g %s", w.Metrics[0].Title, s.Values[w.Metrics[0].Key], s.Note)
}

// machine is what can be said of where we are.
func machine(ctx context.Context) report.Machine {
	m := report.Machine{CPUs: runtime.NumCPU(), Model: procfs.Model(), Go: runtime.Version()}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.MemoryGB = int(info.Totalram * uint64(info.Unit) >> 30)
	}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	// Without Node or git, there is one fact less.
	m.Node = output(ctx, "node", "--version")
	m.Commit = output(ctx, "git", "describe", "--always", "--dirty")
	return m
}

func output(ctx context.Context, name string, args ...string) string {
	text, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// moduleRoot is the checkout.
func moduleRoot(ctx context.Context) (string, error) {
	text, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find checkout: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(text))), nil
}
