package integration

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/test/hang"
)

// running is a manager in a process of its own.
type running struct {
	t       *testing.T
	command *exec.Cmd
	stderr  *buffer
	exited  chan struct{} // Closed when the process has ended.
	health  string
	metrics string
}

// startManager starts a manager as the ServiceAccount account. extra is added to
// its configuration.
func startManager(t *testing.T, account, extra string) *running {
	t.Helper()
	return startElected(t, account, "", extra)
}

// startElected is the same, and election is added to what says how leaders are elected.
func startElected(t *testing.T, account, election, extra string) *running {
	t.Helper()
	kubeconfig, err := shared.kubeconfig(t.Context(), systemNamespace, account)
	if err != nil {
		t.Fatal(err)
	}
	address := network.Address()
	health, metrics := address+":20765", address+":20766"
	config := fmt.Sprintf(`
apiVersion: config.slipway.dev/v1alpha1
kind: ManagerConfiguration
leaderElection: {namespace: %s%s}
health: {bindAddress: "%s"}
metrics: {bindAddress: "%s"}
adapter: {image: "registry.example/slipway/adapter:test"}
%s`, systemNamespace, election, health, metrics, extra)
	r := start(t, "--kubeconfig", kubeconfig, "--config", writeFile(t, config))
	r.health, r.metrics = "http://"+health, "https://"+metrics+"/metrics"
	return r
}

// start runs the manager's binary with these arguments and nothing in its
// environment that could lead it to another cluster.
func start(t *testing.T, args ...string) *running {
	t.Helper()
	r := &running{t: t, stderr: &buffer{}, exited: make(chan struct{})}
	r.command = exec.CommandContext(t.Context(), managerBinary, args...)
	r.command.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "SLIPWAY_MEMORY_LIMIT=" + os.Getenv("SLIPWAY_MEMORY_LIMIT")}
	r.command.Stderr = r.stderr
	if err := r.command.Start(); err != nil {
		t.Fatalf("start manager: %v", err)
	}
	go func() {
		_ = r.command.Wait() // The exit code is in ProcessState.
		close(r.exited)
	}()
	t.Cleanup(func() {
		<-r.exited // If not before, then by the end of the test's context.
		if t.Failed() {
			t.Logf("log of the manager, process %d:\n%s", r.command.Process.Pid, r.stderr)
		}
	})
	return r
}

// wait returns the exit code of a process that ends by itself.
func (r *running) wait() int {
	r.t.Helper()
	select {
	case <-r.exited:
		return r.command.ProcessState.ExitCode()
	case <-time.After(hang.Guard):
		r.t.Fatal("the manager still runs")
		return -1
	}
}

// stop ends the manager as the kubelet does, and requires that it goes quietly.
func (r *running) stop() {
	r.t.Helper()
	if err := r.command.Process.Signal(syscall.SIGTERM); err != nil {
		r.t.Fatalf("signal manager: %v", err)
	}
	if code := r.wait(); code != 0 {
		r.t.Errorf("exit code after SIGTERM: %d, want 0", code)
	}
}

// probe asks a health endpoint the way the kubelet does: for a second at most. It is for
// Eventually: on a busy machine not every answer comes in time.
func (r *running) probe(path string) (int, string, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
	defer cancel()
	return get(ctx, http.DefaultClient, r.health+path, "")
}

// answer is the code with which a health endpoint answers.
func (r *running) answer(path string) (int, error) {
	code, _, err := r.probe(path)
	return code, err
}

// ready reports why the manager is not ready, for Eventually.
func (r *running) ready() error {
	code, body, err := r.probe("/readyz")
	if err == nil && code != http.StatusOK {
		_, reason, _ := r.probe("/readyz/cache")
		err = fmt.Errorf("/readyz: %d %s %s", code, body, reason)
	}
	return err
}

// scrape gets the metrics with a token; the certificate is self-signed.
func (r *running) scrape(token string) (int, string, error) {
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true,
	}
	return get(r.t.Context(), &http.Client{Transport: transport}, r.metrics, token)
}

func get(ctx context.Context, client *http.Client, url, token string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }() // Only read from.
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, strings.TrimSpace(string(body)), err
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// buffer is written by the process while tests read it.
type buffer struct {
	mu    sync.Mutex
	bytes bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes.String()
}
