package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MCPServerStatus says what is really there. Nothing in it changes while nothing
// changes in the cluster.
type MCPServerStatus struct {
	// observedGeneration is the metadata.generation that this status describes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are the states of the server. Ready: clients can use it now; wait for
	// this one and alert on it. Available: at least one pod is ready. Accepted: the
	// manager can act on the spec. Verified: the last MCP exchange with at least one
	// pod worked. Reconciling is present while the manager works. Stalled is present
	// while you must act, and its message says how.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// address is where clients in the cluster connect.
	// +optional
	Address *Address `json:"address,omitempty"`

	// addresses are all addresses of the server, each with a name that says which
	// clients it is for. The list includes that of address, under the name cluster.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Addresses []NamedAddress `json:"addresses,omitempty"`

	// access is what the adapters enforce; absent for a server without auth, access and audit.
	// +optional
	Access *AccessStatus `json:"access,omitempty"`

	// serverInfo is what the server says about itself.
	// +optional
	ServerInfo *ServerInfo `json:"serverInfo,omitempty"`

	// protocolVersions are the protocol revisions that clients can use at the
	// server's address, newest first. They include those that the adapter translates.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=32
	ProtocolVersions []string `json:"protocolVersions,omitempty"`

	// catalog is a summary of what the server offers. The ConfigMap that it names has
	// everything, with schemas.
	// +optional
	Catalog *Catalog `json:"catalog,omitempty"`

	// instances are the pods of the server, those with a problem first, and 16 at most;
	// replicas has the true number.
	// +optional
	// +listType=map
	// +listMapKey=pod
	// +kubebuilder:validation:MaxItems=16
	Instances []Instance `json:"instances,omitempty"`

	// sessions is the number of open sessions, roughly: it is refreshed at most once a
	// minute, and only if it has changed by a tenth, or from or to zero or the limit. A pod
	// that stops answering the manager counts with the sessions that it last reported; one
	// that has not answered since the manager started counts with none. The metrics have
	// the exact number.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Sessions *int32 `json:"sessions,omitempty"`

	// draining are the pods that were deleted and wait for their sessions to end; absent
	// while there are none. replicas and readyReplicas do not count them, and sessions does.
	// +optional
	Draining *Draining `json:"draining,omitempty"`

	// replicas is the number of pods.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas,omitempty"`

	// readyReplicas is the number of pods that are ready.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`

	// selector selects the server's pods. Autoscalers read it.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Selector string `json:"selector,omitempty"`

	// image is what the image reference was resolved to.
	// +optional
	Image *ResolvedImage `json:"image,omitempty"`

	// template says what the pods are made from.
	// +optional
	Template *TemplateStatus `json:"template,omitempty"`
}

// Address is where clients connect.
type Address struct {
	// url is the URL of the server inside the cluster.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url,omitempty"`
}

// NamedAddress is an address of the server and its name.
type NamedAddress struct {
	// name says which clients the address is for. cluster: those in the cluster.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`

	// url is where these clients connect.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url,omitempty"`
}

// AddressCluster is the name of the address for clients in the cluster.
const AddressCluster = "cluster"

// Draining counts the pods that drain.
type Draining struct {
	// replicas is the number of pods that drain.
	// +required
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas"`

	// sessions is the number of sessions in these pods, as rough as that of all sessions. It
	// counts pods that do not answer the manager in the same way.
	// +required
	// +kubebuilder:validation:Minimum=0
	Sessions int32 `json:"sessions"`
}

