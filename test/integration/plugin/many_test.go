package plugin

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/test/servers"
)

// A fleet of 1,000 servers is listed in less than 2 seconds and 150 MiB, by the program itself.
func TestLongManyServers(t *testing.T) {
	const many, atATime = 1000, 16
	namespace := newNamespace(t, "many")
	var tools []mcpv1alpha1.CatalogEntry
	for i := range 20 {
		tools = append(tools, mcpv1alpha1.CatalogEntry{Name: fmt.Sprintf("tool_%d", i), Description: "Does something that takes a sentence to describe."})
	}
	var making sync.WaitGroup
	for worker := range atATime {
		making.Go(func() {
			for i := worker; i < many; i += atATime {
				server := &mcpv1alpha1.MCPServer{
					ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("server-%04d", i)},
					Spec:       mcpv1alpha1.MCPServerSpec{Image: "registry.example/server:1", Transport: mcpv1alpha1.Transport{Type: "stdio"}},
				}
				if err := admin.Create(t.Context(), server); err != nil {
					t.Error(err)
					return
				}
				server.Status = mcpv1alpha1.MCPServerStatus{
					Conditions: []metav1.Condition{condition("Ready", "True", "Ready", "20 tools; 1 of 1 pod ready")},
					Catalog:    &mcpv1alpha1.Catalog{Digest: "sha256:ab", Counts: mcpv1alpha1.CatalogCounts{Tools: 20}, Tools: tools},
				}
				if err := admin.Status().Update(t.Context(), server); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	making.Wait()
	binary := filepath.Join(t.TempDir(), "kubectl-mcp")
	if err := servers.Build(t.Context(), binary, "cmd/kubectl-mcp"); err != nil {
		t.Fatal(err)
	}
	best, memory := time.Hour, int64(0)
	for range 5 { // the best of several: other programs use the machine, too
		var out bytes.Buffer
		command := exec.CommandContext(t.Context(), binary, "--kubeconfig="+kubeconfig, "--cache-dir="+filepath.Join(dir, "cache"), "list", "-A")
		command.Stdout = &out
		begin := time.Now()
		if err := command.Run(); err != nil {
			t.Fatal(err)
		}
		best = min(best, time.Since(begin))
		memory = max(memory, command.ProcessState.SysUsage().(*syscall.Rusage).Maxrss<<10)
		if lines := strings.Count(out.String(), "\n"); lines < many+1 {
			t.Fatalf("%d lines", lines)
		}
	}
	t.Logf("%s, %d MiB", best, memory>>20)
	if best > 2*time.Second || memory > 150<<20 {
		t.Errorf("took %s and %d MiB", best, memory>>20)
	}
}
