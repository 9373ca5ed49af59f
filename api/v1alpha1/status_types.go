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

	// conditions are the states of the server: Ready, Accepted, Available and
	// Verified, and Reconciling or Stalled while they hold.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// address is where clients connect.
	// +optional
	Address *Address `json:"address,omitempty"`

	// serverInfo is what the server says about itself.
	// +optional
	ServerInfo *ServerInfo `json:"serverInfo,omitempty"`

	// tools are the tools that the server offers, sorted by name. A long list is
	// cut: counts has the true number, and the ConfigMap NAME-catalog has all of
	// them with their schemas.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	Tools []Tool `json:"tools,omitempty"`

	// prompts are the prompts that the server offers, sorted by name and cut
	// like tools.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Prompts []Prompt `json:"prompts,omitempty"`

	// resources are the resources that the server lists, sorted by URI and cut
	// like tools.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Resources []Resource `json:"resources,omitempty"`

	// resourceTemplates are the templates of further resources, sorted by URI
	// template and cut like tools.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	ResourceTemplates []ResourceTemplate `json:"resourceTemplates,omitempty"`

	// counts are the true sizes of the lists above.
	// +optional
	Counts *CatalogCounts `json:"counts,omitempty"`

	// catalogDigest identifies everything the server offers, schemas included:
	// it changes when and only when the catalogue does.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	CatalogDigest string `json:"catalogDigest,omitempty"`

	// instances are the pods of the server, those with a problem first. A long
	// list is cut; replicas has the true number.
	// +optional
	// +listType=map
	// +listMapKey=pod
	// +kubebuilder:validation:MaxItems=128
	Instances []Instance `json:"instances,omitempty"`

	// sessions is the number of open sessions. It is refreshed at most once a
	// minute; live figures are in the metrics.
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

	// adapter is the adapter that the pods run.
	// +optional
	Adapter *AdapterStatus `json:"adapter,omitempty"`
}

// Address is where clients connect.
type Address struct {
	// url is the URL of the server inside the cluster.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url,omitempty"`
}

// ServerInfo is what a server says about itself.
type ServerInfo struct {
	// name is the server's own name.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name,omitempty"`

	// title is the server's name for people.
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

	// protocolVersions are the protocol revisions that clients can use at the
	// server's URL, newest first. They include what the adapter translates: of a
	// stdio server clients can always use 2026-07-28 as well as revisions with
	// sessions, whatever the server itself speaks.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=32
	ProtocolVersions []string `json:"protocolVersions,omitempty"`

	// instructions tell a model how to use the server. A long text is cut.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
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
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=256
	Extensions []string `json:"extensions,omitempty"`
}

// ListCapability is a capability whose list may change.
type ListCapability struct {
	// listChanged is true when the server says so when the list changes.
	// +optional
	ListChanged bool `json:"listChanged,omitempty"`
}

// ResourcesCapability is the capability to offer resources.
type ResourcesCapability struct {
	// listChanged is true when the server says so when the list changes.
	// +optional
	ListChanged bool `json:"listChanged,omitempty"`

	// subscribe is true when clients can ask to be told of changes of a resource.
	// +optional
	Subscribe bool `json:"subscribe,omitempty"`
}

// Tool is a tool that a server offers.
type Tool struct {
	// name is what a client calls the tool by.
	// +required
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name"`

	// title is the tool's name for people.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Title string `json:"title,omitempty"`

	// description says what the tool does. A long text is cut.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Description string `json:"description,omitempty"`

	// readOnly is true when the server says that the tool changes nothing.
	// +optional
	ReadOnly *bool `json:"readOnly,omitempty"`

	// destructive is true when the server says that the tool may destroy
	// something.
	// +optional
	Destructive *bool `json:"destructive,omitempty"`
}

// Prompt is a prompt that a server offers.
type Prompt struct {
	// name is what a client asks for the prompt by.
	// +required
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name"`

	// title is the prompt's name for people.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Title string `json:"title,omitempty"`

	// description says what the prompt is for. A long text is cut.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Description string `json:"description,omitempty"`
}

// Resource is a resource that a server lists.
type Resource struct {
	// uri is what a client reads the resource by.
	// +required
	// +kubebuilder:validation:MaxLength=2048
	URI string `json:"uri"`

	// name is the resource's name.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name,omitempty"`
}

// ResourceTemplate describes resources that a server has but does not list.
type ResourceTemplate struct {
	// uriTemplate is the RFC 6570 template of the resources' URIs.
	// +required
	// +kubebuilder:validation:MaxLength=2048
	URITemplate string `json:"uriTemplate"`

	// name is the template's name.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name,omitempty"`
}

// CatalogCounts are the true sizes of a catalogue's lists.
type CatalogCounts struct {
	// tools is the number of tools.
	// +required
	// +kubebuilder:validation:Minimum=0
	Tools int32 `json:"tools"`

	// prompts is the number of prompts.
	// +required
	// +kubebuilder:validation:Minimum=0
	Prompts int32 `json:"prompts"`

	// resources is the number of listed resources.
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

	// ready is true when the pod is ready for clients.
	// +required
	Ready bool `json:"ready"`

	// verified is true when the last check through the pod's client port
	// succeeded and false when it failed. It is absent while nothing could be
	// checked.
	// +optional
	Verified *bool `json:"verified,omitempty"`

	// draining is true when the pod is going away and takes no new sessions.
	// +optional
	Draining bool `json:"draining,omitempty"`

	// catalogDigest identifies what this pod offers. Pods that differ here
	// disagree on the server's tools, prompts or resources.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	CatalogDigest string `json:"catalogDigest,omitempty"`

	// message says what is wrong with the pod, if anything is.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// ResolvedImage is what an image reference was resolved to.
type ResolvedImage struct {
	// resolution says where the program and the user of the pods come from.
	// Resolved: from the image, as its registry described it. NotAsked: from the
	// spec, because it names a command or because the operator may not ask this
	// registry. Unresolved: the registry did not answer in time, so the pods run as
	// user 1000. It is asked again, and the next change of the spec takes over what
	// it says.
	// +optional
	Resolution ImageResolution `json:"resolution,omitempty"`

	// digest is the digest of the image's manifest or index.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Digest string `json:"digest,omitempty"`

	// command is the program, with arguments, that runs as the server.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	// +kubebuilder:validation:items:MaxLength=32768
	Command []string `json:"command,omitempty"`

	// user is the user that the image names, if it names one.
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

// AdapterStatus is the adapter that a server's pods run.
type AdapterStatus struct {
	// version is the version of the adapter in the current pod template.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Version string `json:"version,omitempty"`

	// outdated is true when the operator would render the pods differently now:
	// it has a newer adapter, or the registry has answered since. That reaches the
	// pods with the next change that restarts them. See spec.adapter.upgrade.
	// +required
	Outdated bool `json:"outdated"`
}
