package controller

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

const (
	// reconcileTimeout bounds one reconciliation.
	reconcileTimeout = time.Minute

	// A reconciliation that failed is tried again after these. A quota or a webhook
	// that was mended is noticed within a minute.
	firstRetry = 100 * time.Millisecond
	lastRetry  = time.Minute

	// crdPatience is how long the controller waits for its watches. A manager that
	// was installed before its CRD waits and says why, on /readyz.
	crdPatience = 365 * 24 * time.Hour
)

// Trim drops from any object what the controller does not read. Annotations of objects of
// which the cache has the metadata only can be large, and even hold what is secret. What
// kubectl last applied is the whole object once more.
func Trim(object any) (any, error) {
	if metadata, ok := object.(*metav1.PartialObjectMetadata); ok {
		metadata.ManagedFields = nil
		maps.DeleteFunc(metadata.Annotations, func(name, _ string) bool {
			return name != mcpv1alpha1.AnnotationCatalogDigest && name != mcpv1alpha1.AnnotationKeyID
		})
		if len(metadata.Annotations) == 0 {
			metadata.Annotations = nil
		}
		return object, nil
	}
	if server, ok := object.(*mcpv1alpha1.MCPServer); ok {
		delete(server.Annotations, corev1.LastAppliedConfigAnnotation)
	}
	return cache.TransformStripManagedFields()(object)
}

// trimPod drops what neither the status nor the lists of pods need: the specs of a thousand pods are most of the memory
// of a cache that holds them.
func trimPod(object any) (any, error) {
	if pod, ok := object.(*corev1.Pod); ok {
		kept := corev1.PodSpec{NodeName: pod.Spec.NodeName, TerminationGracePeriodSeconds: pod.Spec.TerminationGracePeriodSeconds}
		if takesPeers(pod) {
			kept.InitContainers = takingPeers
		}
		pod.ManagedFields, pod.Spec = nil, kept
	}
	return object, nil
}

// trimDeployment drops the pod template, but for what tells its pods from others: the rendered one is in a
// ControllerRevision.
func trimDeployment(object any) (any, error) {
	if deployment, ok := object.(*appsv1.Deployment); ok {
		deployment.ManagedFields = nil
		kept := generationOf(deployment.Spec.Template.Annotations)
		deployment.Spec.Template = corev1.PodTemplateSpec{}
		deployment.Spec.Template.Annotations = map[string]string{mcpv1alpha1.AnnotationTemplate: kept.template}
		if kept.restarted != "" {
			deployment.Spec.Template.Annotations[annotationRestarted] = kept.restarted
		}
	}
	return object, nil
}

// SetupWithManager makes the manager run the Reconciler.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	objects, err := metadata.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("create client of metadata: %w", err)
	}
	r.watchReferences(objects, mgr.GetLogger().WithName("references"))
	for _, watch := range r.watches {
		if err := mgr.Add(watch); err != nil {
			return fmt.Errorf("watch what MCPServers refer to: %w", err)
		}
	}
	if err := r.setUpOptional(mgr); err != nil {
		return err
	}
	watches := ctrl.NewControllerManagedBy(mgr).
		Named("mcpserver").
		For(&mcpv1alpha1.MCPServer{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{})))
	for _, kind := range r.watchedKinds() {
		watches.Watches(kind.object, kind.handler)
	}
	err = watches.
		WatchesRawSource(source.Func(func(ctx context.Context, queue requestQueue) error {
			r.startBackground(ctx, queue)
			go r.findOptional(ctx)
			return r.startInformers(ctx, mgr.GetCache())
		})).
		WithOptions(controller.Options{
			EnableWarmup:            new(true), // so that a standby has all caches filled
			MaxConcurrentReconciles: r.Workers, ReconciliationTimeout: reconcileTimeout, CacheSyncTimeout: crdPatience,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up controller of MCPServers: %w", err)
	}
	return nil
}

// isMCPServer says whether an owner is one of ours: others have kinds of that name, too.
func isMCPServer(owner *metav1.OwnerReference) bool {
	group, _, _ := strings.Cut(owner.APIVersion, "/")
	return owner.Kind == "MCPServer" && group == mcpv1alpha1.SchemeGroupVersion.Group
}

// serverOfOwned names the server that owns an object.
func serverOfOwned(_ context.Context, object client.Object) []reconcile.Request {
	owner := metav1.GetControllerOf(object)
	if owner == nil || !isMCPServer(owner) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: owner.Name}}}
}
