package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
)

// PodTemplate holds what can be set on the server's pods besides the fields of
// the spec. Containers, ports and volumes are not among it: those that a server
// needs have fields in the spec.
type PodTemplate struct {
	// metadata is merged into the metadata of the pods.
	// +optional
	Metadata *PodMetadata `json:"metadata,omitempty"`

	// nodeSelector restricts the pods to nodes with these labels.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && k.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="podTemplate.nodeSelector must have keys like team or example.com/team"
	NodeSelector map[string]LabelValue `json:"nodeSelector,omitempty"`

	// tolerations let the pods run on tainted nodes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// affinity says which nodes and neighbors the pods prefer or need.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// topologySpreadConstraints say how the pods are spread over zones and nodes.
	// A constraint without a labelSelector counts the pods of this server.
	// +optional
	// +listType=map
	// +listMapKey=topologyKey
	// +listMapKey=whenUnsatisfiable
	// +kubebuilder:validation:MaxItems=16
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`

	// priorityClassName is the PriorityClass of the pods. Defaults to the cluster's.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// runtimeClassName is the RuntimeClass of the pods, for instance a sandbox. Defaults
	// to the runtime of the node.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	RuntimeClassName string `json:"runtimeClassName,omitempty"`

	// schedulerName is the scheduler of the pods. Defaults to the cluster's.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SchedulerName string `json:"schedulerName,omitempty"`

	// securityContext is the security context of the pods. The manager merges your
	// fields over its defaults, and yours win. The defaults are non-root and the
	// runtime's seccomp profile.
	// +optional
	SecurityContext *corev1.PodSecurityContext `json:"securityContext,omitempty"`

	// automountServiceAccountToken gives the server's container, and no other, a token
	// for the Kubernetes API. Defaults to false, unlike in a pod.
	// +optional
	AutomountServiceAccountToken bool `json:"automountServiceAccountToken,omitempty"`

	// hostAliases are extra entries of the pods' hosts file.
	// +optional
	// +listType=map
	// +listMapKey=ip
	// +kubebuilder:validation:MaxItems=64
	HostAliases []corev1.HostAlias `json:"hostAliases,omitempty"`

	// dnsPolicy says where the pods resolve names. ClusterFirst (default): at the
	// cluster's DNS. Default: as the node does. None: only as dnsConfig says.
	// +optional
	// +kubebuilder:validation:Enum=ClusterFirst;Default;None
	DNSPolicy corev1.DNSPolicy `json:"dnsPolicy,omitempty"`

	// dnsConfig is merged into what dnsPolicy gives.
	// +optional
	DNSConfig *corev1.PodDNSConfig `json:"dnsConfig,omitempty"`

	// hostUsers says whether the pods share the user namespace of the node. When false,
	// each pod has a user namespace of its own, so that no user in it is a user of the
	// node. The cluster must support that. Defaults to true, as in a pod.
	// +optional
	HostUsers *bool `json:"hostUsers,omitempty"`
}

// PodMetadata is merged into the metadata of the server's pods.
type PodMetadata struct {
	// labels are set on the pods. Keys in the mcp.slipway.dev domain are reserved. For
	// other keys that the manager sets, the manager's value wins.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="!self.exists(k, k.startsWith('mcp.slipway.dev/'))",message="podTemplate.metadata.labels must not have keys that start with mcp.slipway.dev/: they are reserved"
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && k.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="podTemplate.metadata.labels must have keys like team or example.com/team"
	Labels map[string]LabelValue `json:"labels,omitempty"`

	// annotations are set on the pods. Keys in the mcp.slipway.dev domain are
	// reserved.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="!self.exists(k, k.startsWith('mcp.slipway.dev/'))",message="podTemplate.metadata.annotations must not have keys that start with mcp.slipway.dev/: they are reserved"
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && k.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="podTemplate.metadata.annotations must have keys like team or example.com/team"
	Annotations map[string]AnnotationValue `json:"annotations,omitempty"`
}

// LabelValue is the value of a label.
//
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:XValidation:rule="self.matches('^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$')",message="a label's value must be empty or start and end with a letter or digit, with letters, digits, '-', '_' and '.' between"
type LabelValue string
