package v1alpha1

// Labels and annotations that Slipway sets or reads. All in its own domain are
// reserved for it.
const (
	// LabelServer is on every object that belongs to an MCPServer, pods included;
	// its value is the MCPServer's name. It alone selects a server's pods.
	LabelServer = "mcp.slipway.dev/server"

	// AnnotationRefresh on an MCPServer makes the manager check everything again
	// with every new value: it resolves the image, renders the pod template and
	// verifies every instance.
	AnnotationRefresh = "mcp.slipway.dev/refresh"

	// AnnotationRotateKey on an MCPServer asks, with every new value, to rotate the server's
	// key. On the Secret with the keys it is the value that was honored last.
	AnnotationRotateKey = "mcp.slipway.dev/rotate-key"

	// AnnotationNextKey on the Secret with a server's keys is the id of the accepted key that
	// becomes the current one.
	AnnotationNextKey = "mcp.slipway.dev/next-key"

	// AnnotationKeysChanged on the Secret with a server's keys is when the last step of a
	// rotation was done.
	AnnotationKeysChanged = "mcp.slipway.dev/keys-changed"

	// AnnotationKeyID on a Secret is the id of the key that its content is derived from.
	AnnotationKeyID = "mcp.slipway.dev/key-id"

	// AnnotationReferences on a pod template changes with the content of the
	// Secrets and ConfigMaps that the spec refers to.
	AnnotationReferences = "mcp.slipway.dev/references"

	// AnnotationTemplate on a pod names the template that the pod was made from. It is
	// a hash of the template as it was rendered.
	AnnotationTemplate = "mcp.slipway.dev/template"

	// AnnotationServerUID on a pod is the UID of the MCPServer that it belongs to. Pods of an
	// earlier MCPServer of the same name have another one.
	AnnotationServerUID = "mcp.slipway.dev/server-uid"

	// AnnotationCause on a ControllerRevision says why the manager rendered that pod
	// template although the spec was the same: ReferenceChange or AdapterUpgrade. It is
	// absent when the spec was new.
	AnnotationCause = "mcp.slipway.dev/cause"

	// AnnotationAdapterVersion on a pod template is the version of its adapter.
	AnnotationAdapterVersion = "mcp.slipway.dev/adapter-version"

	// AnnotationCatalogDigest on a catalog's ConfigMap is the digest of what it holds.
	AnnotationCatalogDigest = "mcp.slipway.dev/catalog-digest"
)

// The standard labels of what belongs to an MCPServer.
const (
	LabelManagedBy = "app.kubernetes.io/managed-by"
	LabelName      = "app.kubernetes.io/name"
	LabelInstance  = "app.kubernetes.io/instance"

	// ManagedBy is the value of LabelManagedBy, and the name under which Slipway
	// owns fields.
	ManagedBy = "slipway"
	// AppName is the value of LabelName.
	AppName = "mcp-server"
)

// The containers of a server's pods.
const (
	ContainerAdapter = "mcp-adapter"
	ContainerServer  = "mcp-server"
)

// The keys of the ConfigMap that status.catalog.configMapName names.
const (
	// CatalogKey holds everything that the server offers, as JSON.
	CatalogKey = "catalog.json"
	// CatalogTrimmedKey says what CatalogKey lacks. It is there only if something is missing.
	CatalogTrimmedKey = "trimmed"
)