// Instance is one pod of a server.
type Instance struct {
	// pod is the pod's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod,omitempty"`

	// state says whether the pod serves clients. Ready: it does. NotReady: it does not,
	// or not yet. Draining: it is going away, finishes calls in flight and takes no new
	// sessions.
	// +required
	State InstanceState `json:"state,omitempty"`

	// verification is the result of the last check through the port that clients use.
	// Verified: the pod answered as an MCP server does. Failed: it did not. Unknown:
	// nothing could be checked, or not yet.
	// +required
	Verification InstanceVerification `json:"verification,omitempty"`

	// catalogDigest identifies what this pod offers. Pods that differ here disagree on
	// the server's tools, prompts or resources.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	CatalogDigest string `json:"catalogDigest,omitempty"`

	// message says what is wrong with the pod, if anything is.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// InstanceState says whether a pod serves clients.
//
// +kubebuilder:validation:Enum=Ready;NotReady;Draining
type InstanceState string

const (
	// InstanceReady is that of a pod that serves clients.
	InstanceReady InstanceState = "Ready"
	// InstanceNotReady is that of a pod that does not serve clients, or not yet.
	InstanceNotReady InstanceState = "NotReady"
	// InstanceDraining is that of a pod that is going away.
	InstanceDraining InstanceState = "Draining"
)

// InstanceVerification is what came of the last check of a pod.
//
// +kubebuilder:validation:Enum=Verified;Failed;Unknown
type InstanceVerification string

const (
	// InstanceVerified says that the pod answered as an MCP server does.
	InstanceVerified InstanceVerification = "Verified"
	// InstanceFailed says that it did not.
	InstanceFailed InstanceVerification = "Failed"
	// InstanceUnknown says that nothing could be checked, or not yet.
	InstanceUnknown InstanceVerification = "Unknown"
)

// ResolvedImage is what an image reference was resolved to.
type ResolvedImage struct {
	// resolution says what the manager knows of the image. Resolved: its registry
	// described it. NotAsked: the manager did not ask the registry, because the spec
	// names a command, or because its configuration forbids it. Unresolved: the registry
	// did not answer in time, denied access, or does not have the image. The manager keeps
	// asking, and the next change of the spec uses the answer. If the image is not resolved
	// and the spec names no user, the pods run as user 1000.
	// +optional
	Resolution ImageResolution `json:"resolution,omitempty"`

	// digest is the digest of the image's manifest or index.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Digest string `json:"digest,omitempty"`

	// command is the program, with arguments, that runs as the server. A long one is
	// truncated.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=1024
	Command []string `json:"command,omitempty"`

	// user is the user that the image names, if it names one. The pods may run as
	// another: see spec.securityContext.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	User string `json:"user,omitempty"`
}

// ImageResolution says where the program and the user of the pods come from.
//
// +kubebuilder:validation:Enum=Resolved;NotAsked;Unresolved
type ImageResolution string

const (
	// ImageResolved says that the pods were rendered with what the image says of itself.
	ImageResolved ImageResolution = "Resolved"
	// ImageNotAsked says that the registry is not asked for this image.
	ImageNotAsked ImageResolution = "NotAsked"
	// ImageUnresolved says that the registry did not answer before the pods were rendered.
	ImageUnresolved ImageResolution = "Unresolved"
)

// TemplateStatus says what the server's pods are made from.
type TemplateStatus struct {
	// adapterVersion is the version of the adapter in the current pod template.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	AdapterVersion string `json:"adapterVersion,omitempty"`

	// outdated is true when the manager would render the current pod template
	// differently now, because its version or its configuration has changed, or because
	// the registry has answered since. The next change that replaces the pods brings
	// that. See spec.rollout.onOperatorUpgrade.
	// +required
	Outdated bool `json:"outdated"`

	// defaults lists the fields that the spec leaves out and that the manager's
	// configuration fills in the current pod template, such as spec.resources.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=128
	Defaults []string `json:"defaults,omitempty"`
}

// AccessStatus is what the adapters enforce.
type AccessStatus struct {
	// digest names the access document that the adapters should enforce. It changes with the rules and
	// with the keys of issuers.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Digest string `json:"digest,omitempty"`

	// issuers are those whose tokens count.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=9
	Issuers []IssuerStatus `json:"issuers,omitempty"`
}

// IssuerStatus is what the manager knows of an issuer.
type IssuerStatus struct {
	// name is that of the issuer; kubernetes is the cluster's own.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`

	// keys is the number of its keys. With 0, the manager has never reached the issuer, and adapters
	// accept none of its tokens.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Keys int32 `json:"keys,omitempty"`
}
