package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/test/hang"
)

// fakeGo stands in for go. As the real one, it compiles in a process of its own.
const fakeGo = `#!/bin/bash
case $1 in
env) echo fake ;;
list)
  [[ -n ${FAKE_MISSING:-} ]] || exit 0
  echo 'go: downloading example.com/a v1.0.0' >&2
  seq "$FAKE_MISSING"
  ;;
build)
  while [[ $1 != -o ]]; do shift; done
  [[ -d $GOTMPDIR ]] || exit 1
  if [[ -n ${FAKE_COMPILED:-} ]]; then
    seq "$FAKE_COMPILED"
    touch -d '100 seconds ago' "$GOTMPDIR/missing"
    touch -d "${FAKE_LINKS:-0} seconds ago" "$GOTMPDIR/log"
  fi
  if [[ -n ${FAKE_HANG:-} ]]; then
    sleep 300 &
    echo $! >"$FAKE_HANG.new" && mv "$FAKE_HANG.new" "$FAKE_HANG"
    wait
  fi
  echo >"$2/kube" && chmod +x "$2/kube"
  ;;
esac
`

// kubeBuild runs hack/kube/build.sh, in a copy, with a fake go and its own cache.
type kubeBuild struct {
	*testing.T
	dir, cache, hang string
}

func newKubeBuild(t *testing.T) kubeBuild {
	t.Helper()
	if _, err := exec.LookPath("flock"); err != nil {
		t.Skip("build.sh needs flock")
	}
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	b := kubeBuild{T: t, dir: filepath.Join(dir, "kube"), cache: filepath.Join(dir, "cache"), hang: filepath.Join(dir, "hang")}
	if err := os.CopyFS(b.dir, os.DirFS(filepath.Join(root, "hack", "kube"))); err != nil {
		t.Fatal(err)
	}
	b.write(filepath.Join(dir, "bin", "go"), fakeGo)
	t.Setenv("PATH", filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	t.Setenv("SLIPWAY_CACHE", b.cache)
	return b
}

func (b kubeBuild) write(path, content string) {
	b.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
		b.Fatal(err)
	}
}

func (b kubeBuild) command(env ...string) *exec.Cmd {
	command := exec.CommandContext(b.Context(), filepath.Join(b.dir, "build.sh"))
	command.Env = append(os.Environ(), env...)
	return command
}

// run builds and returns the directory.
func (b kubeBuild) run() string {
	b.Helper()
	command := b.command()
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		b.Fatalf("build.sh: %v\n%s", err, &stderr)
	}
	return strings.TrimSpace(string(output))
}

// start starts a build that does not end; it returns what compiles.
func (b kubeBuild) start() (build *exec.Cmd, compiler int) {
	b.Helper()
	build = b.command("FAKE_HANG=" + b.hang)
	if err := build.Start(); err != nil {
		b.Fatal(err)
	}
	b.eventually("compiling", func() bool {
		content, err := os.ReadFile(b.hang)
		if err == nil {
			compiler, err = strconv.Atoi(strings.TrimSpace(string(content)))
		}
		return err == nil
	})
	b.Cleanup(func() { _ = syscall.Kill(compiler, syscall.SIGKILL) }) // Usually dead already.
	return build, compiler
}

func (b kubeBuild) eventually(what string, condition func() bool) {
	b.Helper()
	for deadline := time.Now().Add(hang.Guard); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatalf("timed out waiting: %s", what)
		}
	}
}

