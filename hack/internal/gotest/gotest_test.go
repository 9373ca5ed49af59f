package gotest

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// module writes a module whose tests fail in every way, for a real go test to run.
func module(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"go.mod":         "module " + Module + "\n\ngo 1.26\n",
		"good/a_test.go": "package good\nimport \"testing\"\nfunc TestGood(t *testing.T) { t.Run(\"sub\", func(t *testing.T) {}) }\nfunc TestSkipped(t *testing.T) { t.Skip() }\n",
		"bad/a_test.go":  "package bad\nimport \"testing\"\nfunc TestBad(t *testing.T) { t.Run(\"a (b) it's/$c\", func(t *testing.T) { t.Error(\"broken\") }); t.Run(\"good\", func(*testing.T) {}) }\n",
		"exits/a_test.go": "package exits\nimport (\"os\"; \"testing\")\nfunc TestMain(m *testing.M) { println(\"no server\"); os.Exit(3) }\n" +
			"func TestNever(t *testing.T) {}\n",
		"panics/a_test.go":  "package panics\nimport \"testing\"\nfunc TestPanics(t *testing.T) { panic(\"oops\") }\n",
		"crashes/a_test.go": "package crashes\nimport \"testing\"\nfunc TestCrashes(t *testing.T) { go func() { panic(\"elsewhere\") }(); select {} }\n",
		"unbuilt/a_test.go": "package unbuilt\nimport \"testing\"\nfunc TestNever(t *testing.T) { undefinedName() }\n",
		"none/a.go":         "package none\n",
	} {
		write(t, filepath.Join(dir, name), content)
	}
	return dir
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestEveryFailureHasItsCommand(t *testing.T) {
	var progress strings.Builder
	dir := module(t)
	result, err := Run(t.Context(), Suite{Dir: dir, Packages: []string{"./..."}, Flags: []string{"-count=1"}, Progress: &progress})
	if err != nil {
		t.Fatalf("Run: %v", err)
	}
	want := map[string]string{ // the command, and what the output holds
		`make test-one PKG=./bad RUN='^TestBad$/^a_\(b\)_it.s$/^\$c$'`: "broken",
		`make test-one PKG=./exits`:                                    "no server",
		`make test-one PKG=./panics RUN='^TestPanics$'`:                "oops",
		`make test-one PKG=./crashes RUN='^TestCrashes$'`:              "panic: elsewhere",
		`make test-one PKG=./unbuilt`:                                  "undefinedName",
	}
	got := map[string]string{}
	for _, failure := range result.Failures {
		command := failure.Command()
		got[command] = want[command]
		if !strings.Contains(failure.Output, want[command]) || !strings.Contains(progress.String(), failure.Output) {
			t.Errorf("%s: the output is %q, want %q in it, and all of it in the progress", command, failure.Output, want[command])
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}
	// Of bad the test and its subtest fail; of exits and unbuilt there is only the package.
	if result.Passed != 3 || result.Failed != 6 || result.Skipped != 1 || len(result.Packages) != 6 {
		t.Errorf("got %d passed, %d failed, %d skipped, in %v", result.Passed, result.Failed, result.Skipped, result.Packages)
	}
}

// A test that hangs has no result. The report still shows its output and where it hangs,
// also next to a test that failed before.
func TestHangIsShown(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module "+Module+"\n\ngo 1.26\n")
	write(t, filepath.Join(dir, "hangs/a_test.go"), "package hangs\nimport (\"testing\"; \"time\")\nfunc TestFails(t *testing.T) { t.Error(\"wrong\") }\n"+
		"func TestHangs(t *testing.T) { t.Run(\"sub\", func(t *testing.T) { t.Log(\"waits\"); time.Sleep(time.Hour) }) }\n")
	result, err := Run(t.Context(), Suite{Dir: dir, Packages: []string{"./..."}, Flags: []string{"-count=1", "-timeout=3s"}})
	if err != nil {
		t.Fatalf("Run: %v", err)
	}
	var commands, output []string
	for _, failure := range result.Failures {
		commands, output = append(commands, failure.Command()), append(output, failure.Output)
	}
	want := []string{"make test-one PKG=./hangs RUN='^TestFails$'", "make test-one PKG=./hangs RUN='^TestHangs$/^sub$'"}
	if diff := cmp.Diff(want, commands); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
	if text := strings.Join(output, ""); !strings.Contains(text, "test timed out after") || !strings.Contains(text, "a_test.go:4") || !strings.Contains(text, "waits") {
		t.Errorf("got %s", text)
	}
}

// What a race detector says goes to the test that wrote last, which may have passed.
func TestRacesAreShown(t *testing.T) {
	var progress strings.Builder
	r := newReading(&progress)
	for _, e := range []event{
		{Action: "run", Package: "p", Test: "TestA"}, {Action: "run", Package: "p", Test: "TestB"},
		{Action: "output", Package: "p", Test: "TestA", Output: "WARNING: DATA RACE\nhere\n"}, {Action: "pass", Package: "p", Test: "TestA"},
		{Action: "output", Package: "p", Test: "TestB", Output: "race detected during execution of test\n"}, {Action: "fail", Package: "p", Test: "TestB"},
		{Action: "fail", Package: "p"},
	} {
		r.take(e)
	}
	if !strings.Contains(progress.String(), "DATA RACE\nhere") {
		t.Errorf("the report is not in %q", progress.String())
	}
}

// The report of a crash goes to the test that wrote last, which may have passed. It belongs to those that hang.
func TestCrashesAreShown(t *testing.T) {
	r := newReading(io.Discard)
	for _, e := range []event{
		{Action: "run", Package: "p", Test: "TestHangs"}, {Action: "run", Package: "p", Test: "TestB"},
		{Action: "output", Package: "p", Test: "TestB", Output: "panic: test timed out after 10m0s\n"},
		{Action: "output", Package: "p", Test: "TestB", Output: "goroutine 1 [running]:\n"}, {Action: "pass", Package: "p", Test: "TestB"},
		{Action: "output", Package: "p", Output: "FAIL\tp\t600s\n"}, {Action: "fail", Package: "p"},
	} {
		r.take(e)
	}
	if got := r.result.Failures; len(got) != 1 || got[0].Test != "TestHangs" || !strings.Contains(got[0].Output, "goroutine 1 [running]") {
		t.Errorf("got %+v", got)
	}
}

// With -count a test comes again under its name: what failed in one round hides nothing of
// another.
func TestEveryRoundCounts(t *testing.T) {
	r := newReading(io.Discard)
	for _, e := range []event{
		{Action: "fail", Package: "p", Test: "TestA/sub"}, {Action: "fail", Package: "p", Test: "TestA"},
		{Action: "fail", Package: "p", Test: "TestA"}, {Action: "fail", Package: "p"},
	} {
		r.take(e)
	}
	if got := len(r.result.Failures); got != 2 || r.result.Failures[1].Test != "TestA" {
		t.Errorf("got %+v", r.result.Failures)
	}
}

func TestPatternOfAFailureRunsIt(t *testing.T) {
	result, err := Run(t.Context(), Suite{Dir: module(t), Packages: []string{"./bad"}, Flags: []string{"-count=1", "-run", pattern("TestBad/a_(b)_it's/$c")}})
	if err != nil {
		t.Fatalf("Run: %v", err)
	}
	if result.Failed != 2 || result.Passed != 0 {
		t.Errorf("got %d failed and %d passed, want the subtest, its parent and nothing else", result.Failed, result.Passed)
	}
}

func TestParts(t *testing.T) {
	dir := module(t)
	for name, content := range map[string]string{
		"long/a_test.go":             "package long\nimport \"testing\"\nfunc TestLongProof(t *testing.T) {}\n",
		"longer/a_test.go":           "package longer_test\nimport \"testing\"\nfunc TestQuick(t *testing.T) {}\n\nfunc TestLongerProof(t *testing.T) {}\n",
		"test/integration/a_test.go": "package integration\nimport \"testing\"\nfunc TestIt(t *testing.T) {}\n",
	} {
		write(t, filepath.Join(dir, name), content)
	}
	t.Chdir(dir)
	for name, test := range map[string]struct {
		packages func(context.Context) ([]string, error)
		want     []string
	}{
		"all":         {AllPackages, []string{"bad", "crashes", "exits", "good", "long", "longer", "panics", "test/integration", "unbuilt"}},
		"unit":        {UnitPackages, []string{"bad", "crashes", "exits", "good", "long", "longer", "panics", "unbuilt"}},
		"integration": {IntegrationPackages, []string{"test/integration"}},
		"long":        {LongPackages, []string{"long", "longer"}},
	} {
		got, err := test.packages(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			got[i] = short(got[i])
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestGoTestCannotRun(t *testing.T) {
	if _, err := Run(t.Context(), Suite{Dir: filepath.Join(t.TempDir(), "absent")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want that the directory does not exist", err)
	}
}

func TestSlowestFirst(t *testing.T) {
	order := []string{"m/internal/sidecar", "m/test/integration/controller", "m/internal/prober", "m/api", "m/internal/sidecar/edge"}
	for i := range order[1:] {
		if place(order[i]) > place(order[i+1]) {
			t.Errorf("%s comes after %s", order[i], order[i+1])
		}
	}
	if place("m/internal/sidecar/edge") != place("m/api") {
		t.Error("a package below a slow one counts as slow")
	}
}
