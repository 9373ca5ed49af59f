package report

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// example is a run that has everything a report can show.
func example() *Run {
	r := &Run{
		Started: time.Date(2026, 11, 15, 9, 30, 0, 0, time.UTC), Took: 61 * time.Second, Seed: 7, Quick: true,
		Machine: Machine{CPUs: 2, Model: "Some CPU", MemoryGB: 24, Kernel: "6.18.0", Go: "go1.26.8", Node: "v20.20.2", Commit: "abc1234", UID: 65534},
		Systems: []System{{"L2", "L2: echo", Bound}, {Base, "L3: the base", Bound}, {"L3-again", "L3 again", Bound}, {"adapter", "adapter", Ours}, {"adapter-launcher", "adapter & launcher", Ours}, {"gateway", "gateway", Peer}, {"proxy", "proxy", Peer}},
		Workloads: []Workload{
			{Name: "calls-8", Title: "Small calls, 8 sessions", Metrics: []Metric{{"rate", "calls/s", true, true}, {"p99", "p99 µs", false, true}, {"cpu", "CPU, ms/1,000", false, true}}},
			{Name: "reply-1m", Title: "A reply of 1 MiB", Metrics: []Metric{{"p50", "p50 ms", false, true}}},
			{Name: "slow-reader", Title: "A client that does not read", Metrics: []Metric{{"change", "with ÷ without", false, false}, {"lost", "lost replies", false, false}}},
			{Name: "idle", Title: "Idle sessions", Metrics: []Metric{{"kib", "KiB a session", false, true}, {"threadsMore", "more threads", false, false}, {"change", "with ÷ without", false, false}}},
		},
	}
	add := func(workload, system string, round int, values map[string]float64) {
		r.Samples = append(r.Samples, Sample{Workload: workload, System: system, Round: round, Values: values})
	}
	for round := range 6 {
		noise := 1 + 0.1*float64(round%3)
		add("calls-8", Base, round, map[string]float64{"rate": 20000 * noise, "p99": 900 / noise, "cpu": 30, "others": 0.01 * float64(round), "generator": 0.4})
		add("calls-8", "adapter", round, map[string]float64{"rate": 18000*noise + 100*float64(round), "p99": 1000 / noise, "cpu": 37 + 0.1*float64(round)})
		add("calls-8", "adapter-launcher", round, map[string]float64{"rate": 17950*noise + 100*float64(round), "p99": 1100 / noise, "cpu": 37})
		add("reply-1m", Base, round, map[string]float64{"p50": 1.5})
		add("reply-1m", "adapter", round, map[string]float64{"p50": 2.2 + 0.05*float64(round)})
		add("slow-reader", "adapter", round, map[string]float64{"change": 1.01, "lost": 0})
		add("calls-8", "L2", round, map[string]float64{"rate": 58000 * noise})
		add("calls-8", "L3-again", round, map[string]float64{"rate": 20000 * noise * (0.92 + 0.03*float64(round)), "p99": 900, "cpu": 30})
	}
	for round := range 3 {
		add("idle", Base, round, map[string]float64{"kib": 50, "threadsMore": float64(round)})
		add("idle", "adapter", round, map[string]float64{"kib": 49 + float64(round), "threadsMore": 0, "change": 1.08, "again": 0.9 + 0.1*float64(round)})
	}
	add("calls-8", "gateway", 0, map[string]float64{"rate": 1700, "p99": 20000, "cpu": 500})
	add("calls-8", "proxy", 0, map[string]float64{"rate": 1600, "p99": 19000, "cpu": 400})
	add("reply-1m", "proxy", 0, map[string]float64{"p50": 40})
	r.Samples = append(r.Samples,
		Sample{Workload: "reply-1m", System: "gateway", Void: "status 413 (Request Entity Too Large)"},
		Sample{Workload: "reply-1m", System: "gateway", Round: 3, Void: "status 413 (Request Entity Too Large)"})
	return r
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (go test ./bench/report -update writes it): %s", path, diff)
	}
}

