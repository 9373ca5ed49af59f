package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/slipway-mcp/slipway/internal/imagebuild"
	"github.com/slipway-mcp/slipway/test/cluster/internal/proc"
	"github.com/slipway-mcp/slipway/test/hang"
)

// TestLifecycle takes a real local cluster up and down, with all that can happen
// in between. It changes the machine (root, bridge, packet filter), so it runs
// only when it is asked to.
func TestLifecycle(t *testing.T) {
	if os.Getenv("SLIPWAY_TEST_CLUSTER") == "" {
		t.Skip("set SLIPWAY_TEST_CLUSTER=1 to take a real cluster up and down on this machine")
	}
	h := newHarness(t, providerLocal)
	before := observe(t, h.dir)
	if len(before.leftovers()) > 0 {
		t.Fatalf("the machine is not clean: %v; take the cluster down first", before.leftovers())
	}
	t.Cleanup(func() {
		if output, err := h.command("down").CombinedOutput(); err != nil {
			t.Errorf("down: %v\n%s", err, output)
		}
	})

	h.interruptedUp()
	h.timed("down after an interrupted up", 60*time.Second, func() { h.run("down") })
	compare(t, before, observe(t, h.dir))

	h.timed("up", 60*time.Second, func() { h.run("up") })
	h.run("status")
	h.servicesStayHere()
	h.load()
	h.timed("workload", 60*time.Second, h.deploy)
	h.timed("Service by DNS name", 60*time.Second, func() { h.callService("before") })
	h.refusesUnrestricted()

	h.timed("up again", 5*time.Second, func() { h.run("up") })

	h.killComponents()
	h.statusFails()
	h.timed("up after kill -9 of every component", 60*time.Second, func() { h.run("up") })
	h.run("status")
	h.servicesStayHere()
	h.timed("workload is back", 60*time.Second, h.waitForWorkload)
	h.timed("Service by DNS name after repair", 60*time.Second, func() { h.callService("after") })

	h.killComponents()
	h.killContainers()
	h.timed("up after kill -9 of containers as well", 60*time.Second, func() { h.run("up") })
	h.timed("workload is back once more", 60*time.Second, h.waitForWorkload)
	h.timed("Service by DNS name once more", 60*time.Second, func() { h.callService("later") })

	h.killComponents()
	h.timed("down after kill -9 of every component", 60*time.Second, func() { h.run("down") })
	compare(t, before, observe(t, h.dir))
	h.timed("down again", 5*time.Second, func() { h.run("down") })
}

func compare(t *testing.T, before, after observation) {
	t.Helper()
	if left := after.leftovers(); len(left) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
	if diff := before.difference(after); diff != "" {
		t.Errorf("the machine is not as before (-before +after):\n%s", diff)
	}
}

// difference ignores kernel parameters that came with a module that the cluster
// loaded, because they had no value before.
func (o observation) difference(after observation) string {
	after.Sysctls = maps.Clone(after.Sysctls)
	maps.DeleteFunc(after.Sysctls, func(name, _ string) bool {
		_, known := o.Sysctls[name]
		return !known
	})
	return cmp.Diff(o, after)
}

func TestDifferenceOfObservations(t *testing.T) {
	before := observation{Sysctls: map[string]string{"forward": "0"}, PassedOn: []string{"cpu"}}
	tests := map[string]struct {
		after observation
		same  bool
	}{
		"the same":           {observation{Sysctls: map[string]string{"forward": "0"}, PassedOn: []string{"cpu"}}, true},
		"module loaded":      {observation{Sysctls: map[string]string{"forward": "0", "conntrack": "9"}, PassedOn: []string{"cpu"}}, true},
		"parameter changed":  {observation{Sysctls: map[string]string{"forward": "1"}, PassedOn: []string{"cpu"}}, false},
		"parameter is gone":  {observation{PassedOn: []string{"cpu"}}, false},
		"controller enabled": {observation{Sysctls: map[string]string{"forward": "0"}, PassedOn: []string{"cpu", "io"}}, false},
	}
	for name, test := range tests {
		if diff := before.difference(test.after); (diff == "") != test.same {
			t.Errorf("%s: %q", name, diff)
		}
	}
}

type harness struct {
	*testing.T
	program    string
	dir        string
	kubectlBin string
	repository string
}

