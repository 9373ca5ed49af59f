// Package suite runs the official MCP conformance suite against an endpoint of this machine.
package suite

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/slipway-mcp/slipway/internal/plugin/node"
	"github.com/slipway-mcp/slipway/internal/text"
)

// Package is the suite that the adapter is tested with.
var Package = node.Package{Name: "@modelcontextprotocol/conformance", Version: "0.2.0-alpha.12", Node: node.Version{Major: 22}}

// The outcomes of a scenario.
const (
	Passed  = "passed"
	Failed  = "failed"
	Skipped = "skipped" // it does not exist at that revision
)

// messageBytes bounds what a check says: it repeats what a server sent.
const messageBytes = 4 << 10

// Result is what came of a scenario.
type Result struct {
	Scenario    string `json:"scenario"`
	Result      string `json:"result"`
	FailedCheck string `json:"failedCheck,omitempty"` // the first
	Message     string `json:"message,omitempty"`     // of that check
}

// Suite is how to run the suite.
type Suite struct {
	Endpoint string
	Revision string    // empty is the one that a scenario was made for
	Log      io.Writer // takes everything that the suite says
}

// Run runs one scenario. That it fails is no error.
//
// Scenarios run one by one, and not as the set of a revision: the suite leaves its sessions open, and
// all of a set are more than a server takes by default. The caller can end them in between.
func (s Suite) Run(ctx context.Context, scenario string) (result Result, err error) {
	directory, err := os.MkdirTemp("", "kubectl-mcp-conformance-")
	if err != nil {
		return Result{}, fmt.Errorf("run scenario %s: %w", scenario, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	args := []string{"server", "--url", s.Endpoint, "--scenario", scenario, "-o", directory}
	if s.Revision != "" {
		args = append(args, "--spec-version", s.Revision)
	}
	code, said, err := s.run(ctx, args...)
	if err != nil {
		return Result{}, fmt.Errorf("run scenario %s: %w", scenario, err)
	}
	checks, err := read(directory)
	switch {
	case err != nil:
		return Result{}, fmt.Errorf("run scenario %s: %w", scenario, err)
	case checks == nil && code == 0:
		return Result{Scenario: scenario, Result: Skipped}, nil
	case checks == nil:
		return Result{}, fmt.Errorf("run scenario %s: the suite ended with exit code %d: %s", scenario, code, lastLine(said))
	}
	return judge(scenario, checks), nil
}

// Scenarios are those that a revision requires of servers, or all that there are for servers.
func (s Suite) Scenarios(ctx context.Context, revision string) ([]string, error) {
	args := []string{"list", "--server"}
	if revision != "" {
		args = append(args, "--requirements", revision)
	}
	code, said, err := s.run(ctx, args...)
	if err != nil {
		return nil, fmt.Errorf("list scenarios: %w", err)
	}
	names := listed(said)
	if code != 0 || len(names) == 0 {
		return nil, fmt.Errorf("list scenarios: the suite ended with exit code %d: %s", code, lastLine(said))
	}
	return names, nil
}

func (s Suite) run(ctx context.Context, args ...string) (code int, said string, err error) {
	var out bytes.Buffer
	log := s.Log
	if log == nil {
		log = io.Discard
	}
	both := io.MultiWriter(&out, log)
	process, err := node.Start(ctx, Package, nil, node.Streams{Out: both, ErrOut: both}, args...)
	if err != nil {
		return 0, "", err
	}
	code, err = process.Wait()
	return code, out.String(), errors.Join(ctx.Err(), err)
}

// check is what the suite writes of one.
type check struct {
	ID           string `json:"id"`
	Status       string `json:"status"`
	ErrorMessage string `json:"errorMessage"`
}

// read reads the checks of the one scenario whose results are in a directory; nil if there are none.
func read(directory string) ([]check, error) {
	files, err := filepath.Glob(filepath.Join(directory, "*", "checks.json"))
	if err != nil || len(files) == 0 {
		return nil, err
	}
	content, err := os.ReadFile(files[0])
	if err != nil {
		return nil, err
	}
	checks := []check{}
	if err := json.Unmarshal(content, &checks); err != nil {
		return nil, fmt.Errorf("read the checks: %w", err)
	}
	return checks, nil
}

// judge is what the suite makes of checks: warnings are no failures.
func judge(scenario string, checks []check) Result {
	for _, check := range checks {
		if check.Status == "FAILURE" {
			return Result{scenario, Failed, text.Line(check.ID, messageBytes), text.Line(check.ErrorMessage, messageBytes)}
		}
	}
	return Result{Scenario: scenario, Result: Passed}
}

// listed reads the names of scenarios for servers. Behind them are those for clients, and those that a
// revision does not require.
func listed(said string) []string {
	_, rest, _ := strings.Cut(said, "Server scenarios")
	var names []string
	for line := range strings.Lines(rest) {
		name, isName := strings.CutPrefix(strings.TrimSpace(line), "- ")
		if isName {
			name, _, _ = strings.Cut(name, " ")
			names = append(names, name)
		} else if len(names) > 0 {
			break
		}
	}
	return names
}

func lastLine(said string) string {
	said = strings.TrimSpace(said)
	return text.Line(said[strings.LastIndex(said, "\n")+1:], messageBytes)
}
