package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/hack/internal/gotest"
	"github.com/slipway-mcp/slipway/test/hang"
)

// module writes a module with a test that counts its runs in a file and one that fails,
// and makes it the working directory.
func module(t *testing.T) (runs string) {
	t.Helper()
	dir := t.TempDir()
	runs = filepath.Join(dir, "runs")
	for name, content := range map[string]string{
		"go.mod": "module " + gotest.Module + "\n\ngo 1.26\n",
		"good/a_test.go": "package good\nimport (\"os\"; \"testing\")\nfunc TestGood(t *testing.T) {\n" +
			"f, err := os.OpenFile(os.Getenv(\"RUNS\"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)\n" +
			"if err != nil { t.Fatal(err) }\nf.WriteString(os.Getenv(\"GOMAXPROCS\")); f.Close() }\n" +
			"func TestLongNever(t *testing.T) { t.Error(\"long\") }\n",
		"bad/a_test.go": "package bad\nimport \"testing\"\nfunc TestBad(t *testing.T) { t.Error(\"broken\") }\n",
		"none/a.go":     "package none\n",
	} {
		write(t, filepath.Join(dir, name), content)
	}
	t.Chdir(dir)
	t.Setenv("RUNS", runs)
	return runs
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

// A stage runs each test as often as it says, records what fails, and leaves out what the
// file has of the same source.
func TestStageResumes(t *testing.T) {
	runs := module(t)
	path := filepath.Join(t.TempDir(), "deep", "stress.tsv")
	s := stage{name: "unit", packages: gotest.AllPackages, times: 3, maxProcs: 2, loopsPerCPU: 1}
	once := func(source string) *book {
		t.Helper()
		b, err := openBook(path, source)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.close() })
		if err := s.run(t.Context(), b, nil, false); err != nil {
			t.Fatalf("run: %v", err)
		}
		return b
	}
	for _, step := range []struct {
		source, want string
	}{{"one", "222"}, {"one", "222"}, {"two", "222222"}} {
		b := once(step.source)
		if got, _ := os.ReadFile(runs); string(got) != step.want {
			t.Errorf("source %s: the good test ran with GOMAXPROCS %q, want %q", step.source, got, step.want)
		}
		var text strings.Builder
		if err := b.verdict(&text); err == nil || !strings.Contains(text.String(), "unit bad: FAILED TestBad\n") || !strings.Contains(text.String(), "2 packages, 1 of them failed") {
			t.Errorf("source %s: got %v and %q", step.source, err, text.String())
		}
	}
}

// A run that is cut off keeps what it has, and a line that was cut off does not count.
func TestBookSurvivesACut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stress.tsv")
	content := "2026\tone\tunit\t20\tinternal/a\t1.0\tpassed\n2026\tone\tunit\t20\tinternal/b"
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := openBook(path, "one")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.close() }()
	if !b.has("unit", gotest.Module+"/internal/a") || b.has("unit", gotest.Module+"/internal/b") || b.has("integration", gotest.Module+"/internal/a") {
		t.Errorf("got %+v", b.entries)
	}
	if err := b.add(stage{name: "unit", times: 20}, gotest.Package{Path: "internal/c"}); err != nil {
		t.Fatal(err)
	}
	again, err := openBook(path, "one")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.close() }()
	if !again.has("unit", gotest.Module+"/internal/c") {
		t.Error("what follows a line that was cut off is lost")
	}
}

// A signal that cuts a run off ends the tests in flight, too. They have not failed, and
// run again next time.
func TestStageIsCutOff(t *testing.T) {
	runs := module(t)
	write(t, "slow/a_test.go", "package slow\nimport (\"os\"; \"testing\"; \"time\")\nfunc TestSlow(t *testing.T) { os.WriteFile(os.Getenv(\"RUNS\"), nil, 0o600); time.Sleep(time.Hour) }\n")
	path := filepath.Join(t.TempDir(), "stress.tsv")
	b, err := openBook(path, "one")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.close() }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	slow := func(context.Context) ([]string, error) { return []string{gotest.Module + "/slow"}, nil }
	ended := make(chan error, 1)
	go func() { ended <- stage{name: "unit", packages: slow, times: 1}.run(ctx, b, nil, false) }()
	gomega.NewWithT(t).Eventually(func() error { _, err := os.Stat(runs); return err }).WithTimeout(hang.Guard).Should(gomega.Succeed())
	cancel()
	if err := <-ended; err == nil {
		t.Error("a stage that was cut off says nothing")
	}
	if content, _ := os.ReadFile(path); len(content) != 0 {
		t.Errorf("it was recorded: %s", content)
	}
}

func TestChoose(t *testing.T) {
	if chosen, err := choose("loaded-1,unit"); err != nil || len(chosen) != 2 || chosen[1].name != "unit" {
		t.Errorf("got %v, %v", chosen, err)
	}
	if _, err := choose("integraton"); err == nil {
		t.Error("a stage that does not exist is chosen")
	}
}