func newHarness(t *testing.T, provider string) *harness {
	t.Helper()
	t.Setenv("CLUSTER", provider)
	t.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin")
	dir, err := stateDir(os.Getenv, os.Geteuid())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%s exists: the test needs a machine without a local cluster; take it down first", dir)
	}
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	h := &harness{T: t, dir: dir, repository: root, program: filepath.Join(t.TempDir(), "cluster")}
	h.must("go", "build", "-o", h.program, "./test/cluster")
	h.kubectlBin = filepath.Join(strings.TrimSpace(h.must(filepath.Join(root, "hack", "kube", "build.sh"))), "kubectl")
	return h
}

func (h *harness) timed(what string, limit time.Duration, run func()) {
	h.Helper()
	begin := time.Now()
	run()
	took := time.Since(begin)
	h.Logf("%-40s %5.1f s", what, took.Seconds())
	if took > limit {
		h.Errorf("%s took %s, more than %s", what, took, limit)
	}
}

func (h *harness) must(name string, args ...string) string {
	h.Helper()
	command := exec.CommandContext(h.Context(), name, args...)
	command.Dir = h.repository
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		h.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, output, &stderr)
	}
	return string(output)
}

// command is not bound to the test's context: cleaning up comes after its end.
func (h *harness) command(args ...string) *exec.Cmd {
	command := exec.CommandContext(context.WithoutCancel(h.Context()), h.program, args...)
	command.Dir = h.repository
	return command
}

