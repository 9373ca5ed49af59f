// Package node runs programs of the npm registry, at a pinned version, with the Node.js of the user.
package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-mcp/slipway/internal/plugin/bearer"
)

// grace is how long a program that is told to end has to do so.
const grace = 5 * time.Second

// Package is a package of the npm registry.
type Package struct {
	Name, Version string
	Node          Version // the oldest that it runs with
	// Installed is a directory that has the package in its node_modules, for tests. Elsewhere it is empty, and
	// npx downloads the package.
	Installed string
}

// String is the package as npx takes it.
func (p Package) String() string { return p.Name + "@" + p.Version }

// CommandLine is what a user types to run the package.
func (p Package) CommandLine(args ...string) string {
	return strings.Join(slices.Concat([]string{"npx", "-y", p.String()}, args), " ")
}

// Version is a version of Node.js.
type Version struct{ Major, Minor int }

func (v Version) String() string {
	if v.Minor == 0 {
		return strconv.Itoa(v.Major)
	}
	return fmt.Sprintf("%d.%d", v.Major, v.Minor)
}

func (v Version) isBefore(other Version) bool {
	return v.Major < other.Major || v.Major == other.Major && v.Minor < other.Minor
}

// UnfitError says that a package cannot run on this machine, and why.
type UnfitError struct{ Reason string }

func (e *UnfitError) Error() string { return e.Reason }

// Check returns an UnfitError if a package cannot run on this machine.
func Check(ctx context.Context, of Package) error {
	for _, program := range []string{"node", "npx"} {
		if _, err := exec.LookPath(program); err != nil {
			return &UnfitError{fmt.Sprintf("%s needs Node.js %s or newer, and there is no %s on your PATH", of.Name, of.Node, program)}
		}
	}
	out, err := exec.CommandContext(ctx, "node", "--version").Output()
	if err != nil {
		return fmt.Errorf("run node --version: %w", err)
	}
	found, err := parse(string(out))
	if err != nil {
		return err
	}
	if found.isBefore(of.Node) {
		return &UnfitError{fmt.Sprintf("%s needs Node.js %s or newer, and yours is %s", of.Name, of.Node, found)}
	}
	return nil
}

// parse reads what node --version prints, such as v22.23.3.
func parse(words string) (Version, error) {
	parts := strings.Split(strings.TrimPrefix(strings.TrimSpace(words), "v"), ".")
	if len(parts) < 2 {
		return Version{}, fmt.Errorf("node --version prints %q, which is no version", words)
	}
	major, err := strconv.Atoi(parts[0])
	if err != nil {
		return Version{}, fmt.Errorf("node --version prints %q, which is no version", words)
	}
	minor, err := strconv.Atoi(parts[1])
	if err != nil {
		return Version{}, fmt.Errorf("node --version prints %q, which is no version", words)
	}
	return Version{major, minor}, nil
}

// Process is a program of a package that was started.
type Process struct {
	command      *exec.Cmd
	done         chan struct{}
	err, removal error // once done is closed
}

// Start starts the program of a package. When ctx ends it is told to end, with all processes that it
// started; those that do not are killed. The settings are environment variables, as in NAME=value;
// a NAME alone is a variable of the user that the program must not see.
func Start(ctx context.Context, of Package, settings []string, streams Streams, args ...string) (*Process, error) {
	npx, err := exec.LookPath("npx")
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", of, err)
	}
	directory, remove, err := of.directory()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", of, err)
	}
	// Not --no-workspaces: npx would take the package for its value.
	line := slices.Concat(runner(npx), []string{"-y", "--workspaces=false", of.String()}, args)
	command := exec.CommandContext(ctx, line[0], line[1:]...) //nolint:gosec // the package is pinned; see runner for who reads the arguments
	command.Dir = directory
	command.Env = environment(os.Environ(), append(slices.Clone(settings), bearer.Variable)) // the token is not for programs of others
	command.Stdout, command.Stderr = streams.Out, streams.ErrOut
	command.WaitDelay = grace
	group(command)
	if err := command.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", of, err), remove())
	}
	p := &Process{command: command, done: make(chan struct{})}
	go func() {
		p.err = command.Wait()
		killGroup(command) // npx may end before what it started
		p.removal = remove()
		close(p.done)
	}()
	return p, nil
}

// Done is closed when the program has ended, and what it started has ended or was killed.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the end of the program, and returns its exit code; -1 if a signal ended it.
func (p *Process) Wait() (code int, err error) {
	<-p.done
	if _, exited := errors.AsType[*exec.ExitError](p.err); p.err != nil && !exited {
		return -1, errors.Join(p.err, p.removal)
	}
	return p.command.ProcessState.ExitCode(), p.removal
}

// environment is the user's, with settings.
func environment(users, settings []string) []string {
	var names []string
	for _, setting := range settings {
		name, _, _ := strings.Cut(setting, "=")
		names = append(names, name)
	}
	kept := slices.DeleteFunc(slices.Clone(users), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains(names, name)
	})
	return append(kept, slices.DeleteFunc(slices.Clone(settings), func(setting string) bool { return !strings.Contains(setting, "=") })...)
}
