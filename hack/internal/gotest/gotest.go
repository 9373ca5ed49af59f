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
	"regexp"
	"slices"
	"strings"
	"syscall"
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
	// Ended is called with each package that ends; may be nil.
	Ended func(Package)
}

// Result is the result of a suite.
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
// that fail are in the result, which is there with an error, too, as far as it came.
func Run(ctx context.Context, suite Suite) (*Result, error) {
	began := time.Now()
	args := slices.Concat([]string{"test", "-json"}, suite.Flags, suite.Packages)
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir, command.Env = suite.Dir, append(os.Environ(), suite.Env...)
	// The tests' programs are to end, too, for which go test alone would wait.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGINT) }
	command.WaitDelay = time.Minute
	progress := suite.Progress
	if progress == nil {
		progress = io.Discard
	}
	var problems bytes.Buffer
	command.Stderr = io.MultiWriter(&problems, progress) // such as what is downloaded
	reading := newReading(progress)
	if suite.Ended != nil {
		reading.ended = suite.Ended
	}
	result := &reading.result
	stdout, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		return result, fmt.Errorf("run go test: %w", err)
	}
	readErr := reading.read(stdout)
	waitErr := command.Wait()
	result.Took = time.Since(began)
	exit := (*exec.ExitError)(nil)
	switch {
	case ctx.Err() != nil:
		return result, fmt.Errorf("run go test: %w", ctx.Err())
	case readErr != nil:
		return result, fmt.Errorf("read output of go test: %w", readErr)
	case errors.As(waitErr, &exit) && len(result.Failures) == 0:
		return result, fmt.Errorf("run go test: %w\n%s", waitErr, problems.Bytes())
	case waitErr != nil && exit == nil:
		return result, fmt.Errorf("run go test: %w", waitErr)
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
	ended    func(Package)
	output   map[key]*strings.Builder // of tests that have not ended, and of packages
	builds   map[string]*strings.Builder
	packages map[string]*trouble
}

type key struct{ pkg, test string }

// trouble is what went wrong in a package that has not ended.
type trouble struct {
	failed   []string // tests whose parents have not ended
	failures []Failure
	// The runtime's reports in the output of tests that passed: a report goes to the test that wrote last.
	races, crashes strings.Builder
}

// crash is how the runtime begins to report why the program ends.
var crash = regexp.MustCompile(`(?m)^(panic|fatal error|SIGQUIT): `)

func newReading(progress io.Writer) *reading {
	return &reading{
		progress: progress, ended: func(Package) {},
		output: map[key]*strings.Builder{}, builds: map[string]*strings.Builder{}, packages: map[string]*trouble{},
	}
}

func (r *reading) trouble(pkg string) *trouble {
	if r.packages[pkg] == nil {
		r.packages[pkg] = &trouble{}
	}
	return r.packages[pkg]
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
	case "run":
		add(r.output, at, "")
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
	output, t := textOf(r.output, key{e.Package, e.Test}), r.trouble(e.Package)
	isChild := func(test string) bool { return strings.HasPrefix(test, e.Test+"/") }
	switch e.Action {
	case "pass":
		r.result.Passed++
		switch {
		case strings.Contains(output, "DATA RACE"):
			t.races.WriteString(output)
		case crash.MatchString(output):
			t.crashes.WriteString(output)
		}
	case "skip":
		r.result.Skipped++
	case "fail":
		r.result.Failed++
		// A test fails with its subtests: the subtest is what to run again.
		switch {
		case !slices.ContainsFunc(t.failed, isChild):
			r.fail(e.Package, e.Test, output)
		case saysMore(output):
			_, _ = fmt.Fprintf(r.progress, "\n%s %s wrote:\n%s\n", short(e.Package), e.Test, output)
		}
		t.failed = append(t.failed, e.Test)
	}
	t.failed = slices.DeleteFunc(t.failed, isChild) // with -count the same names come again
}

// saysMore says whether there is something in the output of a test besides its name and
// verdict.
func saysMore(output string) bool {
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			return true
		}
	}
	return false
}

func (r *reading) packageEnded(e event) {
	if e.Action == "skip" { // it has no tests
		return
	}
	took := time.Duration(e.Elapsed * float64(time.Second))
	own := textOf(r.output, key{e.Package, ""})
	verdict, note := "ok    ", ""
	if strings.Contains(own, "(cached)") {
		note = " (cached)"
	}
	if e.Action == "fail" {
		verdict = "FAILED"
		r.packageFailed(e, own)
	}
	t := r.trouble(e.Package)
	ended := Package{Path: short(e.Package), Took: took, Failures: t.failures}
	delete(r.packages, e.Package)
	r.result.Packages = append(r.result.Packages, ended)
	_, _ = fmt.Fprintf(r.progress, "%s %6.1f s  %s%s\n", verdict, took.Seconds(), ended.Path, note)
	r.ended(ended)
}

// packageFailed looks for what the tests have not told: those that never ended, because
// they hang or the program crashed, and what is the fault of no single test.
func (r *reading) packageFailed(e event, own string) {
	t := r.trouble(e.Package)
	own = t.crashes.String() + own
	var unfinished []string
	for at := range r.output {
		if at.pkg == e.Package && at.test != "" {
			unfinished = append(unfinished, at.test)
		}
	}
	slices.Sort(unfinished)
	for i, test := range unfinished {
		output := textOf(r.output, key{e.Package, test})
		delete(r.output, key{e.Package, test})
		if isParent := i+1 < len(unfinished) && strings.HasPrefix(unfinished[i+1], test+"/"); isParent && !saysMore(output) {
			continue
		}
		r.result.Failed++
		r.fail(e.Package, test, output+own)
	}
	if len(t.failures) == 0 {
		r.result.Failed++
		r.fail(e.Package, "", textOf(r.builds, e.FailedBuild)+own)
	}
	if t.races.Len() > 0 {
		_, _ = fmt.Fprintf(r.progress, "\nraces that tests of %s have shown:\n%s\n", short(e.Package), t.races.String())
	}
}

func (r *reading) fail(pkg, test, output string) {
	f := Failure{Package: short(pkg), Test: test, Output: output}
	r.result.Failures = append(r.result.Failures, f)
	r.trouble(pkg).failures = append(r.trouble(pkg).failures, f)
	_, _ = fmt.Fprintf(r.progress, "\n%s %s failed:\n%s\n", f.Package, f.Test, f.Output)
}

func short(path string) string {
	return strings.TrimPrefix(strings.TrimPrefix(path, Module), "/")
}
