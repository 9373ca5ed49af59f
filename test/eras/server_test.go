//go:build conformance

package eras

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/slipway-mcp/slipway/test/adapter"
	"github.com/slipway-mcp/slipway/test/hang"
)

// address is where clients find the adapter.
type address struct{ http, sse string }

// of returns the URL and the transport of clients of a revision.
func (a address) of(revision string) (url, transport string) {
	if revision == "2024-11-05" {
		return a.sse, "sse"
	}
	return a.http, "http"
}

// start runs the adapter with the server behind it until the test is over, and looks for
// what is left of them then.
func (s server) start(t *testing.T) address {
	t.Helper()
	state := filepath.Join(t.TempDir(), "state")
	t.Cleanup(func() {
		if left := processesOf(t, state); len(left) != 0 {
			t.Errorf("these processes are left: %q", left)
		}
	})
	var command []string
	for _, word := range s.command {
		if path := programs[word]; path != nil {
			word = *path
		}
		command = append(command, word)
	}
	command = append(command, "-state", state)
	flags := append([]string{"--drain-timeout", "5s"}, s.flags...)
	if s.http() {
		flags = append(flags, "--upstream", listen(t, command))
	} else {
		flags = append(append(flags, "--"), command...)
	}
	if s.elsewhere {
		return throughAnother(t, adapter.Replicas(t, *programs["sidecar"], 2, flags...))
	}
	url := adapter.Start(t, *programs["sidecar"], flags...)
	return address{http: url, sse: strings.TrimSuffix(url, "/mcp") + "/sse"}
}

// listen runs a server that speaks HTTP, and returns its URL.
func listen(t *testing.T, command []string) string {
	t.Helper()
	server := exec.CommandContext(context.WithoutCancel(t.Context()), command[0], command[1:]...)
	server.Stderr = t.Output()
	stdout, err := server.StdoutPipe()
	if err != nil {
		t.Fatalf("make pipe: %v", err)
	}
	if err := server.Start(); err != nil {
		t.Fatalf("start server: %v", err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGTERM)
		if err := server.Wait(); err != nil {
			t.Errorf("stop server: %v", err)
		}
	})
	// A server that ends without a word ends the line, too.
	url, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the server does not say where it listens: %v", err)
	}
	return strings.TrimSpace(url)
}

// processesOf finds processes that have the word among their arguments.
func processesOf(t *testing.T, word string) (found []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil {
			continue // It ended in this moment.
		}
		if words := bytes.Split(line, []byte{0}); slices.ContainsFunc(words, func(w []byte) bool { return string(w) == word }) {
			found = append(found, string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		}
	}
	return found
}

// node returns a client that is a script of this package.
func node(modules, script string) func(t *testing.T, at address, revision, key string) report {
	return func(t *testing.T, at address, revision, key string) (got report) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*hang.Guard)
		defer cancel()
		url, transport := at.of(revision)
		command := exec.CommandContext(ctx, "node", script, modules, url, transport, revision, key)
		out, err := command.Output()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Fatalf("run %s: %v: %s", script, err, exit.Stderr)
		}
		if err != nil {
			t.Fatalf("run %s: %v", script, err)
		}
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%s said %q: %v", script, out, err)
		}
		return got
	}
}
