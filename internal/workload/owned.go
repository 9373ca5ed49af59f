package workload

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

// ObjectID is what programs call an object of a server. It is also the name of its golden file.
type ObjectID string

// The objects of a server.
const (
	ObjectKeys                ObjectID = "secret"
	ObjectSessions            ObjectID = "sessions"
	ObjectRevision            ObjectID = "revision"
	ObjectSettings            ObjectID = "settings"
	ObjectServiceAccount      ObjectID = "serviceaccount"
	ObjectService             ObjectID = "service"
	ObjectPodDisruptionBudget ObjectID = "poddisruptionbudget"
	ObjectDeployment          ObjectID = "deployment"
	ObjectCatalog             ObjectID = "catalog"
)

// Owned is an object that an MCPServer may have.
type Owned struct {
	ID   ObjectID
	Kind schema.GroupVersionKind
	// Purpose is what the documentation says of the object.
	Purpose string
	// Resource is the kind as a role names it.
	Resource string
	// Name names the object. It is nil if a server has several.
	Name func(*mcpv1alpha1.MCPServer) string
	// Build builds the object, or returns nil if there should be none. Build itself is nil for an
	// object that the controller creates and never applies.
	Build func(Parts) runtime.ApplyConfiguration
	// IsChanged says that the controller changes an object that it never applies.
	IsChanged bool
	// HasStep says that a step of its own applies the object. One step applies all others, in the
	// order of the table.
	HasStep bool
	// IsUnwanted says whether the controller deletes the object. It is nil for what goes with the
	// server only.
	IsUnwanted func(Parts) bool
	// IsUsedByPods keeps an unwanted object until no pod of an earlier template runs.
	IsUsedByPods bool
	// Claims are the parts of the object that are the manager's alone. What others write anywhere
	// else, such as a cloud's address or finalizer, or the annotations of tools that restart pods,
	// is theirs.
	Claims []fieldpath.Path
	// IsOptional says that a cluster may not serve the kind. The controller looks for it from time to
	// time, and works without it.
	IsOptional bool
}

// Parts are what the objects of a server are built from.
type Parts struct {
	Server *mcpv1alpha1.MCPServer
	// Template is nil while there is none.
	Template *corev1ac.PodTemplateSpecApplyConfiguration
	Settings adapterapi.Document
	Access   adapterapi.Document
	// Catalog is nil while no instance has said what it offers.
	Catalog *Catalog
	// AtLeast is how many pods there still have to be: those that a smaller number leaves over have some time to be
	// relieved of their work.
	AtLeast int32
}

// What the manager may do with each kind. TestRights compares these lines with the table.
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=apps,resources=controllerrevisions,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=serviceaccounts,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;patch

// AllOwned is the table of what an MCPServer may have. It is the only list of kinds: the
// controller watches, applies and prunes by it, and tests of golden files, of rights and of what a
// server leaves behind go through it. Pods come last, when everything that they need is there.
func AllOwned() []Owned {
	return []Owned{
		{
			ID: ObjectKeys, Kind: corev1.SchemeGroupVersion.WithKind("Secret"), Resource: "secrets", Name: KeysSecretName, IsChanged: true,
			Purpose: "keys that the manager and the adapters use to authenticate each other and to encrypt session ids",
		},
		{
			ID: ObjectSessions, Kind: corev1.SchemeGroupVersion.WithKind("Secret"), Resource: "secrets", Name: SessionsSecretName, IsChanged: true,
			Purpose: "the key that `kubectl mcp sessions` uses to list and end sessions; it gives no other access",
		},
		{
			ID: ObjectRevision, Kind: appsv1.SchemeGroupVersion.WithKind("ControllerRevision"), Resource: "controllerrevisions",
			Purpose:    "a copy of the pod template; Slipway keeps the last three",
			IsUnwanted: never, // the controller decides by their number
		},
		{
			ID: ObjectSettings, Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Resource: "configmaps", Name: SettingsName, HasStep: true,
			Purpose: "settings and access rules that adapters apply [without a restart](#live-settings)",
			Build:   func(p Parts) runtime.ApplyConfiguration { return SettingsConfigMap(p.Server, p.Settings, p.Access) },
		},
		{
			ID: ObjectServiceAccount, Kind: corev1.SchemeGroupVersion.WithKind("ServiceAccount"), Resource: "serviceaccounts", Name: serverName,
			Purpose:    "the identity of the pods. It has no rights, and pods get no token. Slipway does not create it if you set `serviceAccountName`",
			Build:      func(p Parts) runtime.ApplyConfiguration { return orNone(ServiceAccount(p.Server)) },
			IsUnwanted: func(p Parts) bool { return serviceAccountName(p.Server) != p.Server.Name }, IsUsedByPods: true,
		},
		{
			ID: ObjectService, Kind: corev1.SchemeGroupVersion.WithKind("Service"), Resource: "services", Name: serverName,
			Purpose: "the address that clients connect to; `spec.service` configures it",
			Build:   func(p Parts) runtime.ApplyConfiguration { return Service(p.Server) },
			Claims:  []fieldpath.Path{fieldpath.MakePathOrDie("spec", "ports"), fieldpath.MakePathOrDie("spec", "selector")},
		},
		{
			ID: ObjectPodDisruptionBudget, Kind: policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), Resource: "poddisruptionbudgets", Name: serverName,
			Purpose:    "only with more than one replica: a node drain evicts one pod at a time",
			Build:      func(p Parts) runtime.ApplyConfiguration { return orNone(PodDisruptionBudget(p.Server)) },
			IsUnwanted: func(p Parts) bool { return PodDisruptionBudget(p.Server) == nil },
		},
		{
			ID: ObjectDeployment, Kind: appsv1.SchemeGroupVersion.WithKind("Deployment"), Resource: "deployments", Name: serverName,
			Purpose: "runs the pods",
			Build: func(p Parts) runtime.ApplyConfiguration {
				return Deployment(p.Server, p.Template, max(Replicas(p.Server), p.AtLeast))
			},
			Claims: []fieldpath.Path{fieldpath.MakePathOrDie("spec", "template", "spec"), fieldpath.MakePathOrDie("spec", "strategy")},
		},
		{
			ID: ObjectCatalog, Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Resource: "configmaps", Name: CatalogName, HasStep: true,
			Purpose: "the catalog: all tools, prompts and resources of the server, with their schemas",
			Build:   func(p Parts) runtime.ApplyConfiguration { return CatalogConfigMap(p.Server, *p.Catalog) },
		},
	}
}

// Verbs are what the manager may do with the object, in the order of the alphabet.
func (o Owned) Verbs() string {
	verbs := []string{"create"}
	if o.IsUnwanted != nil {
		verbs = append(verbs, "delete")
	}
	verbs = append(verbs, "get", "list")
	if o.Build != nil || o.IsChanged {
		verbs = append(verbs, "patch")
	}
	return strings.Join(append(verbs, "watch"), " ")
}

func serverName(server *mcpv1alpha1.MCPServer) string { return server.Name }

func never(Parts) bool { return false }

// orNone makes an interface that is nil of a pointer that is.
func orNone[T any, P interface {
	*T
	runtime.ApplyConfiguration
}](config P) runtime.ApplyConfiguration {
	if config == nil {
		return nil
	}
	return config
}
