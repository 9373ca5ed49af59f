package workload

import (
	"cmp"

	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// ServiceAccount is what the pods run as, without any permissions and without a token.
// It is nil when the user names one.
func ServiceAccount(server *mcpv1alpha1.MCPServer) *corev1ac.ServiceAccountApplyConfiguration {
	if server.Spec.ServiceAccountName != "" {
		return nil
	}
	return corev1ac.ServiceAccount(server.Name, server.Namespace).
		WithLabels(labels(server)).
		WithOwnerReferences(owner(server)).
		WithAutomountServiceAccountToken(false)
}

func serviceAccountName(server *mcpv1alpha1.MCPServer) string {
	return cmp.Or(server.Spec.ServiceAccountName, server.Name)
}
