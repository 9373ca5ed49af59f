package workload

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// Service is what clients connect to. Any pod takes the requests of any session, so the Service
// needs no session affinity, and one that a user has set is the user's.
func Service(server *mcpv1alpha1.MCPServer) *corev1ac.ServiceApplyConfiguration {
	given := &server.Spec.Service
	port := corev1ac.ServicePort().
		WithName(clientPortName).
		WithProtocol(corev1.ProtocolTCP).
		WithPort(servicePort(server)).
		WithTargetPort(intstr.FromString(clientPortName))
	if given.AppProtocol != "" {
		port.WithAppProtocol(given.AppProtocol)
	}
	service := corev1ac.Service(server.Name, server.Namespace).
		WithOwnerReferences(owner(server)).
		WithSpec(corev1ac.ServiceSpec().
			WithType(cmp.Or(given.Type, corev1.ServiceTypeClusterIP)).
			WithSelector(selectorLabels(server)).
			WithPublishNotReadyAddresses(false).
			WithPorts(port))
	if given.TrafficDistribution != "" {
		service.Spec.WithTrafficDistribution(given.TrafficDistribution)
	}
	if given.LoadBalancerClass != "" {
		service.Spec.WithLoadBalancerClass(given.LoadBalancerClass)
	}
	if given.ExternalTrafficPolicy != "" {
		service.Spec.WithExternalTrafficPolicy(given.ExternalTrafficPolicy)
	}
	if given.IPFamilyPolicy != "" {
		service.Spec.WithIPFamilyPolicy(given.IPFamilyPolicy)
	}
	for key, value := range given.Annotations {
		service.WithAnnotations(map[string]string{key: string(value)})
	}
	for key, value := range given.Labels {
		service.WithLabels(map[string]string{key: string(value)})
	}
	return service.WithLabels(labels(server))
}

func servicePort(server *mcpv1alpha1.MCPServer) int32 {
	if port := server.Spec.Service.Port; port != nil {
		return *port
	}
	return defaultServicePort
}
