//go:build docs

package docs

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	standInNamespace = "slipway-docs"
	system           = "slipway-system"
	manager          = "slipway-manager"
)

// cluster is where the pages are tried.
type cluster struct {
	tool    string // test/cluster
	helm    string
	kubectl string
}

// run runs a program in the root of the checkout, and returns what it prints on standard output.
func run(ctx context.Context, t *testing.T, stdin, name string, args ...string) string {
	t.Helper()
	output, err := try(ctx, stdin, name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, output)
	}
	return output
}

func try(ctx context.Context, stdin, name string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(ctx, name, args...)
	command.Dir, command.Stdin, command.Stdout, command.Stderr = repository, strings.NewReader(stdin), &stdout, &stderr
	if err := command.Run(); err != nil {
		return stdout.String() + stderr.String(), err
	}
	return strings.TrimSpace(stdout.String()), nil
}

// newCluster builds the programs that the tests need.
func newCluster(ctx context.Context, t *testing.T) *cluster {
	t.Helper()
	bin := t.TempDir()
	c := &cluster{tool: filepath.Join(bin, "cluster"), helm: filepath.Join(bin, "helm")}
	var err error
	if c.kubectl, err = exec.LookPath("kubectl"); err != nil {
		t.Fatal(err)
	}
	run(ctx, t, "", "go", "build", "-o", c.tool, "./test/cluster")
	run(ctx, t, "", "go", "build", "-C", "test/chart", "-o", c.helm, "helm.sh/helm/v4/cmd/helm") // the version that the chart is tested with
	return c
}

// empty takes away what another test, or another page, has installed.
func (c *cluster) empty(ctx context.Context, t *testing.T) {
	t.Helper()
	if _, err := try(ctx, "", c.kubectl, "get", "customresourcedefinition", "mcpservers.mcp.slipway.dev"); err == nil {
		run(ctx, t, "", c.kubectl, "delete", "mcpservers", "--all", "--all-namespaces", "--timeout=3m")
	}
	if _, err := try(ctx, "", c.helm, "status", "slipway", "--namespace", system); err == nil {
		run(ctx, t, "", c.helm, "uninstall", "slipway", "--namespace", system, "--wait")
	}
	// What make test-e2e and make demo install, and what the chart keeps.
	run(ctx, t, "", c.kubectl, "delete", "--filename", "dist/install.yaml", "--ignore-not-found", "--timeout=5m")
	run(ctx, t, "", c.kubectl, "delete", "namespace", system, "--ignore-not-found", "--timeout=5m")
}

// namespace makes a namespace for a reader, and a kubeconfig whose context has it.
func (c *cluster) namespace(ctx context.Context, t *testing.T, name, kubeconfig string) {
	t.Helper()
	run(ctx, t, "", c.kubectl, "create", "namespace", name)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		// Kubernetes looks at a namespace with pods again after half of their grace period, which has minutes to drain.
		if output, err := try(ctx, "", c.kubectl, "delete", "mcpservers", "--all", "--namespace", name); err != nil {
			t.Log(output) // Slipway was not installed
		}
		run(ctx, t, "", c.kubectl, "wait", "--for=delete", "pods", "--all", "--namespace", name, "--timeout=2m")
		run(ctx, t, "", c.kubectl, "delete", "namespace", name, "--timeout=5m")
	})
	config := run(ctx, t, "", c.kubectl, "config", "view", "--raw", "--minify", "--flatten")
	if err := os.WriteFile(kubeconfig, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	run(ctx, t, "", c.kubectl, "--kubeconfig", kubeconfig, "config", "set-context", "--current", "--namespace", name)
}

// provideVolume has a PersistentVolumeClaim bind where the cluster has no class of storage, as on the local cluster. The
// directory is on the node, which is this machine there.
func (c *cluster) provideVolume(ctx context.Context, t *testing.T) {
	t.Helper()
	if run(ctx, t, "", c.kubectl, "get", "storageclasses", "--output", "name") != "" {
		return
	}
	dir, err := os.MkdirTemp("", "slipway-docs-volume-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil { // Kubernetes gives a directory of the node to no group.
		t.Fatal(err)
	}
	apply(ctx, t, c, map[string]any{
		"apiVersion": "v1", "kind": "PersistentVolume", "metadata": map[string]any{"name": "slipway-docs"},
		"spec": map[string]any{
			"capacity": map[string]any{"storage": "1Gi"}, "accessModes": []string{"ReadWriteOnce"},
			"hostPath": map[string]any{"path": dir, "type": "Directory"},
		},
	})
	t.Cleanup(func() {
		run(context.WithoutCancel(ctx), t, "", c.kubectl, "delete", "persistentvolume", "slipway-docs", "--timeout=1m")
	})
}

// apply writes objects as kubectl would.
func apply(ctx context.Context, t *testing.T, c *cluster, objects ...map[string]any) {
	t.Helper()
	list := map[string]any{"apiVersion": "v1", "kind": "List", "items": objects}
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	run(ctx, t, string(text), c.kubectl, "apply", "--server-side", "--force-conflicts", "--filename", "-")
}

// dump shows what the cluster knows of a failure.
func (c *cluster) dump(t *testing.T, namespace string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, args := range [][]string{
		{"get", "mcpservers,pods,persistentvolumeclaims", "--all-namespaces", "--output", "wide"},
		{"describe", "mcpservers", "--namespace", namespace},
		{"get", "events", "--namespace", namespace, "--sort-by=.lastTimestamp"},
		{"logs", "--namespace", namespace, "--selector", "mcp.slipway.dev/server", "--all-containers", "--prefix", "--tail=30"},
		{"logs", "--namespace", system, "deployment/" + manager, "--tail=60"},
		{"describe", "pods", "--namespace", system},
	} {
		output, _ := try(ctx, "", c.kubectl, args...) // a part of it may be missing
		t.Logf("kubectl %s\n%s", strings.Join(args, " "), output)
	}
}
