package controller

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	watchevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// A server that starts or stops to serve does not wait behind a thousand others that are
// created at the same time. The queue is the one that the controller has.
func TestServingComesFirst(t *testing.T) {
	pod := func(ready corev1.ConditionStatus) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: someServer.Namespace, Name: "pod", ResourceVersion: string(ready),
				Labels: map[string]string{mcpv1alpha1.LabelServer: someServer.Name},
			},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
		}
	}
	ready, unready := pod(corev1.ConditionTrue), pod(corev1.ConditionFalse)
	const first, last = 1, 1001
	tests := map[string]struct {
		happens func(context.Context, *Reconciler, requestQueue)
		want    int // place in the queue
	}{
		"an instance answers differently": {func(_ context.Context, r *Reconciler, _ requestQueue) { r.Notify(someServer) }, first},
		"a pod becomes ready": {func(ctx context.Context, _ *Reconciler, q requestQueue) {
			newPodHandler().Update(ctx, watchevent.UpdateEvent{ObjectOld: unready, ObjectNew: ready}, q)
		}, first},
		"a pod is no longer ready": {func(ctx context.Context, _ *Reconciler, q requestQueue) {
			newPodHandler().Update(ctx, watchevent.UpdateEvent{ObjectOld: ready, ObjectNew: unready}, q)
		}, first},
		"a pod is deleted": {func(ctx context.Context, _ *Reconciler, q requestQueue) {
			deleted := ready.DeepCopy()
			deleted.DeletionTimestamp = &metav1.Time{Time: noon}
			newPodHandler().Update(ctx, watchevent.UpdateEvent{ObjectOld: ready, ObjectNew: deleted}, q)
		}, first},
		"a pod that serves is gone": {func(ctx context.Context, _ *Reconciler, q requestQueue) {
			newPodHandler().Delete(ctx, watchevent.DeleteEvent{Object: ready}, q)
		}, first},
		"a pod is created": {func(ctx context.Context, _ *Reconciler, q requestQueue) {
			newPodHandler().Create(ctx, watchevent.CreateEvent{Object: unready}, q)
		}, last},
		"a pod that never served is gone": {func(ctx context.Context, _ *Reconciler, q requestQueue) {
			newPodHandler().Delete(ctx, watchevent.DeleteEvent{Object: unready}, q)
		}, last},
		"a pod is listed at the start": {func(ctx context.Context, _ *Reconciler, q requestQueue) {
			newPodHandler().Create(ctx, watchevent.CreateEvent{Object: ready, IsInInitialList: true}, q)
		}, last},
		"a registry has answered": {func(_ context.Context, r *Reconciler, _ requestQueue) { r.enqueue(someServer) }, last},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			queue := priorityqueue.New[reconcile.Request](t.Name())
			defer queue.ShutDown()
			r := New(Options{Now: time.Now})
			r.startBackground(t.Context(), queue)
			for i := range 1000 {
				server := &mcpv1alpha1.MCPServer{ObjectMeta: metav1.ObjectMeta{Namespace: someServer.Namespace, Name: fmt.Sprintf("new-%d", i)}}
				(&handler.EnqueueRequestForObject{}).Create(t.Context(), watchevent.CreateEvent{Object: server}, queue)
			}
			test.happens(t.Context(), r, queue)
			for place := 1; ; place++ {
				request, _ := queue.Get()
				queue.Done(request)
				if request.NamespacedName != someServer {
					continue
				}
				if place != test.want {
					t.Errorf("it is number %d in the queue, want %d", place, test.want)
				}
				return
			}
		})
	}
}
