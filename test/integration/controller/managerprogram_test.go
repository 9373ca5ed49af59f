//go:build bench

package controller

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/slipway-mcp/slipway/internal/config"
	"github.com/slipway-mcp/slipway/test/servers"
)

// managerProgram is the real program in a process of its own.
type managerProgram struct {
	pid     int
	metrics string
}

// startManagerProgram starts a manager for all namespaces, with the memory limit of the
// installation.
func startManagerProgram(t *testing.T) *managerProgram {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "manager")
	if err := servers.Build(t.Context(), program, "cmd/manager"); err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	access := clientcmdapi.NewConfig()
	access.Clusters["test"] = &clientcmdapi.Cluster{Server: shared.operator.Host, CertificateAuthorityData: shared.operator.CAData}
	access.AuthInfos["test"] = &clientcmdapi.AuthInfo{ClientCertificateData: shared.operator.CertData, ClientKeyData: shared.operator.KeyData}
	access.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	access.CurrentContext = "test"
	if err := clientcmd.WriteToFile(*access, kubeconfig); err != nil {
		t.Fatal(err)
	}
	metrics := shared.network.Address() + ":20766"
	file := filepath.Join(dir, "config.yaml")
	content := `
apiVersion: config.slipway.dev/v1alpha1
kind: ManagerConfiguration
leaderElection: {enabled: false}
metrics: {bindAddress: "` + metrics + `", protocol: HTTP, authentication: None}
health: {bindAddress: "0"}
adapter: {image: "` + adapterImage + `"}
`
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(context.Background(), program, "--kubeconfig", kubeconfig, "--config", file)
	command.Env = append(os.Environ(), config.MemoryLimitVariable+"="+strconv.FormatInt(installedLimit(t), 10))
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

// installedLimit is the memory limit of the manager's container, in bytes.
func installedLimit(t *testing.T) int64 {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, "config/manager/manager.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	deployment := &appsv1.Deployment{}
	if err := yaml.Unmarshal(content, deployment); err != nil {
		t.Fatal(err)
	}
	return deployment.Spec.Template.Spec.Containers[0].Resources.Limits.Memory().Value()
}

// figures are what the manager has used so far.
type figures struct {
	reconciles     float64
	failed         float64        // of these
	waited, worked *dto.Histogram // seconds in the queue, and at work
	cpu            float64        // seconds
	resident, peak float64        // bytes
}

func (m *managerProgram) figures(t *testing.T) figures {
	t.Helper()
	families := m.scrape(t)
	var f figures
	for _, metric := range families["controller_runtime_reconcile_total"].GetMetric() {
		f.reconciles += metric.GetCounter().GetValue()
	}
	for _, metric := range families["controller_runtime_reconcile_errors_total"].GetMetric() {
		f.failed += metric.GetCounter().GetValue()
	}
	f.waited = onlyHistogram(t, families["workqueue_queue_duration_seconds"])
	f.worked = onlyHistogram(t, families["workqueue_work_duration_seconds"])
	f.cpu = families["process_cpu_seconds_total"].GetMetric()[0].GetCounter().GetValue()
	f.resident, f.peak = memoryOf(t, m.pid)
	return f
}

// scrape reads the metrics, in the format that has fine histograms.
func (m *managerProgram) scrape(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, m.metrics, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", string(expfmt.NewFormat(expfmt.TypeProtoDelim)))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	families := map[string]*dto.MetricFamily{}
	for decoder := expfmt.NewDecoder(response.Body, expfmt.ResponseFormat(response.Header)); ; {
		family := &dto.MetricFamily{}
		err := decoder.Decode(family)
		if errors.Is(err, io.EOF) {
			return families
		}
		if err != nil {
			t.Fatal(err)
		}
		families[family.GetName()] = family
	}
}

// onlyHistogram is that of the only queue that there is.
func onlyHistogram(t *testing.T, family *dto.MetricFamily) *dto.Histogram {
	t.Helper()
	if n := len(family.GetMetric()); n != 1 {
		t.Fatalf("%s: %d queues, want one", family.GetName(), n)
	}
	return family.GetMetric()[0].GetHistogram()
}

// atMost is what the share q of all values does not exceed, to a bucket's width.
func atMost(h *dto.Histogram, q float64) float64 {
	rank := q * float64(h.GetSampleCount())
	seen, inBucket, index := float64(h.GetZeroCount()), int64(0), int32(0)
	if seen >= rank {
		return 0
	}
	base := math.Pow(2, math.Pow(2, -float64(h.GetSchema())))
	deltas := h.GetPositiveDelta()
	for _, span := range h.GetPositiveSpan() {
		index += span.GetOffset()
		for range span.GetLength() {
			inBucket += deltas[0] // buckets tell how much more they have than the one before
			deltas = deltas[1:]
			if seen += float64(inBucket); seen >= rank {
				return math.Pow(base, float64(index))
			}
			index++
		}
	}
	return math.Inf(1)
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
