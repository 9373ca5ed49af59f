//go:build conformance

// Package conformance runs the official MCP conformance suite against the adapter,
// with a server of the official Go SDK behind it that speaks on standard input and
// output. It needs npm, so it has a make target of its own.
package conformance

import (
	"errors"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/test/adapter"
	"github.com/slipway-mcp/slipway/test/npm"
)

// TestRequired runs the scenarios that a revision requires. There is no list of
// failures that are expected.
func TestRequired(t *testing.T) {
	suite := installSuite(t)
	for revision, scenarios := range map[string]int{"2025-11-25": 30} {
		t.Run(revision, func(t *testing.T) {
			url := adapter.Serve(t, tool(t, "everything-server"))
			report := suite.run(t, url, revision)
			if report.failed != 0 || report.passed < scenarios {
				t.Errorf("%d scenarios passed and %d failed, want at least %d and none; the suite says:\n%s",
					report.passed, report.failed, scenarios, report.text)
			}
			t.Logf("%d scenarios passed, %d failed", report.passed, report.failed)
		})
	}
}

type suite struct{ node, script string }

// installSuite installs the pinned packages.
func installSuite(t *testing.T) suite {
	t.Helper()
	modules := npm.Install(t, "conformance")
	return suite{
		node:   filepath.Join(modules, "node-linux-"+map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH], "bin", "node"),
		script: filepath.Join(modules, "@modelcontextprotocol", "conformance", "dist", "index.js"),
	}
}

type report struct {
	passed, failed int
	text           string
}

// run runs the required scenarios and counts them by the suite's own summary.
func (s suite) run(t *testing.T, url, revision string) report {
	t.Helper()
	command := exec.CommandContext(t.Context(), s.node, s.script, "server", "--url", url, "--requirements", revision, "-o", t.TempDir())
	out, err := command.CombinedOutput()
	r := report{text: string(out)}
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatalf("run suite: %v", err)
	} else if ok {
		r.failed++ // whatever the summary says
		r.text += exit.String()
	}
	_, summary, found := strings.Cut(r.text, "=== SUMMARY ===")
	if !found {
		t.Fatalf("the suite printed no summary:\n%s", r.text)
	}
	required, _, _ := strings.Cut(summary, "Not scored")
	for line := range strings.Lines(required) {
		switch {
		case strings.HasPrefix(line, "✓"):
			r.passed++
		case strings.HasPrefix(line, "✗"):
			r.failed++
		}
	}
	return r
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
