package controller

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/config"
	"github.com/slipway-mcp/slipway/test/hang"
)

func memory(limit string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(limit)}}
}

// Pods get the defaults of the manager's configuration, and the status says which. Another default
// restarts nothing by itself.
func TestDefaultsOfTheConfiguration(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	with := func(limit string) func(*operatorOptions) {
		return func(o *operatorOptions) {
			o.servers.Defaults.Resources = memory(limit)
			o.servers.Defaults.Adapter.Limits.CallsPerSession = new(int32(64))
		}
	}
	first := startOperator(t, namespace, with("512Mi"))
	bare, explicit := newServer(namespace, "bare"), newServer(namespace, "explicit")
	explicit.Spec.Resources = memory("100Mi")
	explicit.Spec.Adapter.Limits = &mcpv1alpha1.AdapterLimits{CallsPerSession: new(int32(8))}
	create(t, bare, explicit)
	eventually(t, bare, "Ready", "True Ready")
	eventually(t, explicit, "Ready", "True Ready")
	limitOf := func(name string) string {
		deployment := &appsv1.Deployment{}
		g.Expect(shared.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, deployment)).To(Succeed())
		return deployment.Spec.Template.Spec.Containers[0].Resources.Limits.Memory().String()
	}
	g.Expect(limitOf("bare")).To(Equal("512Mi"))
	g.Expect(limitOf("explicit")).To(Equal("100Mi"))
	g.Expect(status(t, bare).Template.Defaults).To(Equal([]string{"spec.resources", "spec.adapter.limits.callsPerSession"}))
	g.Expect(status(t, explicit).Template.Defaults).To(BeEmpty())

	first.stop()
	startOperator(t, namespace, with("300Mi"))
	g.Eventually(func() bool { return status(t, bare).Template.Outdated }).WithTimeout(hang.Guard).Should(BeTrue())
	g.Expect(limitOf("bare")).To(Equal("512Mi"))
	g.Expect(status(t, explicit).Template.Outdated).To(BeFalse())
	change(t, bare, func(s *mcpv1alpha1.MCPServer) { s.Spec.WorkingDir = "/" })
	g.Eventually(limitOf).WithArguments("bare").WithTimeout(hang.Guard).Should(Equal("300Mi"), "the next change brings the default")
}

// A server that asks for more than the manager's configuration allows is not accepted. What runs goes on.
func TestBoundsOfTheConfiguration(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	startOperator(t, namespace, func(o *operatorOptions) { o.servers.Bounds = config.Bounds{Replicas: 1, SessionsPerPod: 20} })
	server := newServer(namespace, "echo")
	create(t, server)
	eventually(t, server, "Accepted", "True Accepted", "Ready", "True Ready")
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Replicas = new(int32(2)) })
	eventually(t, server, "Accepted", "False BoundExceeded", "Stalled", "True BoundExceeded", "Ready", "True Ready")
	g.Expect(meta.FindStatusCondition(status(t, server).Conditions, mcpv1alpha1.ConditionAccepted).Message).To(ContainSubstring("servers.bounds.replicas"))
	g.Expect(podNames(t, namespace)).To(HaveLen(1))
	change(t, server, func(s *mcpv1alpha1.MCPServer) {
		s.Spec.Session.MaxPerPod, s.Spec.Replicas = new(int32(999)), new(int32(0))
	})
	g.Eventually(podNames).WithArguments(t, namespace).WithTimeout(hang.Guard).Should(BeEmpty(), "it can be stopped")
	eventually(t, server, "Accepted", "False BoundExceeded")
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Session.MaxPerPod = nil })
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Replicas = new(int32(1)) })
	eventually(t, server, "Accepted", "True Accepted", "Ready", "True Ready")
}
