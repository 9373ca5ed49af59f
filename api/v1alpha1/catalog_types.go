package v1alpha1

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
	// offers, with schemas. It is empty until the manager has written the ConfigMap.
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

	// truncated is true when tools and prompts are incomplete: the manager lists at
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