func TestMarkdown(t *testing.T) { golden(t, "report.md", Markdown(example())) }

func TestFactsOfPinning(t *testing.T) {
	r := example()
	if got := facts(r); !strings.Contains(got, "; nothing was pinned to a CPU.\n") || strings.Contains(got, "Not measured") {
		t.Errorf("without pinned workloads it says: %s", got)
	}
	r.Workloads[0].Pinned = true
	if got := facts(r); !strings.Contains(got, "; only what is called “on one core” was pinned to CPUs.\n") {
		t.Errorf("with a pinned workload it says: %s", got)
	}
	r.Skipped = []string{"a-one-core", "b-one-core"}
	if got := facts(r); !strings.Contains(got, "and there is only one: a-one-core, b-one-core.\n") {
		t.Errorf("with skipped workloads it says: %s", got)
	}
}

func TestPlot(t *testing.T) {
	r := example()
	for _, w := range r.Workloads {
		drawn := plot(r, w)
		golden(t, w.Name+".svg", drawn)
		decoder := xml.NewDecoder(strings.NewReader(drawn))
		for {
			if _, err := decoder.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", w.Name, err)
			}
		}
	}
}

func TestWritePage(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "performance.md")
	before := "# Performance\n\n" + begin + "\nold\n" + end + "\n\n## The controller\n"
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	var pages []string
	for range 2 { // the second has nothing left to change
		if err := WritePage(example(), path); err != nil {
			t.Fatal(err)
		}
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, string(page))
	}
	if diff := cmp.Diff(pages[0], pages[1]); diff != "" {
		t.Errorf("a second time changes it: %s", diff)
	}
	golden(t, "page.md", pages[0])
	if _, err := os.Stat(filepath.Join(dir, plots, "calls-8.svg")); err != nil {
		t.Error(err)
	}
}

func TestReplace(t *testing.T) {
	whole, later := example(), example()
	later.Workloads = []Workload{later.Workloads[1], {Name: "new", Title: "New", Metrics: later.Workloads[0].Metrics}}
	later.Samples = []Sample{{Workload: "reply-1m", System: Base, Values: map[string]float64{"p50": 9}}}
	whole.Skipped = []string{"new", "skipped"}
	whole.Replace(later)
	if got := whole.summary("reply-1m", Base, "p50"); got.N != 1 || got.Median != 9 {
		t.Errorf("what was replaced is %+v", got)
	}
	if got := whole.summary("calls-8", Base, "rate"); got.N != 6 {
		t.Errorf("what was kept is %+v", got)
	}
	if diff := cmp.Diff([]string{"skipped"}, whole.Skipped); diff != "" {
		t.Errorf("what is skipped differs (-want +got): %s", diff)
	}
	if len(whole.Workloads) != 5 || whole.tookPart("reply-1m", "adapter") {
		t.Errorf("workloads are %+v", whole.Workloads)
	}
}

func TestSplice(t *testing.T) {
	for name, page := range map[string]string{
		"none":      "text",
		"one":       "a" + begin + "b",
		"reversed":  end + "a" + begin,
		"twice":     begin + end + begin + end,
		"two begin": begin + begin + end + begin,
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := splice(page, "new"); !errors.Is(err, errMarkers) {
				t.Errorf("it is %q, %v", got, err)
			}
		})
	}
}

func TestNumber(t *testing.T) {
	for want, v := range map[string]float64{
		"0.00": 0, "0.012": 0.0123, "0.12": 0.123, "1.23": 1.234, "12.3": 12.34, "123": 123.4, "1,234": 1234, "-1,234,567": -1234567, nothing: math.NaN(),
	} {
		if got := number(v); got != want {
			t.Errorf("%v is %q, want %q", v, got, want)
		}
	}
}
