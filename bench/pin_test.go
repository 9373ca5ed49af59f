package main

import (
	"context"
	"errors"
	"regexp"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/slipway-mcp/slipway/bench/procfs"
	"github.com/slipway-mcp/slipway/bench/report"
	"github.com/slipway-mcp/slipway/test/servers"
)

func TestPlaceOn(t *testing.T) {
	for name, test := range map[string]struct {
		cpus []int
		want placement
		err  error
	}{
		"none":       {nil, placement{}, errOneCPU},
		"one":        {[]int{3}, placement{}, errOneCPU},
		"two":        {[]int{0, 1}, placement{system: 0, generator: 1}, nil},
		"a few left": {[]int{2, 5, 6, 7}, placement{system: 2, generator: 7}, nil},
	} {
		got, err := placeOn(test.cpus)
		if got != test.want || !errors.Is(err, test.err) {
			t.Errorf("%s: it is %+v, %v, want %+v, %v", name, got, err, test.want, test.err)
		}
	}
}

func TestPlanOfOneCPU(t *testing.T) {
	plan := makePlan(options{}, regexp.MustCompile(`^(calls-1|calls-1-one-core|reply-1m-one-core)/(L3|adapter)$`))
	possible, skipped := withCPUs(plan, []int{0, 1})
	if len(possible) != len(plan) || len(skipped) > 0 {
		t.Errorf("with two CPUs %d of %d cells are left, and %v are skipped", len(possible), len(plan), skipped)
	}
	possible, skipped = withCPUs(plan, []int{0})
	if diff := cmp.Diff([]string{"calls-1-one-core", "reply-1m-one-core"}, skipped); diff != "" {
		t.Errorf("with one CPU it skips others (-want +got): %s", diff)
	}
	if len(possible) != 24 || slices.ContainsFunc(possible, func(s step) bool { return s.workload.Name != "calls-1" }) {
		t.Errorf("with one CPU it runs %v", names(possible))
	}
}

// The servers of L1 are processes of the generator, and so would be on its CPU.
func TestPinnedWorkloadsHaveNoPipe(t *testing.T) {
	for _, w := range workloads {
		if w.Pinned && w.has(pipe) {
			t.Errorf("%s has L1", w.Name)
		}
	}
}

func TestIsWhole(t *testing.T) {
	run := &report.Run{}
	for _, w := range workloads {
		if !w.Pinned {
			run.Workloads = append(run.Workloads, w.Workload)
		}
	}
	if isWhole(run) == nil {
		t.Error("a run without the pinned workloads is whole")
	}
	for _, w := range workloads {
		if w.Pinned {
			run.Skipped = append(run.Skipped, w.Name)
		}
	}
	if err := isWhole(run); err != nil {
		t.Errorf("a run of all that one CPU can do is not whole: %v", err)
	}
}

// A pinned cell has the bridge and its server on one CPU and all of the generator on
// another, and the generator has all CPUs again when the cell is over.
func TestPinnedCell(t *testing.T) {
	cpus, err := allowedCPUs()
	if err != nil {
		t.Fatal(err)
	}
	at, err := placeOn(cpus)
	if errors.Is(err, errOneCPU) {
		t.Skip(err)
	}
	tools := &tools{dir: t.TempDir()}
	if err := errors.Join(servers.BuildAll(t.Context(), tools.dir, "bench/bounds/naive", "test/servers/echo"), tools.openToNobody()); err != nil {
		t.Fatal(err)
	}
	procs := runtime.GOMAXPROCS(0)
	w := oneCore(workload{run: func(_ context.Context, c *cell) (values, error) {
		for _, pid := range withDescendants(t, c.bridge.Process.Pid) {
			if got := affinity(t, pid); !slices.Equal(got, []int{at.system}) {
				t.Errorf("process %d of the system has CPUs %v, want %d", pid, got, at.system)
			}
		}
		for _, thread := range ownThreads(t) {
			if got := affinity(t, thread); !slices.Equal(got, []int{at.generator}) {
				t.Errorf("thread %d of the generator has CPUs %v, want %d", thread, got, at.generator)
			}
		}
		if got := runtime.GOMAXPROCS(0); got != 1 {
			t.Errorf("the generator has %d Ps", got)
		}
		return values{}, nil
	}})
	base := systems[slices.IndexFunc(systems, func(s system) bool { return s.Name == naive })]
	if sample := (step{w, base, 0}).run(t.Context(), tools, true, nil); sample.Void != "" {
		t.Error(sample.Void)
	}
	for _, thread := range ownThreads(t) {
		if got := affinity(t, thread); !slices.Equal(got, cpus) {
			t.Errorf("after the cell thread %d has CPUs %v, want %v", thread, got, cpus)
		}
	}
	if got := runtime.GOMAXPROCS(0); got != procs {
		t.Errorf("after the cell the generator has %d Ps, want %d", got, procs)
	}
}

// withDescendants is a process and those that it has started; settle opens a session, so
// there is a server.
func withDescendants(t *testing.T, pid int) []int {
	t.Helper()
	below, err := procfs.Descendants(pid)
	if err != nil || len(below) == 0 {
		t.Fatalf("the bridge has %d processes, %v", len(below), err)
	}
	pids := []int{pid}
	for _, p := range below {
		pids = append(pids, p.PID)
	}
	return pids
}

func ownThreads(t *testing.T) []int {
	t.Helper()
	ids, err := threads()
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// affinity is the CPUs of a thread.
func affinity(t *testing.T, thread int) []int {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(thread, &set); err != nil {
		t.Fatalf("read CPUs of %d: %v", thread, err)
	}
	return members(&set)
}
