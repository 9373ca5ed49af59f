//go:build conformance

package conformance

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/test/adapter"
	"github.com/slipway-mcp/slipway/test/servers"
)

// The scenarios that each revision requires, against one running adapter at one URL, with
// a server of the official Go SDK behind it that speaks on standard input and output
// (C5, runs 1 and 2). There is no list of failures that are expected.
func TestRequired(t *testing.T) {
	suite, err := Install(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	url := adapter.Serve(t, tool(t, "everything-server"))
	// Twice, so that each era has been there before the other.
	for _, run := range []struct {
		revision  string
		scenarios int
		extra     []string // that are not required, and pass all the same
	}{
		{"2025-11-25", 30, nil},
		{"2026-07-28", 37, []string{"http-header-validation", "http-custom-header-server-validation"}},
		{"2025-11-25", 30, nil},
	} {
		t.Run(run.revision, func(t *testing.T) {
			report, err := suite.Run(t.Context(), url, run.revision)
			if err != nil {
				t.Fatal(err)
			}
			if len(report.Failed) != 0 || len(report.Passed) != run.scenarios {
				t.Errorf("%d scenarios passed and %q failed, want %d and none; the suite says:\n%s",
					len(report.Passed), report.Failed, run.scenarios, report.Text)
			}
			for _, name := range run.extra {
				if !slices.Contains(report.Extra, name) {
					t.Errorf("%s did not pass; the suite says:\n%s", name, report.Text)
				}
			}
			t.Logf("%d scenarios passed, %d failed; not required, passed: %q", len(report.Passed), len(report.Failed), report.Extra)
		})
	}
}

// Servers of one era serve the clients of theirs as those of both do.
func TestOneEra(t *testing.T) {
	suite, err := Install(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	filter := filepath.Join(t.TempDir(), "era")
	if err := servers.Build(t.Context(), filter, "test/servers/era"); err != nil {
		t.Fatal(err)
	}
	for era, run := range map[string]struct {
		revision  string
		scenarios int
	}{"legacy": {"2025-11-25", 30}, "modern": {"2026-07-28", 37}} {
		t.Run(era, func(t *testing.T) {
			url := adapter.Serve(t, filter, era, tool(t, "everything-server"))
			report, err := suite.Run(t.Context(), url, run.revision)
			if err != nil {
				t.Fatal(err)
			}
			if len(report.Failed) != 0 || len(report.Passed) != run.scenarios {
				t.Errorf("%d scenarios passed and %q failed, want %d and none; the suite says:\n%s",
					len(report.Passed), report.Failed, run.scenarios, report.Text)
			}
		})
	}
}

// tool returns the path of a pinned tool.
func tool(t *testing.T, name string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "tool", "-modfile=hack/tools/go.mod", "-n", name)
	command.Dir = filepath.Join("..", "..")
	out, err := command.Output()
	if err != nil {
		t.Fatalf("find tool %s: %v", name, err)
	}
	return strings.TrimSpace(string(out))
}
