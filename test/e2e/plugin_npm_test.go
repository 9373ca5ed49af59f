//go:build e2e

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/test/conformance"
	"github.com/slipway-mcp/slipway/test/npm"
)

// desktopClient starts a server by its command line, as desktop clients do, and prints what one of its
// tools answers.
const desktopClient = `
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
const [command, ...args] = process.argv.slice(2);
const client = new Client({ name: "desktop", version: "1" });
await client.connect(new StdioClientTransport({ command, args, env: process.env }));
const result = await client.callTool({ name: "echo", arguments: { message: "from a desktop" } });
console.log(result.content[0].text);
await client.close();
`

var _ = Describe("A server from npm", Label("firstuse"), func() {
	It("answers the Inspector and a desktop client through kubectl mcp connect", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		server := start(ctx, newServer(namespace, "everything", images.node(ctx), []string{nodeProgram, everythingScript, "stdio"}))
		suite, err := conformance.Install(ctx, filepath.Join("..", "conformance"))
		Expect(err).NotTo(HaveOccurred())

		By("calling a tool with the Inspector, at the URL of connect")
		inspector, err := npm.Install(ctx, filepath.Join("..", "conformance", "inspector"))
		Expect(err).NotTo(HaveOccurred())
		url := connectLocally(ctx, server)
		answer := run(ctx, suite.Node, filepath.Join(inspector, ".bin", "mcp-inspector"), "--cli",
			url, "--transport", "http", "--method", "tools/call", "--tool-name", "echo", "--tool-arg", "message=from the Inspector")
		Expect(answer).To(ContainSubstring("from the Inspector"))

		By("calling a tool with the TypeScript SDK, which starts connect --stdio")
		clients, err := npm.Install(ctx, filepath.Join("..", "eras"))
		Expect(err).NotTo(HaveOccurred())
		script := filepath.Join(filepath.Dir(clients), "desktop.mjs") // beside the packages that it imports
		Expect(os.WriteFile(script, []byte(desktopClient), 0o644)).To(Succeed())
		Expect(runDesktop(ctx, suite.Node, script, pluginBinary(), "connect", server.Name, "--stdio", "--namespace", namespace)).To(ContainSubstring("from a desktop"))

		By("running the conformance suite with kubectl mcp, which has npx download it")
		command := exec.CommandContext(ctx, pluginBinary(), "conformance", server.Name, "--namespace", namespace)
		command.Env = append(os.Environ(), "PATH="+filepath.Dir(suite.Node)+":"+os.Getenv("PATH"))
		output, err := command.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(output))
		Expect(string(output)).To(ContainSubstring("server-initialize"))
	})
})

// runDesktop runs the desktop client and returns what it prints.
func runDesktop(ctx context.Context, node string, args ...string) string {
	GinkgoHelper()
	output, err := exec.CommandContext(ctx, node, args...).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(output))
	return string(output)
}
