package workload

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// Service is what clients connect to. It names no application protocol and leaves it
// to a mesh to find out. A session lives in one pod, and pods do not forward requests to
// each other. So with more than one pod all connections of a client address lead to the
// same pod: most clients use several for one session.
func Service(server *mcpv1alpha1.MCPServer) *corev1ac.ServiceApplyConfiguration {
	service := corev1ac.Service(server.Name, server.Namespace).
		WithLabels(labels(server)).
		WithOwnerReferences(owner(server)).
		WithSpec(corev1ac.ServiceSpec().
			WithType(cmp.Or(server.Spec.Service.Type, corev1.ServiceTypeClusterIP)).
			WithSelector(selectorLabels(server)).
			WithPublishNotReadyAddresses(false).
			WithPorts(corev1ac.ServicePort().
				WithName(clientPortName).
				WithProtocol(corev1.ProtocolTCP).
				WithPort(servicePort(server)).
				WithTargetPort(intstr.FromString(clientPortName))))
	if Replicas(server) > 1 {
		service.Spec.WithSessionAffinity(corev1.ServiceAffinityClientIP)
	}
	for key, value := range server.Spec.Service.Annotations {
		service.WithAnnotations(map[string]string{key: string(value)})
	}
	return service
}

func servicePort(server *mcpv1alpha1.MCPServer) int32 {
	if port := server.Spec.Service.Port; port != nil {
		return *port
	}
	return defaultServicePort
}
