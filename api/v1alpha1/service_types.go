package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
)

// Service configures the Service that clients connect to. It has the name of the
// MCPServer.
type Service struct {
	// type is the type of the Service: ClusterIP, which is the default, NodePort
	// or LoadBalancer.
	// +optional
	// +kubebuilder:default=ClusterIP
	// +kubebuilder:validation:Enum=ClusterIP;NodePort;LoadBalancer
	Type corev1.ServiceType `json:"type,omitempty"`

	// port is the port of the Service; 80 when left out.
	// +optional
	// +kubebuilder:default=80
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`

	// annotations are set on the Service, for instance for a cloud's load
	// balancer. Keys in the mcp.slipway.dev domain are reserved.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="!self.exists(k, k.startsWith('mcp.slipway.dev/'))",message="service.annotations must not have keys that start with mcp.slipway.dev/: they are reserved"
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && k.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="service.annotations must have keys like team or example.com/team"
	Annotations map[string]AnnotationValue `json:"annotations,omitempty"`
}

// AnnotationValue is the value of an annotation.
//
// +kubebuilder:validation:MaxLength=16384
type AnnotationValue string
