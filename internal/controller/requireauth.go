package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	watchevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/reason"
)

// The labels of namespaces say whose MCPServers must have spec.auth. Nothing is read with other configurations.
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=list;watch

// namespaceKind is looked at only if the configuration selects namespaces. The cache has the metadata of
// namespaces, without annotations: thousands of them cost a few megabytes.
var namespaceKind = corev1.SchemeGroupVersion.WithKind("Namespace")

// selectsNamespaces says whether it depends on the labels of its namespace if a server must have spec.auth.
func (r *Reconciler) selectsNamespaces() bool { return r.RequireAuth != nil && !r.RequireAuth.Empty() }

// observeNamespace finds out whether the server lacks spec.auth. A namespace that the cache does not have is
// one that it will have soon: the API server makes no MCPServer without one. Until then nothing is decided,
// because the answer is worth waiting for before a server is opened to everyone.
func (r *Reconciler) observeNamespace(ctx context.Context, s *state) error {
	if r.RequireAuth == nil || s.server.Spec.Auth != nil {
		return nil
	}
	var of labels.Set
	if r.selectsNamespaces() {
		namespace := metadataOf(namespaceKind)
		if err := r.Metadata.Get(ctx, types.NamespacedName{Name: s.name.Namespace}, namespace); err != nil {
			return fmt.Errorf("get Namespace %s: %w", s.name.Namespace, err)
		}
		of = namespace.Labels
	}
	s.lacksAuth = r.RequireAuth.Matches(of)
	return nil
}

// requireAuth refuses a server that lacks spec.auth. It keeps the running pods, but gives adapters a document by
// which they refuse every client: an administrator who requires auth wants no server to stay open. When the spec
// gets auth, the pods still run.
func (*Reconciler) requireAuth(_ context.Context, s *state) error {
	if s.lacksAuth {
		s.refuse(mcpv1alpha1.ReasonAuthRequired, fmt.Sprintf("the manager's configuration (auth.require) requires spec.auth of MCPServers in namespace %s, and adapters refuse every client until then: %s",
			s.name.Namespace, reason.AddAuth))
	}
	return nil
}

// namespaceHandler enqueues the servers of a namespace that is selected now and was not before, or the other
// way round. It is urgent, because clients may call a server no longer, or again.
func (r *Reconciler) namespaceHandler() handler.EventHandler {
	selected := func(namespace client.Object) bool { return r.RequireAuth.Matches(labels.Set(namespace.GetLabels())) }
	return handler.Funcs{
		UpdateFunc: func(ctx context.Context, e watchevent.UpdateEvent, queue requestQueue) {
			if selected(e.ObjectOld) != selected(e.ObjectNew) {
				addUrgent(queue, r.serversIn(ctx, e.ObjectNew.GetName())...)
			}
		},
	}
}

// serversIn names the servers of a namespace.
func (r *Reconciler) serversIn(ctx context.Context, namespace string) []reconcile.Request {
	var servers mcpv1alpha1.MCPServerList
	if err := r.Client.List(ctx, &servers, client.InNamespace(namespace)); err != nil {
		log.FromContext(ctx).Error(err, "Cannot list the MCPServers of a namespace whose labels have changed", "namespace", namespace)
		return nil
	}
	requests := make([]reconcile.Request, len(servers.Items))
	for i := range servers.Items {
		requests[i].NamespacedName = client.ObjectKeyFromObject(&servers.Items[i])
	}
	return requests
}
