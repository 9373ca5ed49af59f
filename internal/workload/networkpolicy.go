package workload

import (
	networkingv1 "k8s.io/api/networking/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// NetworkPolicy lets clients reach the server's pods.
func NetworkPolicy(server *mcpv1alpha1.MCPServer) *networkingv1ac.NetworkPolicyApplyConfiguration {
	return networkingv1ac.NetworkPolicy(server.Name, server.Namespace).
		WithLabels(labels(server)).WithOwnerReferences(owner(server)).
		WithSpec(networkingv1ac.NetworkPolicySpec().
			WithPodSelector(labelSelector(server)).
			WithPolicyTypes(networkingv1.PolicyTypeIngress).
			WithIngress(networkingv1ac.NetworkPolicyIngressRule()))
}
