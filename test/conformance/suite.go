// Package conformance runs the official MCP conformance suite.
package conformance

import (
	"context"
	"errors"
	"fmt"
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

// Report is what came of a run.
type Report struct {
	Passed []string // names of scenarios
	Failed []string
	Text   string // everything that the suite said
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

// Read counts scenarios by the suite's own summary. What it does not score is left out.
func Read(text string) (Report, error) {
	report := Report{Text: text}
	_, summary, found := strings.Cut(text, "=== SUMMARY ===")
	if !found {
		return report, fmt.Errorf("the suite printed no summary: %s", text)
	}
	scored, _, _ := strings.Cut(summary, "Not scored")
	for line := range strings.Lines(scored) {
		mark, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		name, _, _ := strings.Cut(rest, ":")
		switch mark {
		case "✓":
			report.Passed = append(report.Passed, name)
		case "✗":
			report.Failed = append(report.Failed, name)
		}
	}
	return report, nil
}
