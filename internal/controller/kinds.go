package controller

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/workload"
)

// serverIndex finds objects of the cache by the server that they belong to. Without it, each
// reconciliation would look at the labels of every pod and revision of the namespace.
const serverIndex = "server"

// newObject is an empty object of a kind, as the cache holds it: metadata only, but for the kinds
// of which the controller reads more.
func newObject(kind schema.GroupVersionKind) client.Object {
	switch kind {
	case appsv1.SchemeGroupVersion.WithKind("Deployment"):
		return &appsv1.Deployment{}
	case appsv1.SchemeGroupVersion.WithKind("ControllerRevision"):
		return &appsv1.ControllerRevision{}
	case corev1.SchemeGroupVersion.WithKind("Service"):
		return &corev1.Service{}
	default:
		return metadataOf(kind)
	}
}

func metadataOf(kind schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	return object
}

func isMetadataOnly(kind schema.GroupVersionKind) bool {
	_, is := newObject(kind).(*metav1.PartialObjectMetadata)
	return is
}

// watchedKind is a kind that the cache holds, besides MCPServers.
type watchedKind struct {
	kind      schema.GroupVersionKind
	resource  string // as a role names it
	object    client.Object
	isIndexed bool
	trim      toolscache.TransformFunc // nil for the default
	handler   handler.EventHandler
}

// watchedKinds are the kinds of what servers own, and pods. Kinds that a cluster may lack are not
// among them: see optionalKinds.
func watchedKinds(owned []workload.Owned) []watchedKind {
	kinds := []watchedKind{{kind: corev1.SchemeGroupVersion.WithKind("Pod"), resource: "pods", object: &corev1.Pod{}, isIndexed: true, trim: trimPod, handler: newPodHandler()}}
	seen := map[schema.GroupVersionKind]bool{}
	for _, o := range owned {
		if o.IsOptional || seen[o.Kind] {
			continue
		}
		seen[o.Kind] = true
		kind := watchedKind{kind: o.Kind, resource: o.Resource, object: newObject(o.Kind), handler: handler.EnqueueRequestsFromMapFunc(serverOfOwned)}
		switch o.ID {
		case workload.ObjectDeployment:
			kind.trim = trimDeployment
		case workload.ObjectRevision:
			kind.isIndexed = true
		}
		kinds = append(kinds, kind)
	}
	return kinds
}

// watchedKinds are those of the Reconciler: namespaces, too, if it has to look at their labels.
func (r *Reconciler) watchedKinds() []watchedKind {
	kinds := watchedKinds(r.Owned)
	if r.selectsNamespaces() {
		kinds = append(kinds, watchedKind{kind: namespaceKind, resource: "namespaces", object: metadataOf(namespaceKind), handler: r.namespaceHandler()})
	}
	return kinds
}

// CacheByObject says what of each kind the manager's cache holds: what belongs to MCPServers, and
// of pods only what a status is computed from.
func CacheByObject(owned []workload.Owned) map[client.Object]cache.ByObject {
	held := map[client.Object]cache.ByObject{}
	for _, kind := range watchedKinds(owned) {
		held[kind.object] = cache.ByObject{Label: ours(), Transform: kind.trim}
	}
	return held
}

// ours selects what belongs to any MCPServer.
func ours() labels.Selector {
	return labels.SelectorFromSet(labels.Set{mcpv1alpha1.LabelManagedBy: mcpv1alpha1.ManagedBy})
}

// Uncached are the kinds of which the cache has the metadata only: whole objects are
// read from the API server.
func Uncached(owned []workload.Owned) []client.Object {
	var objects []client.Object
	for _, kind := range watchedKinds(owned) {
		if metadata, ok := kind.object.(*metav1.PartialObjectMetadata); ok {
			objects = append(objects, metadata)
		}
	}
	return objects
}

// startInformers starts to fill the cache and adds its indexes. It does not wait for the
// lists: while the API server refuses one, the manager must be able to say so and to end. An
// index that is added before the manager has started makes it wait for the list of that kind
// first, and a manager that waits there serves no health check and ignores signals.
func (r *Reconciler) startInformers(ctx context.Context, objects cache.Cache) error {
	informers := map[schema.GroupVersionKind]cache.Informer{}
	for _, kind := range r.watchedKinds() {
		if kind.isIndexed {
			if err := objects.IndexField(ctx, kind.object, serverIndex, serverLabel); err != nil {
				return fmt.Errorf("index %s by server: %w", kind.resource, err)
			}
		}
		informer, err := objects.GetInformer(ctx, kind.object, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch %s: %w", kind.resource, err)
		}
		informers[kind.kind] = informer
	}
	r.informers.Store(&informers)
	return nil
}

func serverLabel(object client.Object) []string {
	if name := object.GetLabels()[mcpv1alpha1.LabelServer]; name != "" {
		return []string{name}
	}
	return nil
}

// Unsynced are the resources that the cache has not listed yet, such as pods. MCPServers are
// not among them.
func (r *Reconciler) Unsynced() []string {
	var names []string
	informers := r.informers.Load()
	for _, kind := range r.watchedKinds() {
		if informers == nil || !(*informers)[kind.kind].HasSynced() {
			names = append(names, kind.resource)
		}
	}
	return names
}
