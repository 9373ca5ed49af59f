//go:build e2e

package e2e

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/promise"
)

var _ = Describe("A broken server", Label("disruptive"), func() {
	type spec = mcpv1alpha1.MCPServerSpec
	missing := func(s *spec) { s.Image = gate.registry + "/nobody/has:this" }

	DescribeTable("is named with its cause in the promised time, and recovers when it is mended",
		func(ctx SpecContext, breakIt func(*spec), reason, words string) {
			server := stdioServer(ctx, newNamespace(ctx))
			whole := server.Spec.DeepCopy()
			breakIt(&server.Spec)
			begin := time.Now()
			Expect(cluster.Create(ctx, server)).To(Succeed())
			awaitStatus(ctx, server, 2*patience, HaveField("Status.Conditions", ContainElement(And(
				HaveField("Type", mcpv1alpha1.ConditionReady), HaveField("Status", metav1.ConditionFalse),
				HaveField("Reason", reason), HaveField("Message", ContainSubstring(words))))))
			took := time.Since(begin)
			AddReportEntry("from create to the cause", took.Round(time.Millisecond).String())
			Expect(took).To(BeNumerically("<=", promise.Broken))

			change(ctx, server, func(s *spec) { *s = *whole })
			awaitReady(ctx, server)
			Expect(tryOnce(ctx, server)).To(Succeed())
		},
		Entry("wrong image", missing, mcpv1alpha1.ReasonImagePullFailed, "nobody/has:this"),
		Entry("wrong image, without a command", func(s *spec) { missing(s); s.Command = nil }, mcpv1alpha1.ReasonImageUnresolved, "no such image"),
		Entry("wrong command", func(s *spec) { s.Command = []string{"/no/such/program"} }, mcpv1alpha1.ReasonServerExits, "/no/such/program"),
		Entry("exits at once", func(s *spec) { s.Command = []string{"/hostile", "exit"} }, mcpv1alpha1.ReasonServerExits, "I will not serve"),
		Entry("hangs in initialize", func(s *spec) {
			s.Command = []string{"/hostile", "silent"}
			s.Session.StartTimeout = &metav1.Duration{Duration: 2 * time.Second} // until then it is starting
		}, mcpv1alpha1.ReasonServerSilent, "has not answered"),
		Entry("prints junk on standard output", func(s *spec) { s.Command = []string{"/hostile", "junk"} }, mcpv1alpha1.ReasonServerSilent, "Have a nice day"),
	)

	It("that was Ready is not Ready any more in the promised time", func(ctx SpecContext) {
		server := stdioServer(ctx, newNamespace(ctx), "/echo", "--until", "/tmp/broken")
		start(ctx, server)
		pod := onlyPod(ctx, server)
		begin := time.Now()
		kubectl(ctx, server.Namespace, "exec", pod.Name, "--container="+serverContainer, "--", "/echo", "--touch", "/tmp/broken")
		awaitStatus(ctx, server, 2*patience, HaveField("Status.Conditions", ContainElement(And(
			HaveField("Type", mcpv1alpha1.ConditionReady), HaveField("Status", metav1.ConditionFalse),
			HaveField("Reason", mcpv1alpha1.ReasonServerSilent), HaveField("Message", ContainSubstring("has not answered"))))))
		took := time.Since(begin)
		AddReportEntry("from the break to the cause", took.Round(time.Millisecond).String())
		Expect(took).To(BeNumerically("<=", promise.Broken))
		Expect(cluster.Delete(ctx, pod)).To(Succeed()) // and with it the file
		awaitReady(ctx, server)
		Expect(tryOnce(ctx, server)).To(Succeed())
	})
})
