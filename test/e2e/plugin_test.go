//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// pluginBinary is kubectl mcp, built once.
var pluginBinary = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "slipway-e2e")
	Expect(err).NotTo(HaveOccurred())
	path := filepath.Join(dir, "kubectl-mcp")
	run(context.Background(), "go", "build", "-o", path, "./cmd/kubectl-mcp")
	return path
})

// commandResult is what a command did.
type commandResult struct {
	Code        int
	Out, ErrOut string
}

// kubectlMCP does what a user would type.
func kubectlMCP(ctx context.Context, namespace string, args ...string) commandResult {
	GinkgoHelper()
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(ctx, pluginBinary(), append([]string{"--namespace", namespace}, args...)...)
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		Expect(err).NotTo(HaveOccurred())
	}
	return commandResult{command.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

var _ = Describe("kubectl mcp", Label("sessions"), func() {
	It("calls tools with typed arguments, and says by its exit code what failed", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		server := start(ctx, stdioServer(ctx, namespace))
		Expect(kubectlMCP(ctx, namespace, "call", server.Name, "echo", "text=hello")).To(Equal(commandResult{0, "hello\n", ""}))
		Expect(kubectlMCP(ctx, namespace, "call", server.Name, "big", "n=3", "text=almost")).To(Equal(commandResult{0, "xxx\n", "0: almost\n"}), "progress is told")
		Expect(kubectlMCP(ctx, namespace, "call", server.Name, "echo", "text=\x1b[2J")).To(Equal(commandResult{0, "\x1b[2J\n", ""}), "a pipe gets what the tool returned")
		Expect(kubectlMCP(ctx, namespace, "call", server.Name, "echo", "text=x", "-o", "json").Out).To(ContainSubstring(`"text": "x"`))
		Expect(kubectlMCP(ctx, namespace, "call", server.Name, "absent")).To(HaveField("Code", 5))
		Expect(kubectlMCP(ctx, namespace, "call", server.Name, "echo", "text=5")).To(HaveField("Code", 5), "a number is no text for this server, whose schema does not say")
		Expect(kubectlMCP(ctx, namespace, "call", server.Name, "exit")).To(HaveField("Code", 5))
		Expect(kubectlMCP(ctx, namespace, "call", "absent", "echo")).To(HaveField("Code", 4))

		change(ctx, server, func(spec *mcpv1alpha1.MCPServerSpec) { spec.Suspend = true })
		Eventually(func() commandResult { return kubectlMCP(ctx, namespace, "call", server.Name, "echo", "text=hello") }).WithContext(ctx).WithTimeout(takesToEnd).
			Should(And(HaveField("Code", 4), HaveField("ErrOut", ContainSubstring("the server is stopped: MCPServer "+server.Name))))
		Expect(kubectlMCP(ctx, namespace, "tools", server.Name, "-o", "name").Out).To(ContainSubstring(server.Name+"/echo\n"), "its tools are still there")
	})

	It("reads resources and gets prompts, and lists them", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		server := start(ctx, stdioServer(ctx, namespace, "/everything-server"))
		Expect(kubectlMCP(ctx, namespace, "read", server.Name, "-o", "name").Out).To(ContainSubstring("test://static-text\n"))
		Expect(kubectlMCP(ctx, namespace, "read", server.Name, "test://static-text")).To(Equal(commandResult{0, "This is the content of the static text resource.\n", ""}))
		Expect(kubectlMCP(ctx, namespace, "read", server.Name, "test://absent")).To(HaveField("Code", 5))
		Expect(kubectlMCP(ctx, namespace, "prompt", server.Name).Out).To(MatchRegexp(`(?m)^test_prompt_with_arguments +arg1= arg2= `))
		Expect(kubectlMCP(ctx, namespace, "prompt", server.Name, "test_prompt_with_arguments", "arg1=one", "arg2=two")).
			To(And(HaveField("Code", 0), HaveField("Out", And(HavePrefix("user: "), ContainSubstring("one"), ContainSubstring("two")))))
		Expect(kubectlMCP(ctx, namespace, "prompt", server.Name, "absent")).To(HaveField("Code", 5))
	})

	It("says what does not work and what to do, and shows what the server wrote", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		server := start(ctx, stdioServer(ctx, namespace))
		broken := stdioServer(ctx, namespace, "/hostile", "exit")
		broken.Name = "broken"
		Expect(cluster.Create(ctx, broken)).To(Succeed())
		awaitCondition(ctx, broken, mcpv1alpha1.ConditionStalled, metav1.ConditionTrue, mcpv1alpha1.ReasonServerExits)
		found := kubectlMCP(ctx, namespace, "doctor", "--deep")
		Expect(found.Code).To(Equal(4), found.Out)
		Expect(found.Out).To(And(
			ContainSubstring("the manager is ready"), ContainSubstring("your rights: you may use every command"),
			ContainSubstring("fail  "+namespace+"/broken: ServerExits: "), ContainSubstring("fix: Resolve the error in its output"),
			ContainSubstring("ok    "+namespace+"/"+server.Name+": a session was opened, and lists 18 tools")))

		Expect(kubectlMCP(ctx, namespace, "call", server.Name, "stderr", "text=a line of the server", "n=1")).To(HaveField("Code", 0))
		Eventually(func() string { return kubectlMCP(ctx, namespace, "logs", server.Name).Out }).WithContext(ctx).WithTimeout(patience).Should(ContainSubstring("a line of the server"))
		Expect(kubectlMCP(ctx, namespace, "logs", server.Name, "--session", "999999").Out).To(BeEmpty())
		Expect(kubectlMCP(ctx, namespace, "logs", server.Name, "--adapter", "--tail", "1").Out).To(ContainSubstring("{"))
	})

	It("connects clients of this machine, also after the pod was replaced", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		server := start(ctx, stdioServer(ctx, namespace))
		client := mcp.NewClient(&mcp.Implementation{Name: "desktop", Version: "1"}, nil)
		byProcess, err := client.Connect(ctx, &mcp.CommandTransport{
			Command: exec.CommandContext(ctx, pluginBinary(), "--namespace", namespace, "connect", server.Name, "--stdio"),
		}, nil)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { _ = byProcess.Close() })
		url := connectLocally(ctx, server)
		open := func() *mcp.ClientSession {
			GinkgoHelper()
			session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url, DisableStandaloneSSE: true}, nil)
			Expect(err).NotTo(HaveOccurred())
			return session
		}
		echo := func(session *mcp.ClientSession) string {
			GinkgoHelper()
			result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "hello"}})
			Expect(err).NotTo(HaveOccurred())
			return result.Content[0].(*mcp.TextContent).Text
		}
		Expect(echo(byProcess)).To(Equal("hello"))
		Expect(echo(open())).To(Equal("hello"))

		pod := onlyPod(ctx, server)
		Expect(cluster.Delete(ctx, pod)).To(Succeed())
		awaitReplacement(ctx, server, pod)
		Expect(echo(byProcess)).To(Equal("hello"), "a client that cannot open another session does not notice")
		Expect(echo(open())).To(Equal("hello"), "the URL stays")
	})
})

// connectLocally serves a server at a port of this machine, and returns its URL.
func connectLocally(ctx context.Context, server *mcpv1alpha1.MCPServer) string {
	GinkgoHelper()
	var stderr lockedBuffer
	command := exec.CommandContext(ctx, pluginBinary(), "--namespace", server.Namespace, "connect", server.Name, "--port", "0")
	command.Stderr = &stderr
	Expect(command.Start()).To(Succeed())
	DeferCleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	var url string
	Eventually(func() string {
		_, rest, _ := strings.Cut(stderr.String(), " at ")
		url, _, _ = strings.Cut(rest, " until")
		return url
	}).WithContext(ctx).WithTimeout(patience).Should(HavePrefix("http://127.0.0.1:"))
	return url
}

// lockedBuffer can be read while a process writes to it.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}
