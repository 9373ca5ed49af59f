package controller

import (
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/test/hang"
)

// Kubernetes deletes the pods of a namespace first, and everything else when they are gone. Until then the manager
// cannot recreate what is deleted, and that is no error.
func TestNamespaceIsBeingDeleted(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	operator, server, c, pods := crowdedServer(t, 2, 0)
	namespace := &corev1.Namespace{ObjectMeta: objectMeta("", server.Namespace)}
	g.Expect(shared.client.Delete(t.Context(), namespace)).To(Succeed())
	g.Eventually(func() string { return describe(status(t, server)) }).WithTimeout(hang.Guard).
		Should(ContainSubstring("Reconciling True Progressing: the namespace is being deleted"))

	// The pods keep what they need, and so does the manager, even if the user deletes the rest.
	g.Expect(shared.client.Get(t.Context(), client.ObjectKeyFromObject(server), server)).To(Succeed())
	g.Expect(server.DeletionTimestamp).To(BeNil())
	keys := &corev1.Secret{ObjectMeta: objectMeta(server.Namespace, server.Name+"-keys")}
	g.Expect(shared.client.Get(t.Context(), client.ObjectKeyFromObject(keys), keys)).To(Succeed())
	g.Expect(keys.DeletionTimestamp).To(BeNil())
	g.Expect(shared.client.Delete(t.Context(), &appsv1.Deployment{ObjectMeta: objectMeta(server.Namespace, server.Name)})).To(Succeed())
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Session.MaxPerPod = new(int32(7)) })
	g.Eventually(func() int64 { return status(t, server).ObservedGeneration }).WithTimeout(hang.Guard).Should(Equal(server.Generation))
	g.Expect(operator.log.String()).NotTo(ContainSubstring("Reconciler error"))
	for _, pod := range pods {
		g.Eventually(func() bool { return c.entry(pod.UID, pod.UID).Closing }).WithTimeout(hang.Guard).Should(BeTrue())
	}

	shared.kubelet.letGo(server.Namespace)
	g.Eventually(func() bool {
		return apierrors.IsNotFound(shared.client.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace))
	}).WithTimeout(hang.Guard).Should(BeTrue(), "something is left in the namespace")
}

// If the keys are gone, the manager cannot create others in such a namespace. It still tells the pods to end, by the keys
// that the pods have.
func TestNamespaceWithoutKeysIsBeingDeleted(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	_, server, c, pods := crowdedServer(t, 2, 0)
	deny(t, server.Namespace, admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"*"}, Resources: []string{"secrets"}},
		admissionv1.Validation{Expression: "false", Message: "no Secrets here"})
	g.Eventually(func() error {
		return shared.client.Create(t.Context(), &corev1.Secret{ObjectMeta: objectMeta(server.Namespace, "probe")}, client.DryRunAll)
	}).WithTimeout(hang.Guard).Should(MatchError(ContainSubstring("no Secrets here")))
	g.Expect(shared.client.Delete(t.Context(), &corev1.Secret{ObjectMeta: objectMeta(server.Namespace, server.Name+"-keys")})).To(Succeed())
	eventually(t, server, "Reconciling", "True Retrying")
	g.Expect(shared.client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: objectMeta("", server.Namespace)})).To(Succeed())
	for _, pod := range pods {
		g.Eventually(func() adapterapi.PeerPod { return c.entry(pod.UID, pod.UID) }).WithTimeout(hang.Guard).
			Should(And(HaveField("Terminating", true), HaveField("Closing", true)))
	}
}
