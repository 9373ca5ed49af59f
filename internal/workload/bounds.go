package workload

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// Bounds are what a platform team allows servers to ask for. A zero value is no bound.
type Bounds struct {
	// Replicas is the most that spec.replicas may be.
	Replicas int32
	// SessionsPerPod is the most that spec.session.maxPerPod may be.
	SessionsPerPod int32
	// Resources are the most that the limits of the server's container may be. A container
	// without a limit of CPU, memory or ephemeral storage has as much as the node, so it exceeds
	// every bound of these.
	Resources corev1.ResourceList
}

// Exceeded says what the spec asks for and may not have, or is empty. Defaults count as if the spec
// had them.
func (b Bounds) Exceeded(server *mcpv1alpha1.MCPServer, defaults Defaults) string {
	const allowed = "%s is %d, and this cluster allows at most %d (servers.bounds.%s in the manager's configuration): lower it"
	if replicas := Replicas(server); b.Replicas > 0 && replicas > b.Replicas {
		return fmt.Sprintf(allowed, "spec.replicas", replicas, b.Replicas, "replicas") + ", or the maxReplicas of its autoscaler"
	}
	if sessions := server.Spec.Session.MaxPerPod; b.SessionsPerPod > 0 && sessions != nil && *sessions > b.SessionsPerPod {
		return fmt.Sprintf(allowed, "spec.session.maxPerPod", *sessions, b.SessionsPerPod, "sessionsPerPod")
	}
	filled, _ := defaults.fill(server)
	for _, name := range slices.Sorted(maps.Keys(b.Resources)) {
		most := b.Resources[name]
		limit, ok := filled.Spec.Resources.Limits[name]
		switch {
		case isUnlimited(name) && (!ok || limit.IsZero()):
			return fmt.Sprintf("spec.resources.limits.%s is not set, and this cluster allows at most %s (servers.bounds.resources in the manager's configuration): set it",
				name, most.String())
		case limit.Cmp(most) > 0:
			return fmt.Sprintf("spec.resources.limits.%s is %s, and this cluster allows at most %s (servers.bounds.resources in the manager's configuration): lower it",
				name, limit.String(), most.String())
		}
	}
	return ""
}

// isUnlimited says whether a container without a limit has as much of a resource as there is. It
// has nothing of others, such as GPUs.
func isUnlimited(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage
}
