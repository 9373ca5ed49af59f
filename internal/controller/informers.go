package controller

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// serverIndex finds objects of the cache by the server that they belong to. Without it, each
// reconciliation would look at the labels of every pod and revision of the namespace.
const serverIndex = "server"

// cachedResource is one that the cache holds, besides MCPServers.
type cachedResource struct {
	name    string // as a role names it
	object  client.Object
	indexed bool
}

func cachedResources() []cachedResource {
	return []cachedResource{
		{"deployments", &appsv1.Deployment{}, false},
		{"controllerrevisions", &appsv1.ControllerRevision{}, true},
		{"services", &corev1.Service{}, false},
		{"poddisruptionbudgets", &policyv1.PodDisruptionBudget{}, false},
		{"pods", &corev1.Pod{}, true},
		{"secrets", metadataOf(secretKind), false},
		{"configmaps", metadataOf(configMapKind), false},
		{"serviceaccounts", metadataOf(serviceAccountKind), false},
	}
}

// startInformers starts to fill the cache and adds its indexes. It does not wait for the
// lists: while the API server refuses one, the manager must be able to say so and to end. An
// index that is added before the manager has started makes it wait for the list of that kind
// first, and a manager that waits there serves no health check and ignores signals.
func (r *Reconciler) startInformers(ctx context.Context, objects cache.Cache) error {
	informers := map[string]cache.Informer{}
	for _, resource := range cachedResources() {
		if resource.indexed {
			if err := objects.IndexField(ctx, resource.object, serverIndex, serverLabel); err != nil {
				return fmt.Errorf("index %s by server: %w", resource.name, err)
			}
		}
		informer, err := objects.GetInformer(ctx, resource.object, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch %s: %w", resource.name, err)
		}
		informers[resource.name] = informer
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
	for _, resource := range cachedResources() {
		if informers == nil || !(*informers)[resource.name].HasSynced() {
			names = append(names, resource.name)
		}
	}
	return names
}
