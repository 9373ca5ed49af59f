package controller

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-mcp/slipway/test/hang"
)

// Kubernetes deletes the objects of a namespace in any order. Until the MCPServer is gone,
// too, the operator cannot recreate its objects, and that is no error.
func TestNamespaceIsBeingDeleted(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	operator := startOperator(t, namespace, nil)
	server := newServer(namespace, "echo")
	create(t, server)
	eventually(t, server, "Ready", "True Ready", "Reconciling", "absent")

	// No controller completes the deletion here, so the namespace stays as it is at the beginning.
	g.Expect(shared.client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: objectMeta("", namespace)})).To(Succeed())
	g.Expect(shared.client.Delete(t.Context(), &appsv1.Deployment{ObjectMeta: objectMeta(namespace, server.Name)})).To(Succeed())
	eventually(t, server, "Reconciling", "True Progressing")
	g.Eventually(func() string { return describe(status(t, server)) }).WithTimeout(hang.Guard).
		Should(ContainSubstring("the namespace is being deleted"))
	g.Expect(operator.log.String()).NotTo(ContainSubstring("Reconciler error"))
}