func (b kubeBuild) locked() bool {
	b.Helper()
	file, err := os.Open(filepath.Join(b.cache, "kube", "lock"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) {
		b.Fatal(err)
	}
	return err != nil
}

// holders are the processes that have the lock's file open.
func (b kubeBuild) holders() (pids []int) {
	b.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		b.Fatal(err)
	}
	for _, file := range files {
		if target, err := os.Readlink(file); err == nil && target == filepath.Join(b.cache, "kube", "lock") {
			pid, err := strconv.Atoi(strings.Split(file, "/")[2])
			if err != nil {
				b.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}

func (b kubeBuild) unfinished() []string {
	b.Helper()
	found, err := filepath.Glob(filepath.Join(b.cache, "kube", "build.*"))
	if err != nil {
		b.Fatal(err)
	}
	return found
}

func TestInterruptedKubeBuildEndsTheCompiler(t *testing.T) {
	for _, interrupt := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		t.Run(interrupt.String(), func(t *testing.T) {
			if signal.Ignored(interrupt) {
				t.Skip("ignored here, as below nohup, and so by every process that this one starts")
			}
			b := newKubeBuild(t)
			build, compiler := b.start()
			if !b.locked() || len(b.unfinished()) != 1 {
				t.Errorf("while it compiles: locked %v, %v", b.locked(), b.unfinished())
			}
			if err := build.Process.Signal(interrupt); err != nil {
				t.Fatal(err)
			}
			if err := build.Wait(); err == nil || build.ProcessState.ExitCode() != 128+int(interrupt) {
				t.Errorf("interrupted: %v", err)
			}
			b.eventually("the compiler ends", func() bool { return syscall.Kill(compiler, 0) != nil || zombie(compiler) })
			b.eventually("the lock is free", func() bool { return !b.locked() })
			if left := b.unfinished(); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// zombie reports whether a process is dead and its parent has not reaped it.
func zombie(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err == nil && strings.Contains(string(stat), ") Z ")
}

func TestKilledKubeBuildIsLockedWhileItCompiles(t *testing.T) {
	b := newKubeBuild(t)
	build, compiler := b.start()
	if err := build.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := build.Wait(); err == nil {
		t.Error("not killed")
	}
	group, err := syscall.Getpgid(compiler)
	if err != nil || group == syscall.Getpgrp() {
		t.Fatalf("the compiler's process group: %d, %v", group, err)
	}
	b.eventually("the script's own last sleep, which has the lock as well, ends", func() bool {
		return !slices.ContainsFunc(b.holders(), func(pid int) bool {
			of, err := syscall.Getpgid(pid)
			return err == nil && of != group
		})
	})
	if !b.locked() {
		t.Fatal("not locked, although something still compiles")
	}
	stale := b.unfinished()
	if len(stale) != 1 {
		t.Fatalf("unfinished: %v", stale)
	}
	if err := syscall.Kill(-group, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.run()
	if left := b.unfinished(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// The fake go has compiled for 100 seconds, less those in which it links.
func TestKubeBuildSaysHowFarItIs(t *testing.T) {
	for name, test := range map[string]struct {
		missing, compiled, links int
		want                     string
	}{
		"half of it":           {missing: 600, compiled: 300, want: "300 of 600 packages compiled, about 2 min left"},
		"most of it":           {missing: 600, compiled: 550, want: "550 of 600 packages compiled, less than a minute left"},
		"too early to say":     {missing: 600, compiled: 40, want: "40 of 600 packages compiled"},
		"links":                {missing: 300, compiled: 302, links: 1, want: "linking the programs, less than a minute left"},
		"links for too long":   {missing: 300, compiled: 302, links: 90, want: "linking the programs"},
		"links, and that only": {want: "linking the programs"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newKubeBuild(t)
			command := b.command("FAKE_MISSING=" + strconv.Itoa(test.missing))
			if test.compiled > 0 {
				command.Env = append(command.Env, "FAKE_COMPILED="+strconv.Itoa(test.compiled), "FAKE_LINKS="+strconv.Itoa(test.links))
			}
			output, err := command.CombinedOutput()
			if err != nil {
				t.Fatalf("build.sh: %v\n%s", err, output)
			}
			_, got, _ := strings.Cut(string(output), "\nprogress: ")
			_, got, _ = strings.Cut(got, " s, ")
			got, _, _ = strings.Cut(got, "\n")
			if got != test.want {
				t.Errorf("got %q, want %q in\n%s", got, test.want, output)
			}
		})
	}
}

func TestKubeBuildFollowsWhatChangesTheResult(t *testing.T) {
	b := newKubeBuild(t)
	script, err := os.ReadFile(filepath.Join(b.dir, "build.sh"))
	if err != nil {
		t.Fatal(err)
	}
	change := func(name, old, replacement string) {
		t.Helper()
		path := filepath.Join(b.dir, name)
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(content, []byte(old)) {
			t.Fatalf("%s has no %q", name, old)
		}
		b.write(path, strings.Replace(string(content), old, replacement, 1))
	}
	first := b.run()
	for _, program := range []string{"kube", "kubectl", "etcd", "kube-apiserver", "kubelet"} {
		if _, err := os.Stat(filepath.Join(first, program)); err != nil {
			t.Error(err)
		}
	}
	change("build.sh", "set -euo pipefail\n", "set -euo pipefail # Strict.\n")
	if again := b.run(); again != first {
		t.Errorf("a comment in build.sh leads from %s to %s", first, again)
	}
	b.write(filepath.Join(b.dir, "build.sh"), string(script))
	seen := []string{first}
	for _, edit := range []struct{ name, old, replacement string }{
		{"build.sh", "-s -w", "-s"},
		{"main.go", "package main", "package main // Edited."},
		{"coredns/main.go", "package main", "package main // Edited."},
		{"go.sum", " h1:", " h2:"},
	} {
		change(edit.name, edit.old, edit.replacement)
		now := b.run()
		if slices.Contains(seen, now) {
			t.Errorf("%s: %q for %q leads to %s again", edit.name, edit.replacement, edit.old, now)
		}
		seen = append(seen, now)
	}
}
