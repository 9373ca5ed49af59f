// Package suite runs the official MCP conformance suite against an endpoint of this machine.
package suite

import (
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

// Bounds of what the suite writes: it repeats what a server sent.
const (
	messageBytes = 4 << 10   // of a check
	saidBytes    = 256 << 10 // of its output, which for a list of all scenarios has a few kilobytes
	checksBytes  = 32 << 20  // of all checks of a scenario, with details that nothing here reads
)

// Result is the result of a scenario.
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
	results, err := filepath.Abs(directory) // npx runs elsewhere
	if err != nil {
		return Result{}, fmt.Errorf("run scenario %s: %w", scenario, err)
	}
	args := []string{"server", "--url", s.Endpoint, "--scenario", scenario, "-o", results}
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
	return judge(scenario, checks, code, said), nil
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
	var out tail
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
	file, err := os.Open(files[0])
	if err != nil {
		return nil, fmt.Errorf("read the checks: %w", err)
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, checksBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read the checks: %w", err)
	}
	if len(content) > checksBytes {
		return nil, fmt.Errorf("read the checks: they have more than %d bytes", checksBytes)
	}
	checks := []check{}
	if err := json.Unmarshal(content, &checks); err != nil {
		return nil, fmt.Errorf("read the checks: %w", err)
	}
	return checks, nil
}

// judge is what the suite makes of checks: warnings are no failures. A suite that made no check, or that
// ended otherwise than its checks say, has not shown that the server passes.
func judge(scenario string, checks []check, code int, said string) Result {
	for _, check := range checks {
		if check.Status == "FAILURE" {
			return Result{scenario, Failed, text.Line(check.ID, messageBytes), text.Line(check.ErrorMessage, messageBytes)}
		}
	}
	switch {
	case code != 0:
		return Result{Scenario: scenario, Result: Failed, Message: fmt.Sprintf("no check failed, and the suite ended with exit code %d: %s", code, lastLine(said))}
	case len(checks) == 0:
		return Result{Scenario: scenario, Result: Failed, Message: "the suite made no check: " + lastLine(said)}
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

// tail keeps the end of what is written to it.
type tail struct{ kept []byte }

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p[max(0, len(p)-saidBytes):]...)
	if len(t.kept) > 2*saidBytes { // not each time: that would copy all of it for each line
		t.kept = append(t.kept[:0], t.kept[len(t.kept)-saidBytes:]...)
	}
	return len(p), nil
}

func (t *tail) String() string { return string(t.kept[max(0, len(t.kept)-saidBytes):]) }

func lastLine(said string) string {
	said = strings.TrimSpace(said)
	return text.Line(said[strings.LastIndex(said, "\n")+1:], messageBytes)
}
