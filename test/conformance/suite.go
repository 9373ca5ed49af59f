// Package conformance runs the official MCP conformance suite.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/slipway-mcp/slipway/test/npm"
)

// Suite is the suite as it was installed.
type Suite struct {
	Modules string // The directory node_modules.
	Node    string // The Node.js that it needs, below Modules.
	Script  string // The program, below Modules.
}

// Install installs the pinned suite; dir is this package's directory.
func Install(ctx context.Context, dir string) (Suite, error) {
	modules, err := npm.Install(ctx, dir)
	if err != nil {
		return Suite{}, err
	}
	return Suite{
		Modules: modules,
		Node:    filepath.Join(modules, "node-linux-"+map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH], "bin", "node"),
		Script:  filepath.Join(modules, "@modelcontextprotocol", "conformance", "dist", "index.js"),
	}, nil
}

// Arguments are those with which the program runs what a revision requires of the
// server at url. What it finds out in detail goes to the directory.
func Arguments(url, revision, directory string) []string {
	return []string{"server", "--url", url, "--requirements", revision, "-o", directory}
}

// Report is the result of a run.
type Report struct {
	Passed []string // names of scenarios that are required
	Failed []string
	Extra  []string // that passed, and are not
	Text   string   // everything that the suite said
}

// Run runs what the revision requires. That scenarios fail is no error.
func (s Suite) Run(ctx context.Context, url, revision string) (report Report, err error) {
	directory, err := os.MkdirTemp("", "slipway-conformance-")
	if err != nil {
		return Report{}, fmt.Errorf("run suite: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	command := exec.CommandContext(ctx, s.Node, append([]string{s.Script}, Arguments(url, revision, directory)...)...)
	out, err := command.CombinedOutput()
	exit, exited := errors.AsType[*exec.ExitError](err)
	if err != nil && !exited {
		return Report{}, fmt.Errorf("run suite: %w", err)
	}
	report, err = Read(string(out))
	if err == nil && exited && len(report.Failed) == 0 {
		report.Failed = append(report.Failed, exit.String()) // whatever the summary says
	}
	return report, err
}

// Read counts scenarios by the suite's own summary, which lists all of them, and then
// again those that it does not score: extensions, and scenarios that came later.
func Read(text string) (Report, error) {
	report := Report{Text: text}
	_, summary, found := strings.Cut(text, "=== SUMMARY ===")
	if !found {
		return report, fmt.Errorf("the suite printed no summary: %s", text)
	}
	summary, extra, _ := strings.Cut(summary, "Not scored")
	unscored := map[string]bool{}
	for name := range marked(extra, " (") {
		unscored[name] = true
	}
	for name, passed := range marked(summary, ":") {
		switch {
		case unscored[name] && passed:
			report.Extra = append(report.Extra, name)
		case unscored[name]:
		case passed:
			report.Passed = append(report.Passed, name)
		default:
			report.Failed = append(report.Failed, name)
		}
	}
	return report, nil
}

// marked yields the names of scenarios, up to what ends them, and whether they passed.
func marked(text, end string) iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) {
		for line := range strings.Lines(text) {
			mark, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			name, _, _ := strings.Cut(rest, end)
			if (mark == "✓" || mark == "✗") && !yield(name, mark == "✓") {
				return
			}
		}
	}
}
