//go:build e2e

package e2e

import (
	"os"
	"os/exec"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("kubectl mcp logs -f", Label("sessions"), func() {
	It("goes on with the pod that replaces another, and ends on Ctrl+C", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		server := start(ctx, stdioServer(ctx, namespace))
		var stdout, stderr lockedBuffer
		command := exec.CommandContext(ctx, pluginBinary(), "--namespace", namespace, "logs", server.Name, "-f")
		command.Stdout, command.Stderr = &stdout, &stderr
		Expect(command.Start()).To(Succeed())
		ended := make(chan error, 1)
		go func() { ended <- command.Wait() }()
		DeferCleanup(func() { _ = command.Process.Kill() })
		say := func(words string) {
			GinkgoHelper()
			Expect(kubectlMCP(ctx, namespace, "call", server.Name, "stderr", "text="+words, "n=1")).To(HaveField("Code", 0))
		}
		say("a line of the first pod")
		Eventually(stdout.String).WithContext(ctx).WithTimeout(patience).Should(ContainSubstring("a line of the first pod"))

		pod := onlyPod(ctx, server)
		Expect(cluster.Delete(ctx, pod)).To(Succeed())
		awaitReplacement(ctx, server, pod)
		say("a line of the second pod")
		second := onlyPod(ctx, server)
		Eventually(stdout.String).WithContext(ctx).WithTimeout(patience).
			Should(MatchRegexp(`(?m)^`+second.Name+` .*a line of the second pod$`), "with several pods, a line has the name of its own")

		Expect(command.Process.Signal(os.Interrupt)).To(Succeed())
		Eventually(ended).WithContext(ctx).WithTimeout(patience).Should(Receive(BeNil()), stderr.String())
	})
})
