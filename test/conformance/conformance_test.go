//go:build conformance

package conformance

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/test/adapter"
)

// The scenarios that a revision requires, against the adapter with a server of the
// official Go SDK behind it that speaks on standard input and output. There is no list
// of failures that are expected.
func TestRequired(t *testing.T) {
	suite, err := Install(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	for revision, scenarios := range map[string]int{"2025-11-25": 30} {
		t.Run(revision, func(t *testing.T) {
			url := adapter.Serve(t, tool(t, "everything-server"))
			report, err := suite.Run(t.Context(), url, revision)
			if err != nil {
				t.Fatal(err)
			}
			if len(report.Failed) != 0 || len(report.Passed) < scenarios {
				t.Errorf("%d scenarios passed and %q failed, want at least %d and none; the suite says:\n%s",
					len(report.Passed), report.Failed, scenarios, report.Text)
			}
			t.Logf("%d scenarios passed, %d failed", len(report.Passed), len(report.Failed))
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
