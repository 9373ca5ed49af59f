//go:build unix

package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/test/hang"
)

var tested = Package{Name: "@acme/thing", Version: "1.2.3", Node: Version{22, 19}}

// usePrograms puts programs of shell on an otherwise empty PATH.
func usePrograms(t *testing.T, programs map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, script := range programs {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", "")
}

func TestCheck(t *testing.T) {
	for name, test := range map[string]struct {
		programs map[string]string
		want     string // of an UnfitError; empty for none
	}{
		"fit":        {map[string]string{"node": "echo v22.19.0", "npx": ""}, ""},
		"newer":      {map[string]string{"node": "echo v24.1.0", "npx": ""}, ""},
		"too old":    {map[string]string{"node": "echo v20.20.2", "npx": ""}, "@acme/thing needs Node.js 22.19 or newer, and yours is 20.20"},
		"a bit old":  {map[string]string{"node": "echo v22.18.9", "npx": ""}, "@acme/thing needs Node.js 22.19 or newer, and yours is 22.18"},
		"no node":    {map[string]string{"npx": ""}, "@acme/thing needs Node.js 22.19 or newer, and there is no node on your PATH"},
		"no npx":     {map[string]string{"node": "echo v24.1.0"}, "@acme/thing needs Node.js 22.19 or newer, and there is no npx on your PATH"},
		"no program": {nil, "@acme/thing needs Node.js 22.19 or newer, and there is no node on your PATH"},
	} {
		t.Run(name, func(t *testing.T) {
			usePrograms(t, test.programs)
			err := Check(t.Context(), tested)
			got := ""
			if unfit, ok := errors.AsType[*UnfitError](err); ok {
				got = unfit.Reason
			} else if err != nil {
				t.Fatal(err)
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	for name, script := range map[string]string{"broken": "exit 1", "of another kind": "echo hello", "half": "echo v22.x"} {
		t.Run(name, func(t *testing.T) {
			usePrograms(t, map[string]string{"node": script, "npx": ""})
			err := Check(t.Context(), tested)
			if _, ok := errors.AsType[*UnfitError](err); err == nil || ok {
				t.Errorf("got %v", err)
			}
		})
	}
}

// The program gets its arguments and settings, and nothing of the user's that it must not see.
func TestStart(t *testing.T) {
	usePrograms(t, map[string]string{"npx": `echo "$@"; echo "set=$SET dropped=$DROPPED kept=$KEPT" >&2; exit 5`})
	t.Setenv("SET", "old")
	t.Setenv("DROPPED", "old")
	t.Setenv("KEPT", "old")
	var out, errOut bytes.Buffer
	process, err := Start(t.Context(), tested, []string{"SET=new", "DROPPED"}, Streams{&out, &errOut}, "--flag", "two words")
	if err != nil {
		t.Fatal(err)
	}
	code, err := process.Wait()
	if err != nil || code != 5 {
		t.Errorf("exit code %d, %v", code, err)
	}
	if diff := cmp.Diff([]string{"-y --workspaces=false @acme/thing@1.2.3 --flag two words\n", "set=new dropped= kept=old\n"}, []string{out.String(), errOut.String()}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// npx takes programs and settings from the directory that it runs in, and from those above. So it runs in a
// new one of the user's, whatever the user's current one is, and nothing of that is left.
func TestPlace(t *testing.T) {
	usePrograms(t, map[string]string{"npx": `pwd; for file in * .[a-z]*; do [ -e "$file" ] && echo "$file"; done; exit 0`})
	checkout := t.TempDir()
	if err := os.MkdirAll(filepath.Join(checkout, "node_modules", tested.Name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(checkout, ".npmrc"), []byte("registry=http://127.0.0.1:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(checkout)
	for name, test := range map[string]struct {
		installed string
		place     func(*testing.T) string // the pattern of where it runs
		want      string
	}{
		"anywhere":  {"", func(t *testing.T) string { return filepath.Join(cacheOf(t), "kubectl-mcp-npx-*") }, "node_modules\n"},
		"of a test": {checkout, func(*testing.T) string { return checkout }, "node_modules\n.npmrc\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			of := tested
			of.Installed = test.installed
			process, err := Start(t.Context(), of, nil, Streams{&out, io.Discard})
			if err != nil {
				t.Fatal(err)
			}
			if code, err := process.Wait(); code != 0 || err != nil {
				t.Fatalf("exit code %d, %v", code, err)
			}
			place, files, _ := strings.Cut(out.String(), "\n")
			if matches, err := filepath.Match(test.place(t), place); !matches || err != nil || files != test.want {
				t.Errorf("runs in %s, which has %q, %v", place, files, err)
			}
			if left, err := os.ReadDir(cacheOf(t)); err != nil && !errors.Is(err, os.ErrNotExist) || len(left) != 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
	t.Run("without a home", func(t *testing.T) {
		t.Setenv("HOME", "")
		if _, err := Start(t.Context(), tested, nil, Streams{io.Discard, io.Discard}); err == nil || !strings.Contains(err.Error(), "find a directory for npx") {
			t.Errorf("got %v", err)
		}
	})
}

func cacheOf(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return cache
}

// Where npx is a script of cmd.exe, no shell reads the arguments if the JavaScript behind it is found.
func TestRunner(t *testing.T) {
	installed, elsewhere := t.TempDir(), t.TempDir()
	program := filepath.Join(installed, "node_modules", "npm", "bin", "npx-cli.js")
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		npx  string
		want []string
	}{
		"Unix":                      {filepath.Join(installed, "npx"), []string{filepath.Join(installed, "npx")}},
		"Windows":                   {filepath.Join(installed, "npx.CMD"), []string{"node", program}},
		"Windows, npm is elsewhere": {filepath.Join(elsewhere, "npx.cmd"), []string{filepath.Join(elsewhere, "npx.cmd")}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, runner(test.npx)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Everything that the program has started ends with it, whatever it does with signals.
func TestEnd(t *testing.T) {
	for name, test := range map[string]struct {
		script   string
		byItself bool
	}{
		"by signal":          {`/bin/sleep 1000 & echo $!; wait`, false},
		"npx ends first":     {`trap 'exit 0' TERM; /bin/sh -c 'trap "" TERM; echo $$; exec /bin/sleep 1000' & wait`, false},
		"npx ends by itself": {`/bin/sleep 1000 >/dev/null 2>&1 & echo $!`, true},
	} {
		t.Run(name, func(t *testing.T) { end(t, test.script, test.byItself) })
	}
}

// end starts a program that prints the number of a process which it starts, and looks whether that process
// ends with the program.
func end(t *testing.T, script string, byItself bool) {
	t.Helper()
	usePrograms(t, map[string]string{"npx": script})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	lines := make(channel, 1)
	process, err := Start(ctx, tested, nil, Streams{lines, io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	var child int
	select {
	case line := <-lines:
		if child, err = strconv.Atoi(strings.TrimSpace(line)); err != nil {
			t.Fatal(err)
		}
	case <-time.After(hang.Guard):
		t.Fatal("the program prints nothing")
	}
	if !byItself {
		cancel()
	}
	select {
	case <-process.Done():
	case <-time.After(hang.Guard):
		t.Fatal("the program does not end")
	}
	// A process that was killed takes a moment to end.
	gomega.NewWithT(t).Eventually(func() bool { return isRunning(child) }).WithTimeout(hang.Guard).Should(gomega.BeFalse(), "a process is left")
}

// isRunning says whether there is a process that is more than an entry that its parent has yet to read.
func isRunning(pid int) bool {
	if err := syscall.Kill(pid, 0); err != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(stat), ") Z ")
}

// channel passes on what is written.
type channel chan string

func (c channel) Write(p []byte) (int, error) {
	c <- string(p)
	return len(p), nil
}

// What a program repeats of a server cannot steer a terminal, in whatever pieces it is written.
func TestHarmless(t *testing.T) {
	var out bytes.Buffer
	lines := Harmless(&out)
	for _, piece := range []string{"one\x1b[2J", "\u202etwo\nth", "ree\n", "rest"} {
		if _, err := lines.Write([]byte(piece)); err != nil {
			t.Fatal(err)
		}
	}
	if err := lines.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.ContainsAny(got, "\x1b\u202e") || strings.Count(got, "\n") != 3 || !strings.HasSuffix(got, "\nthree\nrest\n") {
		t.Errorf("got %q", got)
	}
	out.Reset()
	for range 3 { // a line without end takes no more memory than this
		if _, err := lines.Write(bytes.Repeat([]byte("x"), lineBytes)); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Count(out.String(), "\n"); got != 3 {
		t.Errorf("%d lines", got)
	}
}
