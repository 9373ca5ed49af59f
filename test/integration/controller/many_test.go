//go:build bench

package controller

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/gomega"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/promise"
	"github.com/slipway-mcp/slipway/internal/sidecar/admin"
	"github.com/slipway-mcp/slipway/test/servers"
)

var manyServers = flag.Int("servers", 1000, "how many MCPServers to make")

const (
	// steady is how long the manager is watched at rest.
	steady = promise.Rest

	// memoryLimit is what the manager stays under, with 1,000 servers.
	memoryLimit = 200 << 20
)

// TestManyServers measures the manager's own program: its pods are simulated, and one
// stand-in answers for all of their adapters.
func TestManyServers(t *testing.T) {
	g := NewWithT(t)
	address := startStandIn(t)
	namespace := newNamespace(t)
	manager := startManagerProgram(t, namespace)

	begin := time.Now()
	for i := range *manyServers {
		server := newServer(namespace, fmt.Sprintf("server-%04d", i))
		server.Spec.Image = "localhost:1/simulated-at-" + address + ":1"
		server.Spec.Probe = mcpv1alpha1.Probe{Interval: &metav1.Duration{Duration: 10 * time.Second}}
		create(t, server)
	}
	created := time.Since(begin)
	g.Eventually(func() int { return readyServers(t, namespace) }).WithTimeout(20 * time.Minute).WithPolling(2 * time.Second).Should(Equal(*manyServers))
	ready := time.Since(begin)
	reached := manager.figures(t)

	// At rest: the last answers are written, then nothing is.
	g.Eventually(func() bool {
		before := manager.figures(t).writes
		time.Sleep(15 * time.Second) // a probe interval and a half, in which a write would show
		return manager.figures(t).writes == before
	}).WithTimeout(5 * time.Minute).WithPolling(time.Millisecond).Should(BeTrue())
	before := manager.figures(t)
	time.Sleep(steady) // what is measured is this time
	after := manager.figures(t)

	n := float64(*manyServers)
	t.Logf("servers: %d", *manyServers)
	t.Logf("created in %.0f s, all Ready after %.0f s (%.1f servers/s)", created.Seconds(), ready.Seconds(), n/ready.Seconds())
	t.Logf("until then: %.1f API requests a server (%.1f of them writes), %.1f ms CPU a server", reached.requests/n, reached.writes/n, 1000*reached.cpu/n)
	t.Logf("at rest for %s: %.0f API requests, %.0f writes, %.1f %% of a core", steady, after.requests-before.requests, after.writes-before.writes,
		100*(after.cpu-before.cpu)/steady.Seconds())
	t.Logf("memory: %.0f MiB resident, %.0f MiB at most", after.resident/(1<<20), after.peak/(1<<20))
	g.Expect(after.writes).To(Equal(before.writes), "writes at rest")
	if *manyServers <= 1000 {
		g.Expect(after.peak).To(BeNumerically("<", memoryLimit))
	}
}

func readyServers(t *testing.T, namespace string) int {
	t.Helper()
	var servers mcpv1alpha1.MCPServerList
	if err := shared.client.List(t.Context(), &servers, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	ready := 0
	for i := range servers.Items {
		if meta.IsStatusConditionTrue(servers.Items[i].Status.Conditions, mcpv1alpha1.ConditionReady) {
			ready++
		}
	}
	return ready
}

// startStandIn answers for every adapter, with the official SDK's server and a
// catalogue of ten tools, and returns its address.
func startStandIn(t *testing.T) string {
	t.Helper()
	const address = "127.78.0.1"
	offered := mcp.NewServer(&mcp.Implementation{Name: "stand-in", Version: "1"}, nil)
	for i := range 10 {
		mcp.AddTool(offered, &mcp.Tool{Name: fmt.Sprintf("tool-%d", i), Description: strings.Repeat("a tool that does something useful ", 8)},
			func(context.Context, *mcp.CallToolRequest, struct{ Text string }) (*mcp.CallToolResult, any, error) {
				return &mcp.CallToolResult{}, nil, nil
			})
	}
	clients := http.NewServeMux()
	clients.Handle("/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return offered }, nil))
	serve(t, net.JoinHostPort(address, strconv.Itoa(mcpv1alpha1.AdapterPort)), clients)

	catalog, err := mcpprobe.Probe(t.Context(), mcpprobe.HTTP("http://"+net.JoinHostPort(address, strconv.Itoa(mcpv1alpha1.AdapterPort))+"/mcp", nil), mcpprobe.Options{})
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(catalog)
	if err != nil {
		t.Fatal(err)
	}
	report, err := json.Marshal(admin.Report{Ready: true, Catalog: encoded})
	if err != nil {
		t.Fatal(err)
	}
	administrators := http.NewServeMux()
	administrators.HandleFunc(admin.PathCatalog, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"1"`)
		w.Header().Set(admin.HeaderSessions, "0")
		if r.Header.Get("If-None-Match") == `"1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = w.Write(report)
	})
	serve(t, net.JoinHostPort(address, strconv.Itoa(mcpv1alpha1.AdapterAdminPort)), administrators)
	return address
}

// managerProgram is the real program in a process of its own.
type managerProgram struct {
	pid     int
	metrics string
}

func startManagerProgram(t *testing.T, namespace string) *managerProgram {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "manager")
	if err := servers.Build(t.Context(), program, "cmd/manager"); err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: shared.operator.Host, CertificateAuthorityData: shared.operator.CAData}
	config.AuthInfos["test"] = &clientcmdapi.AuthInfo{ClientCertificateData: shared.operator.CertData, ClientKeyData: shared.operator.KeyData}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	config.CurrentContext = "test"
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	const metrics = "127.78.0.2:8443"
	file := filepath.Join(dir, "config.yaml")
	content := `
apiVersion: config.slipway.dev/v1alpha1
kind: ManagerConfiguration
leaderElection: {enabled: false}
metrics: {bindAddress: "` + metrics + `", protocol: HTTP, authentication: None}
health: {bindAddress: "0"}
adapter: {image: "` + adapterImage + `"}
namespaces: [` + namespace + `]
`
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(context.Background(), program, "--kubeconfig", kubeconfig, "--config", file)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	command.Stderr = log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		if err := command.Wait(); err != nil {
			t.Errorf("manager: %v", err)
		}
		if t.Failed() {
			content, _ := os.ReadFile(log.Name())
			t.Logf("log of the manager:\n%s", content)
		}
	})
	return &managerProgram{command.Process.Pid, "http://" + metrics + "/metrics"}
}

// figures are what the manager has used so far.
type figures struct {
	requests, writes float64
	cpu              float64 // seconds
	resident, peak   float64 // bytes
}

func (m *managerProgram) figures(t *testing.T) figures {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, m.metrics, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var f figures
	for _, metric := range families["rest_client_requests_total"].GetMetric() {
		value := metric.GetCounter().GetValue()
		f.requests += value
		for _, label := range metric.GetLabel() {
			if label.GetName() == "method" && label.GetValue() != http.MethodGet {
				f.writes += value
			}
		}
	}
	f.cpu = families["process_cpu_seconds_total"].GetMetric()[0].GetCounter().GetValue()
	f.resident, f.peak = memoryOf(t, m.pid)
	return f
}

// memoryOf is what a process has in memory, now and at most.
func memoryOf(t *testing.T, pid int) (resident, peak float64) {
	t.Helper()
	content, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		name, value, _ := strings.Cut(line, ":")
		kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
		switch {
		case err != nil:
		case name == "VmRSS":
			resident = kib * 1024
		case name == "VmHWM":
			peak = kib * 1024
		}
	}
	return resident, peak
}
