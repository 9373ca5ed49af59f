package workload

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

const (
	// keepsReplicaSets is how many old ReplicaSets are kept, for people who look at them.
	// A rollback to one has no effect, because the MCPServer says what runs.
	keepsReplicaSets = 2

	// progressDeadlineSeconds is what Kubernetes would choose. It is said here, so that
	// it is ours: who changes it finds it changed back.
	progressDeadlineSeconds = 600

	// surge is rounded up, so it is one pod for up to four replicas.
	surge = "25%"
)

// Deployment runs the server's pods. Its replicas are always set, because autoscalers
// scale the MCPServer and not the Deployment.
func Deployment(server *mcpv1alpha1.MCPServer, template *corev1ac.PodTemplateSpecApplyConfiguration, replicas int32) *appsv1ac.DeploymentApplyConfiguration {
	return appsv1ac.Deployment(server.Name, server.Namespace).
		WithLabels(labels(server)).
		WithOwnerReferences(owner(server)).
		WithSpec(appsv1ac.DeploymentSpec().
			WithReplicas(replicas).
			WithRevisionHistoryLimit(keepsReplicaSets).
			WithProgressDeadlineSeconds(progressDeadlineSeconds).
			WithStrategy(strategy(server)).
			WithSelector(labelSelector(server)).
			WithTemplate(template))
}

// strategy says how pods are replaced. By default a pod goes only when another is ready in its
// place.
func strategy(server *mcpv1alpha1.MCPServer) *appsv1ac.DeploymentStrategyApplyConfiguration {
	if server.Spec.Rollout.Strategy == mcpv1alpha1.RolloutRecreate {
		return appsv1ac.DeploymentStrategy().WithType(appsv1.RecreateDeploymentStrategyType)
	}
	return appsv1ac.DeploymentStrategy().
		WithType(appsv1.RollingUpdateDeploymentStrategyType).
		WithRollingUpdate(appsv1ac.RollingUpdateDeployment().
			WithMaxSurge(intstr.FromString(surge)).
			WithMaxUnavailable(intstr.FromInt32(0)))
}

// Replicas is how many pods there should be.
func Replicas(server *mcpv1alpha1.MCPServer) int32 {
	switch {
	case server.Spec.Suspend:
		return 0
	case server.Spec.Replicas == nil:
		return 1
	default:
		return *server.Spec.Replicas
	}
}
