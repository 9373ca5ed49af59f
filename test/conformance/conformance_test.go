//go:build conformance

// Package conformance runs the official MCP conformance suite against the adapter,
// with a server of the official Go SDK behind it that speaks on standard input and
// output. It needs npm, so it has a make target of its own.
package conformance

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestRequired runs the scenarios that a revision requires. There is no list of
// failures that are expected.
func TestRequired(t *testing.T) {
	suite := installSuite(t)
	for revision, scenarios := range map[string]int{"2025-11-25": 30} {
		t.Run(revision, func(t *testing.T) {
			url := serve(t, tool(t, "everything-server"))
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

// installSuite installs the pinned packages into the cache, once for each lock file.
func installSuite(t *testing.T) suite {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatalf("find cache: %v", err)
	}
	if dir := os.Getenv("SLIPWAY_CACHE"); dir != "" {
		cache = dir
	} else {
		cache = filepath.Join(cache, "slipway")
	}
	key := sha256.New()
	for _, file := range []string{"package.json", "package-lock.json"} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatalf("read %s: %v", file, err)
		}
		key.Write(data)
	}
	dir := filepath.Join(cache, "conformance", hex.EncodeToString(key.Sum(nil)[:8]))
	modules := filepath.Join(dir, "node_modules")
	s := suite{
		node:   filepath.Join(modules, "node-linux-"+map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH], "bin", "node"),
		script: filepath.Join(modules, "@modelcontextprotocol", "conformance", "dist", "index.js"),
	}
	if _, err := os.Stat(filepath.Join(dir, "installed")); err == nil {
		return s
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatalf("make %s: %v", dir, err)
	}
	for _, file := range []string{"package.json", "package-lock.json"} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatalf("read %s: %v", file, err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o644); err != nil {
			t.Fatalf("copy %s: %v", file, err)
		}
	}
	install := exec.CommandContext(t.Context(), "npm", "ci", "--no-audit", "--no-fund")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("run npm ci: %v: %s", err, out)
	}
	if err := os.WriteFile(filepath.Join(dir, "installed"), nil, 0o644); err != nil {
		t.Fatalf("mark %s: %v", dir, err)
	}
	return s
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

// serve runs the adapter with the command behind it, until the test is over, and
// returns its URL.
func serve(t *testing.T, command ...string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "sidecar")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../cmd/sidecar").CombinedOutput(); err != nil {
		t.Fatalf("build sidecar: %v: %s", err, out)
	}
	sidecar := exec.CommandContext(context.WithoutCancel(t.Context()), binary, append([]string{"serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--"}, command...)...)
	stderr, err := sidecar.StderrPipe()
	if err != nil {
		t.Fatalf("make pipe: %v", err)
	}
	if err := sidecar.Start(); err != nil {
		t.Fatalf("start sidecar: %v", err)
	}
	t.Cleanup(func() {
		_ = sidecar.Process.Signal(syscall.SIGTERM)
		if err := sidecar.Wait(); err != nil {
			t.Errorf("stop sidecar: %v", err)
		}
	})
	urls := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			var entry struct {
				URL string `json:"url"`
			}
			if json.Unmarshal(lines.Bytes(), &entry) == nil && entry.URL != "" {
				urls <- entry.URL
			}
		}
	}()
	select {
	case url := <-urls:
		return url
	case <-time.After(30 * time.Second):
		t.Fatal("the sidecar does not say where it listens")
		return ""
	}
}
