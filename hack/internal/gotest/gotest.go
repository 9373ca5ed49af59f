// Package gotest runs go test and reports what failed, together with the command that
// runs just that again.
package gotest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// Module is the path of this module, which the reports leave out.
const Module = "github.com/slipway-mcp/slipway"

// Suite is a set of packages to test.
type Suite struct {
	Dir      string   // of the checkout; the working directory when empty
	Packages []string // patterns, or import paths
	Flags    []string // of go test, besides -json
	Env      []string // besides this process's environment
	// Progress gets a line for each package that ends, and the output of each test that
	// fails. Nil means none.
	Progress io.Writer
	// Ended is called with each package that ends. Nil means nobody asks.
	Ended func(Package)
}

// Result is what came of a suite.
type Result struct {
	Passed, Failed, Skipped int // tests, subtests included
	Failures                []Failure
	Packages                []Package // in the order in which they ended
	Took                    time.Duration
}

// Package is a package whose tests ran.
type Package struct {
	Path     string // without the module's
	Took     time.Duration
	Failures []Failure
}

// Failure is a test that failed, or a package that failed outside of its tests.
type Failure struct {
	Package string // without the module's path
	Test    string // empty if no single test is to blame
	Output  string
}

// Command runs just what failed.
func (f Failure) Command() string {
	command := "make test-one PKG=./" + f.Package
	if f.Test != "" {
		command += " RUN='" + pattern(f.Test) + "'"
	}
	return command
}

// pattern is what go test -run takes for one test and no other.
func pattern(test string) string {
	parts := strings.Split(test, "/")
	for i, part := range parts {
		parts[i] = "^" + quote(part) + "$"
	}
	return strings.Join(parts, "/")
}

// quote is regexp.QuoteMeta for a shell's single quotes, too.
func quote(text string) string {
	var quoted strings.Builder
	for _, r := range text {
		switch {
		case r == '\'':
			quoted.WriteByte('.') // any character matches
			continue
		case strings.ContainsRune(`\.+*?()|[]{}^$`, r):
			quoted.WriteByte('\\')
		}
		quoted.WriteRune(r)
	}
	return quoted.String()
}

// Run runs the suite. The error says that go test could not be run or understood; tests
// that fail are in the result.
func Run(ctx context.Context, suite Suite) (*Result, error) {
	began := time.Now()
	args := slices.Concat([]string{"test", "-json"}, suite.Flags, suite.Packages)
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir, command.Env = suite.Dir, append(os.Environ(), suite.Env...)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = time.Minute
	var problems bytes.Buffer
	command.Stderr = &problems
	stdout, err := command.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("run go test: %w", err)
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("run go test: %w", err)
	}
	progress := suite.Progress
	if progress == nil {
		progress = io.Discard
	}
	reading := newReading(progress)
	if suite.Ended != nil {
		reading.ended = suite.Ended
	}
	readErr := reading.read(stdout)
	waitErr := command.Wait()
	result := &reading.result
	result.Took = time.Since(began)
	exit := (*exec.ExitError)(nil)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("run go test: %w", ctx.Err())
	case readErr != nil:
		return nil, fmt.Errorf("read output of go test: %w", readErr)
	case errors.As(waitErr, &exit) && len(result.Failures) == 0:
		return nil, fmt.Errorf("run go test: %w\n%s", waitErr, problems.Bytes())
	case waitErr != nil && exit == nil:
		return nil, fmt.Errorf("run go test: %w", waitErr)
	}
	return result, nil
}

// event is a line of go test -json; see go doc test2json and go help buildjson.
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build output
	Test        string
	Output      string
	Elapsed     float64
	FailedBuild string
}

// reading is the state of a run whose output is being read.
type reading struct {
	result   Result
	progress io.Writer
	output   map[key]*strings.Builder // of tests that run, and of packages
	builds   map[string]*strings.Builder
	failed   map[string][]string // tests, by package
	failures map[string][]Failure
	ended    func(Package)
}

type key struct{ pkg, test string }

func newReading(progress io.Writer) *reading {
	return &reading{
		progress: progress, output: map[key]*strings.Builder{}, builds: map[string]*strings.Builder{},
		failed: map[string][]string{}, failures: map[string][]Failure{}, ended: func(Package) {},
	}
}

func (r *reading) read(source io.Reader) error {
	lines := bufio.NewReader(source)
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				_, _ = r.progress.Write(line) // go test says something of its own
			} else {
				r.take(e)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *reading) take(e event) {
	at := key{e.Package, e.Test}
	switch e.Action {
	case "output":
		add(r.output, at, e.Output)
	case "build-output":
		add(r.builds, e.ImportPath, e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.packageEnded(e)
		} else {
			r.testEnded(e)
		}
		delete(r.output, at)
	}
}

func add[K comparable](to map[K]*strings.Builder, at K, text string) {
	if to[at] == nil {
		to[at] = &strings.Builder{}
	}
	_, _ = to[at].WriteString(text) // never fails
}

func textOf[K comparable](from map[K]*strings.Builder, at K) string {
	if from[at] == nil {
		return ""
	}
	return from[at].String()
}

func (r *reading) testEnded(e event) {
	switch e.Action {
	case "pass":
		r.result.Passed++
	case "skip":
		r.result.Skipped++
	case "fail":
		r.result.Failed++
		// A test fails with its subtests: the subtest is what to run again.
		isParent := func(test string) bool { return strings.HasPrefix(test, e.Test+"/") }
		if !slices.ContainsFunc(r.failed[e.Package], isParent) {
			r.fail(Failure{Package: short(e.Package), Test: e.Test, Output: textOf(r.output, key{e.Package, e.Test})})
		}
		r.failed[e.Package] = append(r.failed[e.Package], e.Test)
	}
}

func (r *reading) packageEnded(e event) {
	if e.Action == "skip" { // it has no tests
		return
	}
	took := time.Duration(e.Elapsed * float64(time.Second))
	verdict := "ok    "
	if e.Action == "fail" {
		verdict = "FAILED"
		if len(r.failed[e.Package]) == 0 {
			r.result.Failed++
			r.fail(Failure{Package: short(e.Package), Output: textOf(r.builds, e.FailedBuild) + textOf(r.output, key{e.Package, ""})})
		}
	}
	ended := Package{Path: short(e.Package), Took: took, Failures: r.failures[short(e.Package)]}
	r.result.Packages = append(r.result.Packages, ended)
	r.ended(ended)
	_, _ = fmt.Fprintf(r.progress, "%s %6.1f s  %s\n", verdict, took.Seconds(), short(e.Package))
}

func (r *reading) fail(f Failure) {
	r.result.Failures = append(r.result.Failures, f)
	r.failures[f.Package] = append(r.failures[f.Package], f)
	_, _ = fmt.Fprintf(r.progress, "\n%s %s failed:\n%s\n", f.Package, f.Test, f.Output)
}

func short(path string) string {
	return strings.TrimPrefix(strings.TrimPrefix(path, Module), "/")
}
