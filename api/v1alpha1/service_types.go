package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
)

// Service configures the Service that clients connect to. It has the name of the
// MCPServer.
//
// +kubebuilder:validation:XValidation:rule="!has(self.loadBalancerClass) || has(self.type) && self.type == 'LoadBalancer'",message="service.loadBalancerClass must be left out unless service.type is LoadBalancer",fieldPath=".loadBalancerClass",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="!has(self.externalTrafficPolicy) || has(self.type) && self.type != 'ClusterIP'",message="service.externalTrafficPolicy must be left out unless service.type is NodePort or LoadBalancer",fieldPath=".externalTrafficPolicy",reason=FieldValueForbidden
type Service struct {
	// type is the type of the Service: ClusterIP (default), NodePort or LoadBalancer.
	// With NodePort or LoadBalancer, and without auth, everyone who can reach the address
	// can use the server.
	// +optional
	// +kubebuilder:validation:Enum=ClusterIP;NodePort;LoadBalancer
	Type corev1.ServiceType `json:"type,omitempty"`

	// port is the port of the Service. Defaults to 80.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`

	// labels are set on the Service, for instance for a gateway that selects
	// Services by label. Keys in the mcp.slipway.dev and app.kubernetes.io domains are
	// reserved.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="!self.exists(k, k.startsWith('mcp.slipway.dev/') || k.startsWith('app.kubernetes.io/'))",message="service.labels must not have keys that start with mcp.slipway.dev/ or app.kubernetes.io/: they are reserved"
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && k.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="service.labels must have keys like team or example.com/team"
	Labels map[string]LabelValue `json:"labels,omitempty"`

	// annotations are set on the Service, for instance for a cloud's load
	// balancer. Keys in the mcp.slipway.dev domain are reserved.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="!self.exists(k, k.startsWith('mcp.slipway.dev/'))",message="service.annotations must not have keys that start with mcp.slipway.dev/: they are reserved"
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && k.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="service.annotations must have keys like team or example.com/team"
	Annotations map[string]AnnotationValue `json:"annotations,omitempty"`

	// appProtocol tells gateways and meshes which protocol the port speaks, such as
	// kgateway.dev/mcp or agentgateway.dev/mcp. If unset, they detect the protocol or
	// assume HTTP.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')",message="service.appProtocol must look like http or example.com/mcp"
	AppProtocol string `json:"appProtocol,omitempty"`

	// trafficDistribution says which pods a client's connections prefer:
	// PreferSameZone, PreferSameNode, or PreferClose, the older name of PreferSameZone.
	// If unset, connections go to all pods alike.
	// +optional
	// +kubebuilder:validation:Enum=PreferClose;PreferSameZone;PreferSameNode
	TrafficDistribution string `json:"trafficDistribution,omitempty"`

	// loadBalancerClass names the implementation of a Service of type LoadBalancer. It
	// cannot be changed while the type is LoadBalancer.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')",message="service.loadBalancerClass must look like internal or example.com/internal"
	LoadBalancerClass string `json:"loadBalancerClass,omitempty"`

	// externalTrafficPolicy says what a node does with connections from outside the
	// cluster, for types NodePort and LoadBalancer. Cluster (default): it passes them on
	// to any pod. Local: it passes them on to pods of the same node only, and keeps the
	// client's address.
	// +optional
	// +kubebuilder:validation:Enum=Cluster;Local
	ExternalTrafficPolicy corev1.ServiceExternalTrafficPolicy `json:"externalTrafficPolicy,omitempty"`

	// ipFamilyPolicy says whether the Service is single-stack or dual-stack:
	// SingleStack, PreferDualStack or RequireDualStack. If unset, Kubernetes makes it
	// SingleStack.
	// +optional
	// +kubebuilder:validation:Enum=SingleStack;PreferDualStack;RequireDualStack
	IPFamilyPolicy corev1.IPFamilyPolicy `json:"ipFamilyPolicy,omitempty"`
}

// AnnotationValue is the value of an annotation.
//
// +kubebuilder:validation:MaxLength=16384
type AnnotationValue string
