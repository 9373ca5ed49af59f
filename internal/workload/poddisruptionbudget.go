package workload

import (
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	policyv1ac "k8s.io/client-go/applyconfigurations/policy/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// PodDisruptionBudget keeps the drain of nodes from taking more than one pod at a time.
// It is nil for a single pod, where it would only keep a node from being drained. Pods
// that are not ready may always go, because they serve no client.
func PodDisruptionBudget(server *mcpv1alpha1.MCPServer) *policyv1ac.PodDisruptionBudgetApplyConfiguration {
	if Replicas(server) <= 1 {
		return nil
	}
	return policyv1ac.PodDisruptionBudget(server.Name, server.Namespace).
		WithLabels(labels(server)).
		WithOwnerReferences(owner(server)).
		WithSpec(policyv1ac.PodDisruptionBudgetSpec().
			WithMaxUnavailable(intstr.FromInt32(1)).
			WithUnhealthyPodEvictionPolicy(policyv1.AlwaysAllow).
			WithSelector(labelSelector(server)))
}
