// Package adapter runs the adapter as a process of its own, as people do, for tests
// that look at it from outside.
package adapter

import (
	"bufio"
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/test/hang"
)

// Serve runs the adapter with the server's command behind it, until the test is over,
// and returns its URL.
func Serve(t *testing.T, command ...string) string {
	t.Helper()
	return ServeWith(t, nil, command...)
}

// ServeWith is Serve with flags of the adapter's.
func ServeWith(t *testing.T, flags []string, command ...string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "sidecar")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "github.com/slipway-mcp/slipway/cmd/sidecar").CombinedOutput(); err != nil {
		t.Fatalf("build sidecar: %v: %s", err, out)
	}
	return Start(t, binary, slices.Concat(flags, []string{"--"}, command)...)
}

// Start is for tests that have built the adapter, and give it flags of their own.
func Start(t *testing.T, binary string, args ...string) string {
	t.Helper()
	return Run(t, binary, args...).URL
}

// Process is an adapter that runs.
type Process struct {
	URL, Admin string
	PID        int
}

// Run is Start for tests that look at the process, too.
func Run(t *testing.T, binary string, args ...string) Process {
	t.Helper()
	// It ends after the test's context has.
	sidecar := exec.CommandContext(context.WithoutCancel(t.Context()), binary,
		append([]string{"serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, args...)...)
	stderr, err := sidecar.StderrPipe()
	if err != nil {
		t.Fatalf("make pipe: %v", err)
	}
	if err := sidecar.Start(); err != nil {
		t.Fatalf("start sidecar: %v", err)
	}
	drained := make(chan struct{})
	t.Cleanup(func() {
		_ = sidecar.Process.Signal(syscall.SIGTERM)
		<-drained // Wait would close the pipe under its reader.
		if err := sidecar.Wait(); err != nil {
			t.Errorf("stop sidecar: %v", err)
		}
	})
	processes := make(chan Process, 1)
	go func() {
		defer close(drained)
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			entry := Process{PID: sidecar.Process.Pid}
			if json.Unmarshal(lines.Bytes(), &entry) == nil && entry.URL != "" {
				select {
				case processes <- entry:
				default: // It is known.
				}
			}
		}
	}()
	select {
	case process := <-processes:
		return process
	case <-drained:
		t.Fatal("the sidecar ended before it listened")
	case <-time.After(hang.Guard):
		t.Fatal("the sidecar does not say where it listens")
	}
	return Process{}
}
