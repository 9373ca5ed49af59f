//go:build e2e

package e2e

import (
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

var _ = Describe("kubectl mcp sessions", Label("sessions"), func() {
	It("shows who is connected to any pod, and ends one session and no other", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		server := stdioServer(ctx, namespace)
		server.Spec.Replicas = new(int32(2))
		start(ctx, server)
		Eventually(func() []string { return namesOfReady(ctx, server) }).WithContext(ctx).WithTimeout(patience).Should(HaveLen(2))
		Expect(kubectlMCP(ctx, namespace, "sessions", server.Name)).To(Equal(commandResult{0, "",
			"No client has a session with MCPServer " + server.Name + ". Clients of revision 2026-07-28 never have one.\n"}))

		open := func(name string) *mcp.ClientSession {
			GinkgoHelper()
			client := mcp.NewClient(&mcp.Implementation{Name: name, Version: "1.2"}, nil)
			session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: connectLocally(ctx, server), DisableStandaloneSSE: true}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(func() { _ = session.Close() })
			return session
		}
		first, second := open("first"), open("second")
		_, err := second.ListTools(ctx, nil)
		Expect(err).NotTo(HaveOccurred())

		shown := kubectlMCP(ctx, namespace, "sessions", server.Name)
		Expect(shown).To(HaveField("Code", 0), shown.ErrOut)
		Expect(shown.Out).To(And(
			HavePrefix("SESSION"), MatchRegexp(`(?m)^\S+/\d+ +first 1\.2 +2025-11-25 +\d+s +\d+s +1 +0$`), MatchRegexp(`(?m)^\S+/\d+ +second 1\.2 +2025-11-25 +\d+s +\d+s +2 +0$`)))
		Expect(shown.Out).NotTo(Or(ContainSubstring(first.ID()), ContainSubstring(second.ID())))

		var name string
		for line := range strings.Lines(shown.Out) {
			if strings.Contains(line, "first 1.2") {
				name = strings.Fields(line)[0]
			}
		}
		ended := kubectlMCP(ctx, namespace, "sessions", "end", server.Name, name)
		Expect(ended.Code).To(Equal(0), ended.ErrOut)
		Expect(ended.Out).To(MatchRegexp(`^session \S+/\d+ ended\n$`))
		Expect(first.Ping(ctx, nil)).To(MatchError(ContainSubstring("session not found")), "its client opens another one")
		Expect(second.Ping(ctx, nil)).To(Succeed())
		Expect(kubectlMCP(ctx, namespace, "sessions", "end", server.Name, name)).To(HaveField("Code", 4))
		Expect(kubectlMCP(ctx, namespace, "sessions", server.Name, "-o", "json").Out).To(And(ContainSubstring(`"client": "second"`), Not(ContainSubstring(`"client": "first"`))))
	})
})

// namesOfReady are the pods of a server that serve.
func namesOfReady(ctx SpecContext, server *mcpv1alpha1.MCPServer) (names []string) {
	for _, pod := range pods(ctx, server) {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == "Ready" && condition.Status == "True" {
				names = append(names, pod.Name)
			}
		}
	}
	return names
}