func (h *harness) run(args ...string) {
	h.Helper()
	output, err := h.command(args...).CombinedOutput()
	if err != nil {
		h.Fatalf("cluster %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	h.Logf("cluster %s\n%s", strings.Join(args, " "), output)
}

func (h *harness) kubectl(args ...string) string {
	h.Helper()
	return h.must(h.kubectlBin, append([]string{"--kubeconfig", filepath.Join(h.dir, "kubeconfig"), "--namespace", "lifecycle"}, args...)...)
}

// load makes the image of the test program and loads it.
func (h *harness) load() {
	h.Helper()
	dir := h.TempDir()
	binary, archive := filepath.Join(dir, "testpod"), filepath.Join(dir, "testpod.tar")
	h.must("env", "CGO_ENABLED=0", "go", "build", "-ldflags=-s -w", "-o", binary, "./test/cluster/testpod")
	image, err := imagebuild.Image(imagebuild.Spec{
		Platform:   v1.Platform{OS: "linux", Architecture: runtime.GOARCH},
		Files:      []imagebuild.File{{Path: "/testpod", Source: binary, Mode: 0o755}},
		Entrypoint: []string{"/testpod"},
	})
	if err != nil {
		h.Fatal(err)
	}
	if err := imagebuild.WriteTar(archive, "localhost/slipway-cluster/testpod:1", image); err != nil {
		h.Fatal(err)
	}
	h.run("load", archive)
}

func (h *harness) testdata(name string) string {
	return filepath.Join(h.repository, "test", "cluster", "testdata", name)
}

func (h *harness) deploy() {
	h.Helper()
	h.kubectl("apply", "--filename", h.testdata("workload.yaml"))
	h.waitForWorkload()
	for _, container := range []string{"sidecar", "web"} {
		if got, want := h.kubectl("logs", "deployment/web", "--container", container), "serving "+container+"\n"; got != want {
			h.Errorf("logs of %s: %q, want %q", container, got, want)
		}
	}
}

func (h *harness) waitForWorkload() {
	h.Helper()
	h.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
	// Both containers, of which one is a sidecar, and not just one of them.
	h.kubectl("wait", "pod", "--selector=app=web", "--for=condition=Ready", "--timeout=60s")
}

// callService lets another pod call the Service by its DNS name.
func (h *harness) callService(name string) {
	h.Helper()
	manifest, err := os.ReadFile(h.testdata("client.yaml"))
	if err != nil {
		h.Fatal(err)
	}
	path := filepath.Join(h.TempDir(), "client.yaml")
	if err := os.WriteFile(path, bytes.ReplaceAll(manifest, []byte("NAME"), []byte(name)), 0o600); err != nil {
		h.Fatal(err)
	}
	h.kubectl("apply", "--filename", path)
	h.kubectl("wait", "job/"+name, "--for=condition=Complete", "--timeout=50s")
	if got := h.kubectl("logs", "job/"+name); got != "got web\n" {
		h.Errorf("the client printed %q", got)
	}
}

func (h *harness) refusesUnrestricted() {
	h.Helper()
	command := exec.CommandContext(h.Context(), h.kubectlBin, "--kubeconfig", filepath.Join(h.dir, "kubeconfig"),
		"apply", "--filename", h.testdata("privileged.yaml"))
	if output, err := command.CombinedOutput(); err == nil || !strings.Contains(string(output), "violates PodSecurity") {
		h.Errorf("a pod that is not restricted: %v\n%s", err, output)
	}
}

// interruptedUp kills an up in the middle, when it has started its first
// processes, and checks that the next one carries on.
func (h *harness) interruptedUp() {
	h.Helper()
	interrupt := func(record string) {
		said, err := os.Create(filepath.Join(h.TempDir(), "up.log"))
		if err != nil {
			h.Fatal(err)
		}
		defer func() { _ = said.Close() }()
		command := h.command("up")
		command.Stdout, command.Stderr = said, said // a file, because Wait waits for all who have a pipe
		if err := command.Start(); err != nil {
			h.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- command.Wait() }()
		path := filepath.Join(h.dir, "run", record+".json")
		// No limit but that of all tests: the first up on a machine downloads and installs packages before it starts a process.
		for started := false; !started; {
			select {
			case err := <-ended:
				output, _ := os.ReadFile(said.Name())
				h.Fatalf("up ended (%v) before it started %s\n%s", err, record, output)
			case <-time.After(time.Millisecond):
				_, err := os.Stat(path)
				started = err == nil
			}
		}
		if err := command.Process.Kill(); err != nil {
			h.Fatal(err)
		}
		if err := <-ended; err == nil {
			h.Fatal("up was not interrupted")
		}
	}
	interrupt("containerd")
	interrupt("kubelet")
	h.timed("up after an interrupted up", 60*time.Second, func() { h.run("up") })
	interrupt("kubelet") // At once, since it runs: any moment will do.
}

func (h *harness) killComponents() {
	h.Helper()
	records, err := filepath.Glob(filepath.Join(h.dir, "run", "*.json"))
	if err != nil || len(records) != 7 {
		h.Fatalf("%d records of processes (%v), want 7", len(records), err)
	}
	for _, path := range records {
		content, err := os.ReadFile(path)
		if err != nil {
			h.Fatal(err)
		}
		var identity proc.Identity
		if err := json.Unmarshal(content, &identity); err != nil {
			h.Fatal(err)
		}
		h.kill(identity)
	}
}

// killContainers kills the shims and what runs under them.
func (h *harness) killContainers() {
	h.Helper()
	shims, err := proc.Find(func(argv []string) bool {
		return filepath.Base(argv[0]) == "containerd-shim-runc-v2" && strings.Contains(strings.Join(argv, " "), h.dir)
	})
	if err != nil || len(shims) == 0 {
		h.Fatalf("%d shims (%v), want some", len(shims), err)
	}
	containers, err := proc.Find(func(argv []string) bool {
		return slices.Contains([]string{"/pause", "/coredns", "/testpod"}, argv[0])
	})
	if err != nil || len(containers) == 0 {
		h.Fatalf("%d containers (%v), want some", len(containers), err)
	}
	h.kill(append(shims, containers...)...)
}

func (h *harness) kill(processes ...proc.Identity) {
	h.Helper()
	for _, process := range processes {
		if err := process.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
			h.Errorf("kill process %d: %v", process.PID, err)
		}
	}
	for deadline := time.Now().Add(hang.Guard); slices.ContainsFunc(processes, proc.Identity.Alive); {
		if time.Now().After(deadline) {
			h.Fatal("killed processes are still alive")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (h *harness) statusFails() {
	h.Helper()
	output, err := h.command("status").CombinedOutput()
	if err == nil {
		h.Errorf("status is content with a dead cluster:\n%s", output)
	}
	if dead := strings.Count(string(output), " dead "); dead != 7 {
		h.Errorf("status calls %d components dead, want 7:\n%s", dead, output)
	}
}
