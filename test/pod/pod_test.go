//go:build cluster

// Package pod proves on a real kubelet that an MCPServer becomes a pod which serves
// clients, and that its adapter and launcher work together as two containers.
package pod

import (
	"context"
	"encoding/base64"
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

const serverImage = "localhost/slipway/test-echo:pod"

// readyWithin is the promise: from apply to Ready and Verified, with the image there.
const readyWithin = 3 * time.Second

// installer is what make build-installer wrote.
var installer = os.Getenv("INSTALLER")

func TestPod(t *testing.T) {
	if installer == "" || os.Getenv("KUBECONFIG") == "" {
		t.Fatal("INSTALLER and KUBECONFIG must be set: run `make test-pod`")
	}
	loadServerImage(t)
	kubectl(t, "delete", "namespace", "slipway-pod-test", "--ignore-not-found", "--wait")
	kubectlAnywhere(t, "apply", "--server-side", "--force-conflicts", "-f", installer)
	kubectlAnywhere(t, "--namespace", "slipway-system", "rollout", "status", "deployment/slipway-manager", "--timeout=60s")
	t.Cleanup(func() { kubectl(t, "delete", "namespace", "slipway-pod-test", "--wait=false") })
	apply(t) // a first time, so that nothing of what is measured is the first of its kind on this node
	kubectl(t, "wait", "--for=condition=Ready", "mcpserver/echo", "--timeout=60s")
	kubectl(t, "delete", "mcpserver/echo", "--wait")
	kubectl(t, "wait", "--for=delete", "pod", "--selector=mcp.slipway.dev/server=echo", "--timeout=60s")
	start := time.Now()
	apply(t)
	kubectl(t, "wait", "--for=condition=Ready", "mcpserver/echo", "--timeout=60s")
	took := time.Since(start)
	t.Logf("from apply to Ready and Verified: %.2f s", took.Seconds())
	if took > readyWithin {
		t.Errorf("it took %s; the promise is %s", took, readyWithin)
	}
	if got := kubectl(t, "get", "mcpserver", "echo", "-o", `jsonpath={.status.conditions[?(@.type=="Verified")].status} {.status.counts.tools}`); got != "True 15" {
		t.Errorf("Verified and tools: %s", got)
	}

	service := "http://" + kubectl(t, "get", "service", "echo", "-o", "jsonpath={.spec.clusterIP}") + "/mcp"
	podIP := kubectl(t, "get", "pod", podName(t), "-o", "jsonpath={.status.podIP}")
	// A ready pod is behind its Service only when kube-proxy has heard of it.
	gomega.NewWithT(t).Eventually(func() error { return connectOnce(t.Context(), service) }).
		WithTimeout(20 * time.Second).Should(gomega.Succeed())

	t.Run("two clients have two processes", func(t *testing.T) { testIsolation(t, service) })
	t.Run("catalogue needs the key", func(t *testing.T) { testCatalogue(t, "http://"+podIP+":16271") })
	t.Run("crash is told and logged", func(t *testing.T) { testCrash(t, service) })
	t.Run("server's container is restarted", func(t *testing.T) { testServerRestart(t, service) })
	t.Run("a call outlives the pod's deletion", func(t *testing.T) { testDrain(t, service) })
}

// podName is the name of the server's only pod that is not going away.
func podName(t *testing.T) string {
	t.Helper()
	for line := range strings.SplitSeq(kubectl(t, "get", "pods", "--selector=mcp.slipway.dev/server=echo",
		"-o", `jsonpath={range .items[*]}{.metadata.name} {.metadata.deletionTimestamp}{"\n"}{end}`), "\n") {
		if name, deleted, _ := strings.Cut(line, " "); strings.TrimSpace(deleted) == "" && name != "" {
			return name
		}
	}
	t.Fatal("the server has no pod")
	return ""
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
	encoded := kubectl(t, "get", "secret", "echo-session-key", "-o", "jsonpath={.data.key}")
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		t.Fatal(err)
	}
	var report admin.Report
	response := get(string(key))
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
	gomega.NewWithT(t).Eventually(func() string { return kubectl(t, "logs", podName(t), "-c", "mcp-server") }).
		WithTimeout(10 * time.Second).Should(gomega.ContainSubstring("echo: told to exit"))
	connect(t, url)
}

// The launcher is killed from inside its container; sessions end, and new ones work.
func testServerRestart(t *testing.T, url string) {
	session := connect(t, url)
	call(t, session, "pid", nil)
	pod := podName(t)
	kubectl(t, "exec", pod, "-c", "mcp-server", "--", "/echo", "--kill-init")
	gomega.NewWithT(t).Eventually(func() string {
		return kubectl(t, "get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[0].restartCount}")
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
	pod := podName(t)
	kubectl(t, "delete", "pod", pod, "--wait=false")
	if err := <-answered; err != nil {
		t.Errorf("the call in flight: %v", err)
	}
	kubectl(t, "wait", "--for=delete", "pod/"+pod, "--timeout=30s")
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("the pod took %s to go", took)
	}
	// The Deployment has made another one, which serves new clients.
	kubectl(t, "wait", "--for=condition=Ready", "mcpserver/echo", "--timeout=60s")
	gomega.NewWithT(t).Eventually(func() error { return connectOnce(t.Context(), url) }).WithTimeout(20 * time.Second).Should(gomega.Succeed())
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
	manifest, err := os.ReadFile("server.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("SERVER_IMAGE", serverImage).Replace(string(manifest))
	command := exec.CommandContext(t.Context(), "kubectl", "apply", "-f", "-")
	command.Stdin = strings.NewReader(text)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("apply: %v: %s", err, out)
	}
}

// kubectl runs a command in the test's namespace.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return kubectlAnywhere(t, append([]string{"--namespace", "slipway-pod-test"}, args...)...)
}

func kubectlAnywhere(t *testing.T, args ...string) string {
	t.Helper()
	command := exec.CommandContext(context.WithoutCancel(t.Context()), "kubectl", args...)
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}
