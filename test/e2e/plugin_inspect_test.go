//go:build e2e

package e2e

import (
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("kubectl mcp inspect", Label("sessions"), func() {
	It("serves the server and prints the link of an Inspector where there is no Node.js", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		server := start(ctx, stdioServer(ctx, namespace))
		var stdout, stderr lockedBuffer
		command := exec.CommandContext(ctx, pluginBinary(), "--namespace", namespace, "inspect", server.Name)
		command.Stdout, command.Stderr = &stdout, &stderr
		command.Env = append(slices.DeleteFunc(os.Environ(), func(variable string) bool { return strings.HasPrefix(variable, "PATH=") }), "PATH="+GinkgoT().TempDir())
		Expect(command.Start()).To(Succeed())
		ended := make(chan error, 1)
		go func() { ended <- command.Wait() }()
		DeferCleanup(func() { _ = command.Process.Kill() })

		Eventually(stdout.String).WithContext(ctx).WithTimeout(patience).Should(HaveSuffix("\n"), stderr.String)
		link, err := url.Parse(strings.TrimSpace(stdout.String()))
		Expect(err).NotTo(HaveOccurred())
		Expect(link.Host).To(Equal("localhost:6274"))
		token := link.Query().Get("autoConnect")
		Expect(token).NotTo(BeEmpty())
		// Two goroutines copy the two outputs of the program, in any order.
		Eventually(stderr.String).WithContext(ctx).WithTimeout(patience).Should(And(
			ContainSubstring("there is no node on your PATH"),
			ContainSubstring("MCP_INSPECTOR_API_TOKEN="+token+" npx -y @modelcontextprotocol/inspector@")))

		session, err := mcp.NewClient(&mcp.Implementation{Name: "inspector", Version: "1"}, nil).
			Connect(ctx, &mcp.StreamableClientTransport{Endpoint: link.Query().Get("serverUrl"), DisableStandaloneSSE: true}, nil)
		Expect(err).NotTo(HaveOccurred())
		result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "hello"}})
		Expect(err).NotTo(HaveOccurred())
		Expect(result.Content[0].(*mcp.TextContent).Text).To(Equal("hello"))
		Expect(session.Close()).To(Succeed())

		Expect(command.Process.Signal(os.Interrupt)).To(Succeed())
		Eventually(ended).WithContext(ctx).WithTimeout(patience).Should(Receive(BeNil()), "Ctrl+C ends it with exit code 0")
	})
})
