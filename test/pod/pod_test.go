//go:build cluster

// Package pod proves on a real kubelet that the adapter and the launcher work as
// two containers of one pod. It is kept until the controller makes such pods.
package pod

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/imagebuild"
	"github.com/slipway-mcp/slipway/internal/sidecar/admin"
)

const (
	serverImage = "localhost/slipway/test-echo:pod"
	key         = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
)

// sidecarImage is what make images called the adapter's image.
var sidecarImage = os.Getenv("SIDECAR_IMAGE")

func TestPod(t *testing.T) {
	if sidecarImage == "" || os.Getenv("KUBECONFIG") == "" {
		t.Fatal("SIDECAR_IMAGE and KUBECONFIG must be set: run `make test-pod`")
	}
	loadServerImage(t)
	kubectl(t, "delete", "namespace", "slipway-pod-test", "--ignore-not-found", "--wait")
	start := time.Now()
	apply(t)
	t.Cleanup(func() { kubectl(t, "delete", "namespace", "slipway-pod-test", "--wait=false") })
	kubectl(t, "wait", "--for=condition=Ready", "pod/echo", "--timeout=60s")
	t.Logf("from apply to ready: %.2f s", time.Since(start).Seconds())

	service := "http://" + kubectl(t, "get", "service", "echo", "-o", "jsonpath={.spec.clusterIP}") + "/mcp"
	podIP := kubectl(t, "get", "pod", "echo", "-o", "jsonpath={.status.podIP}")
	// A ready pod is behind its Service only when kube-proxy has heard of it.
	gomega.NewWithT(t).Eventually(func() error { return connectOnce(t.Context(), service) }).
		WithTimeout(20 * time.Second).Should(gomega.Succeed())

	t.Run("two clients have two processes", func(t *testing.T) { testIsolation(t, service) })
	t.Run("catalogue needs the key", func(t *testing.T) { testCatalogue(t, "http://"+podIP+":16271") })
	t.Run("crash is told and logged", func(t *testing.T) { testCrash(t, service) })
	t.Run("server's container is restarted", func(t *testing.T) { testServerRestart(t, service) })
	t.Run("a call outlives the pod's deletion", func(t *testing.T) { testDrain(t, service) })
}

func connect(t *testing.T, url string) *mcp.ClientSession {
	t.Helper()
	session, err := tryConnect(t.Context(), url)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { _ = session.Close() }) // it may be gone, with its pod
	return session
}

func tryConnect(ctx context.Context, url string) (*mcp.ClientSession, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "pod-test", Version: "1"}, nil)
	return client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url, DisableStandaloneSSE: true}, nil)
}

// connectOnce opens a session and closes it.
func connectOnce(ctx context.Context, url string) error {
	session, err := tryConnect(ctx, url)
	if err == nil {
		_ = session.Close() // it was opened, which is what matters
	}
	return err
}

func callTool(ctx context.Context, session *mcp.ClientSession, name string, arguments map[string]any) (string, error) {
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: arguments})
	if err != nil {
		return "", err
	}
	return result.Content[0].(*mcp.TextContent).Text, nil
}

func call(t *testing.T, session *mcp.ClientSession, name string, arguments map[string]any) string {
	t.Helper()
	text, err := callTool(t.Context(), session, name, arguments)
	if err != nil {
		t.Fatalf("call %s: %v", name, err)
	}
	return text
}

func testIsolation(t *testing.T, url string) {
	one, two := connect(t, url), connect(t, url)
	if got := call(t, one, "echo", map[string]any{"text": "through the Service"}); got != "through the Service" {
		t.Errorf("echo: %q", got)
	}
	call(t, one, "count", nil)
	if got := call(t, one, "count", nil); got != "2" {
		t.Errorf("first client counts %s, want 2", got)
	}
	if got := call(t, two, "count", nil); got != "1" {
		t.Errorf("second client counts %s, want 1", got)
	}
	if call(t, one, "pid", nil) == call(t, two, "pid", nil) {
		t.Error("both clients have one process")
	}
}

