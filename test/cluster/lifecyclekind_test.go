package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/test/cluster/internal/proc"
)

// TestLifecycleOfKind takes a real kind cluster up and down, with a Docker engine of its own, and compares the machine
// before and after.
func TestLifecycleOfKind(t *testing.T) {
	if os.Getenv("SLIPWAY_TEST_CLUSTER") == "" {
		t.Skip("set SLIPWAY_TEST_CLUSTER=1 to take a real cluster up and down on this machine")
	}
	if dockerAnswers(t.Context()) {
		t.Skip("a Docker engine answers: this test is about machines that have none")
	}
	h := newHarness(t, providerKind)
	before := observe(t, h.dir)
	if len(before.leftovers()) > 0 {
		t.Fatalf("the machine is not clean: %v; take the cluster down first", before.leftovers())
	}
	t.Cleanup(func() {
		if output, err := h.command("down").CombinedOutput(); err != nil {
			t.Errorf("down: %v\n%s", err, output)
		}
	})
	h.must(filepath.Join(h.repository, "hack", "kindnode", "build.sh")) // the first time takes minutes
	h.timed("up", 3*time.Minute, func() { h.run("up") })
	h.run("status")
	h.load()
	h.timed("workload", 60*time.Second, h.deploy)
	h.timed("Service by DNS name", 60*time.Second, func() { h.callService("before") })
	h.refusesUnrestricted()
	h.timed("up again", 20*time.Second, func() { h.run("up") })

	h.run("stop-node", kindControlPlane)
	if output, err := h.command("status").CombinedOutput(); err == nil {
		t.Errorf("status is content with a cluster whose node is down:\n%s", output)
	}
	h.timed("up after the loss of the node", 3*time.Minute, func() { h.run("up") })
	h.timed("Service by DNS name after repair", 2*time.Minute, func() { h.callService("after") })

	h.killEngine()
	if output, err := h.command("status").CombinedOutput(); err == nil {
		t.Errorf("status is content with a cluster whose Docker engine is dead:\n%s", output)
	}
	h.timed("up after kill -9 of the engine", 3*time.Minute, func() { h.run("up") })
	h.timed("Service by DNS name after the engine's restart", 2*time.Minute, func() { h.callService("restarted") })

	h.killEngine()
	h.timed("down after kill -9 of the engine", 60*time.Second, func() { h.run("down") })
	compare(t, before, observe(t, h.dir))
	h.timed("down again", 20*time.Second, func() { h.run("down") })
}

// killEngine kills dockerd and its containerd. The shims and the node live on.
func (h *harness) killEngine() {
	h.Helper()
	engine, err := proc.Find(func(argv []string) bool {
		name := filepath.Base(argv[0])
		return (name == "dockerd" || name == "containerd") && strings.Contains(strings.Join(argv, " "), h.dir)
	})
	if err != nil || len(engine) != 2 {
		h.Fatalf("%d processes of the engine (%v), want 2", len(engine), err)
	}
	h.kill(engine...)
}
