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
	// operator can act on the spec. Verified: the last MCP exchange with at least one
	// pod worked. Reconciling is present while the operator works. Stalled is present
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
	// minute, and only if it has changed by a tenth, or from or to zero or the limit. The
	// metrics have the exact number.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Sessions *int32 `json:"sessions,omitempty"`

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

// ServerInfo is what a server says about itself.
type ServerInfo struct {
	// name is the server's own name.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name,omitempty"`

	// title is the server's display name.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Title string `json:"title,omitempty"`

	// version is the server's own version.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Version string `json:"version,omitempty"`

	// protocolVersion is the newest protocol revision that the server itself was
	// found to speak.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	ProtocolVersion string `json:"protocolVersion,omitempty"`

	// instructions tell a model how to use the server. A long text is truncated.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Instructions string `json:"instructions,omitempty"`

	// capabilities are the optional parts of the protocol that the server has.
	// +optional
	Capabilities *Capabilities `json:"capabilities,omitempty"`
}

// Capabilities are the optional parts of the protocol that a server has. A part
// that is absent is one that the server does not have.
type Capabilities struct {
	// tools is present when the server offers tools.
	// +optional
	Tools *ListCapability `json:"tools,omitempty"`

	// prompts is present when the server offers prompts.
	// +optional
	Prompts *ListCapability `json:"prompts,omitempty"`

	// resources is present when the server offers resources.
	// +optional
	Resources *ResourcesCapability `json:"resources,omitempty"`

	// logging is true when the server sends log messages to its clients.
	// +optional
	Logging bool `json:"logging,omitempty"`

	// completions is true when the server completes arguments.
	// +optional
	Completions bool `json:"completions,omitempty"`

	// tasks is true when the server runs calls as tasks.
	// +optional
	Tasks bool `json:"tasks,omitempty"`

	// extensions are the names of protocol extensions and experimental
	// capabilities that the server declares.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=64
	Extensions []string `json:"extensions,omitempty"`
}

// ListCapability is a capability whose list may change.
type ListCapability struct {
	// listChanged is true when the server notifies clients of changes of this list.
	// +optional
	ListChanged bool `json:"listChanged,omitempty"`
}

// ResourcesCapability is the capability to offer resources.
type ResourcesCapability struct {
	// listChanged is true when the server notifies clients of changes of this list.
	// +optional
	ListChanged bool `json:"listChanged,omitempty"`

	// subscribe is true when clients can subscribe to changes of a resource.
	// +optional
	Subscribe bool `json:"subscribe,omitempty"`
}

// Catalog is what a server offers, in short.
type Catalog struct {
	// digest identifies everything that the server offers, schemas included: it
	// changes when and only when what the server offers does.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Digest string `json:"digest,omitempty"`

	// configMapName is the name of the ConfigMap that has everything that the server
	// offers, with schemas. It is empty until the operator has written the ConfigMap.
	// The ConfigMap's annotation mcp.slipway.dev/catalog-digest says which digest it is of.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ConfigMapName string `json:"configMapName,omitempty"`

	// counts are the numbers of tools, prompts, resources and resource templates that
	// the server offers.
	// +optional
	Counts CatalogCounts `json:"counts,omitzero"`

	// tools are the tools of the server, sorted by name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Tools []CatalogEntry `json:"tools,omitempty"`

	// prompts are the prompts of the server, sorted by name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Prompts []CatalogEntry `json:"prompts,omitempty"`

	// truncated is true when tools and prompts are incomplete: the operator lists at
	// most 28 KiB of them. The ConfigMap has all.
	// +optional
	Truncated bool `json:"truncated,omitempty"`
}

// CatalogEntry is a tool or a prompt, in short.
type CatalogEntry struct {
	// name is the name of the tool or prompt.
	// +required
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name"`

	// description is the first sentence of what the server says about it, at most 120
	// characters.
	// +optional
	// +kubebuilder:validation:MaxLength=120
	Description string `json:"description,omitempty"`
}

// CatalogCounts are how many things of each kind a server offers.
type CatalogCounts struct {
	// tools is the number of tools.
	// +required
	// +kubebuilder:validation:Minimum=0
	Tools int32 `json:"tools"`

	// prompts is the number of prompts.
	// +required
	// +kubebuilder:validation:Minimum=0
	Prompts int32 `json:"prompts"`

	// resources is the number of resources that the server lists.
	// +required
	// +kubebuilder:validation:Minimum=0
	Resources int32 `json:"resources"`

	// resourceTemplates is the number of resource templates.
	// +required
	// +kubebuilder:validation:Minimum=0
	ResourceTemplates int32 `json:"resourceTemplates"`
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
	// resolution says what the operator knows of the image. Resolved: its registry
	// described it. NotAsked: the operator did not ask the registry, because the spec
	// names a command, or because its configuration forbids it. Unresolved: the registry
	// did not answer in time. The operator keeps asking, and the next change of the spec
	// uses the answer. If the image is not resolved and the spec names no user, the pods
	// run as user 1000.
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

	// outdated is true when the operator would render the current pod template
	// differently now, because its version or its configuration has changed, or because
	// the registry has answered since. The next change that replaces the pods brings
	// that. See spec.rollout.onOperatorUpgrade.
	// +required
	Outdated bool `json:"outdated"`

	// defaults lists the fields that the spec leaves out and that the operator's
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

// IssuerStatus is what the operator knows of an issuer.
type IssuerStatus struct {
	// name is that of the issuer; kubernetes is the cluster's own.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`

	// keys is the number of its keys. With 0, the operator has never reached it, and none of its
	// tokens count.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Keys int32 `json:"keys,omitempty"`
}