func testCatalogue(t *testing.T, url string) {
	get := func(token string) *http.Response {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+admin.PathCatalog, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = response.Body.Close() })
		return response
	}
	if got := get(""); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("without the key: %s", got.Status)
	}
	var report admin.Report
	response := get(key)
	if err := json.NewDecoder(response.Body).Decode(&report); err != nil || !report.Ready || !strings.Contains(string(report.Catalog), `"name":"burst"`) {
		t.Errorf("with the key: %s, %v, %v", response.Status, report, err)
	}
}

func testCrash(t *testing.T, url string) {
	session := connect(t, url)
	_, err := callTool(t.Context(), session, "exit", map[string]any{"n": 3})
	if err == nil || !strings.Contains(err.Error(), "exit code 3") || !strings.Contains(err.Error(), "told to exit") {
		t.Errorf("the client was told %v", err)
	}
	gomega.NewWithT(t).Eventually(func() string { return kubectl(t, "logs", "echo", "-c", "mcp-server") }).
		WithTimeout(10 * time.Second).Should(gomega.ContainSubstring("echo: told to exit"))
	connect(t, url)
}

// The launcher is killed from inside its container; sessions end, and new ones work.
func testServerRestart(t *testing.T, url string) {
	session := connect(t, url)
	call(t, session, "pid", nil)
	kubectl(t, "exec", "echo", "-c", "mcp-server", "--", "/echo", "--kill-init")
	gomega.NewWithT(t).Eventually(func() string {
		return kubectl(t, "get", "pod", "echo", "-o", "jsonpath={.status.containerStatuses[0].restartCount}")
	}).WithTimeout(30 * time.Second).Should(gomega.Equal("1"))
	if _, err := callTool(t.Context(), session, "pid", nil); err == nil {
		t.Error("a session survived its process")
	}
	gomega.NewWithT(t).Eventually(func() error { return connectOnce(t.Context(), url) }).
		WithTimeout(30 * time.Second).Should(gomega.Succeed())
}

func testDrain(t *testing.T, url string) {
	session := connect(t, url)
	call(t, session, "pid", nil)
	answered := make(chan error, 1)
	go func() {
		text, err := callTool(t.Context(), session, "sleep", map[string]any{"ms": 5000})
		if err == nil && text != "slept" {
			err = fmt.Errorf("got %q", text)
		}
		answered <- err
	}()
	start := time.Now()
	kubectl(t, "delete", "pod", "echo", "--wait=false")
	gomega.NewWithT(t).Eventually(func() error { return connectOnce(t.Context(), url) }).
		WithTimeout(4 * time.Second).ShouldNot(gomega.Succeed()) // no new sessions
	if err := <-answered; err != nil {
		t.Errorf("the call in flight: %v", err)
	}
	kubectl(t, "wait", "--for=delete", "pod/echo", "--timeout=30s")
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("the pod took %s to go", took)
	}
}

// loadServerImage builds an image with nothing but the echo server and loads it.
func loadServerImage(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "echo"), "github.com/slipway-mcp/slipway/test/servers/echo")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build echo server: %v: %s", err, out)
	}
	image, err := imagebuild.Image(imagebuild.Spec{
		Platform:   v1.Platform{OS: "linux", Architecture: runtime.GOARCH},
		Files:      []imagebuild.File{{Path: "/echo", Source: filepath.Join(dir, "echo"), Mode: 0o755}},
		Entrypoint: []string{"/echo"},
	})
	if err != nil {
		t.Fatalf("make image: %v", err)
	}
	archive := filepath.Join(dir, "echo.tar")
	if err := imagebuild.WriteTar(archive, serverImage, image); err != nil {
		t.Fatalf("write image: %v", err)
	}
	load := exec.CommandContext(t.Context(), "go", "run", "./test/cluster", "load", archive)
	load.Dir = filepath.Join("..", "..")
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("load image: %v: %s", err, out)
	}
}

func apply(t *testing.T) {
	t.Helper()
	manifest, err := os.ReadFile("pod.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("SIDECAR_IMAGE", sidecarImage, "SERVER_IMAGE", serverImage).Replace(string(manifest))
	command := exec.CommandContext(t.Context(), "kubectl", "apply", "-f", "-")
	command.Stdin = strings.NewReader(text)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("apply: %v: %s", err, out)
	}
}

func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	command := exec.CommandContext(context.WithoutCancel(t.Context()), "kubectl", append([]string{"--namespace", "slipway-pod-test"}, args...)...)
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}
