package controller

import (
	"testing"

	. "github.com/onsi/gomega"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/test/hang"
)

// A server that has no sessions is ready and verified, whether the spec says so or not.
// Of a server that speaks both eras, the spec decides by which it is looked at, and a
// change of that reaches the pods.
func TestEraOfTheSpec(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	startOperator(t, namespace, nil)
	only, both, unknown := newServer(namespace, "only"), newServer(namespace, "both"), newServer(namespace, "unknown")
	only.Spec.Command, both.Spec.Command, unknown.Spec.Command = []string{eraFilter, "modern", bothServer}, []string{bothServer}, []string{eraFilter, "modern", bothServer}
	create(t, unknown)
	for _, server := range []*mcpv1alpha1.MCPServer{only, both} {
		server.Spec.Transport.Sessions = mcpv1alpha1.ServerSessionsStateless
		create(t, server)
	}
	for _, server := range []*mcpv1alpha1.MCPServer{only, both} {
		eventually(t, server, "Ready", "True Ready", "Verified", "True Verified")
		g.Expect(status(t, server).ServerInfo.ProtocolVersion).To(Equal("2026-07-28"))
		g.Expect(status(t, server).ProtocolVersions).To(HaveExactElements("2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"))
		g.Expect(status(t, server).Instances[0].Verification).To(Equal(mcpv1alpha1.InstanceVerified))
	}

	eventually(t, unknown, "Ready", "True Ready", "Verified", "True Verified")
	g.Expect(status(t, unknown).ProtocolVersions).To(HaveLen(5))

	before := status(t, both).Instances[0].Pod
	change(t, both, func(s *mcpv1alpha1.MCPServer) { s.Spec.Transport.Sessions = mcpv1alpha1.ServerSessionsStateful })
	g.Eventually(func() string { return status(t, both).ServerInfo.ProtocolVersion }).WithTimeout(hang.Guard).Should(Equal("2025-11-25"))
	eventually(t, both, "Ready", "True Ready", "Verified", "True Verified", "Reconciling", "absent")
	// A pod that drains is still told of.
	g.Eventually(func() []mcpv1alpha1.Instance { return status(t, both).Instances }).WithTimeout(hang.Guard).
		Should(HaveExactElements(HaveField("Pod", Not(Equal(before)))))
	g.Expect(status(t, both).ProtocolVersions).To(ContainElement("2025-11-25"))
}
