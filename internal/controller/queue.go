package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	watchevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/controller/status"
)

// urgent is the priority of events that change whether clients can use a server. Other
// changes have priority 0, and what exists when the manager starts has handler.LowPriority.
// A server whose pod becomes ready does not wait until a thousand others are created.
const urgent = 100

type requestQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// startBackground gives what works in the background a queue to tell of its results.
func (r *Reconciler) startBackground(ctx context.Context, queue requestQueue) {
	r.queue.Store(&queue)
	r.images.start(ctx, r.enqueue)
}

// Notify asks for the reconciliation of a server whose instances answer differently. It is
// what a prober calls.
func (r *Reconciler) Notify(server types.NamespacedName) {
	if queue := r.queue.Load(); queue != nil {
		addUrgent(*queue, reconcile.Request{NamespacedName: server})
	}
}

// enqueue asks for the reconciliation of a server after the ones that wait already.
func (r *Reconciler) enqueue(server types.NamespacedName) {
	if queue := r.queue.Load(); queue != nil {
		(*queue).Add(reconcile.Request{NamespacedName: server})
	}
}

func addUrgent(queue requestQueue, requests ...reconcile.Request) {
	if prioritized, ok := queue.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		prioritized.AddWithOpts(priorityqueue.AddOpts{Priority: new(urgent)}, requests...)
		return
	}
	for _, request := range requests {
		queue.Add(request)
	}
}

// podHandler enqueues the server of a pod. The reconciliation is urgent if the pod starts
// or stops to serve clients.
type podHandler struct{ handler.EventHandler }

func newPodHandler() podHandler {
	return podHandler{handler.EnqueueRequestsFromMapFunc(serverOfPod)}
}

// Create implements handler.EventHandler.
func (h podHandler) Create(ctx context.Context, e watchevent.CreateEvent, queue requestQueue) {
	if isServing(e.Object) && !e.IsInInitialList {
		addUrgent(queue, serverOfPod(ctx, e.Object)...)
		return
	}
	h.EventHandler.Create(ctx, e, queue)
}

// Update implements handler.EventHandler. Other pods have to know at once of one that ends.
func (h podHandler) Update(ctx context.Context, e watchevent.UpdateEvent, queue requestQueue) {
	if isServing(e.ObjectOld) != isServing(e.ObjectNew) || e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero() {
		addUrgent(queue, serverOfPod(ctx, e.ObjectNew)...)
		return
	}
	h.EventHandler.Update(ctx, e, queue)
}

// Delete implements handler.EventHandler.
func (h podHandler) Delete(ctx context.Context, e watchevent.DeleteEvent, queue requestQueue) {
	if isServing(e.Object) {
		addUrgent(queue, serverOfPod(ctx, e.Object)...)
		return
	}
	h.EventHandler.Delete(ctx, e, queue)
}

// isServing says whether a pod is ready for clients.
func isServing(object client.Object) bool {
	pod, ok := object.(*corev1.Pod)
	return ok && status.PodReady(pod)
}

// serverOfPod names the server that a pod says it belongs to.
func serverOfPod(_ context.Context, pod client.Object) []reconcile.Request {
	name := pod.GetLabels()[mcpv1alpha1.LabelServer]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: pod.GetNamespace(), Name: name}}}
}
