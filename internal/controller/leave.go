package controller

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/slipway-mcp/slipway/internal/prober"
)

// takeLeave forgets a server that was deleted, and has the prober look after its pods until they are gone: each has to
// be told that it need not wait for its sessions. The server itself may be gone before its pods are even deleted,
// because there is no finalizer. So the prober uses the last instances that it got.
func (r *Reconciler) takeLeave(ctx context.Context, name types.NamespacedName) (reconcile.Result, error) {
	left, err := r.leftBehind(ctx, name)
	if err != nil {
		return reconcile.Result{}, err
	}
	r.forget(name, left)
	for i := range left {
		if !left[i].Terminating { // Kubernetes has not deleted it yet, or a finalizer keeps it
			return reconcile.Result{RequeueAfter: leftoverRecheck}, nil
		}
	}
	return reconcile.Result{}, nil
}

// leftBehind are the instances of a deleted server whose pods are still there.
func (r *Reconciler) leftBehind(ctx context.Context, name types.NamespacedName) ([]prober.Instance, error) {
	known := r.memories.instances(name)
	if len(known) == 0 {
		return nil, nil
	}
	deployment, err := find(ctx, r.Client, name, &appsv1.Deployment{})
	if err != nil || deployment != nil && metav1.GetControllerOf(deployment) == nil {
		return nil, err // or the user has it outlive its server
	}
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.InNamespace(name.Namespace), client.MatchingFields{serverIndex: name.Name}); err != nil {
		return nil, fmt.Errorf("list pods of deleted MCPServer %s: %w", name, err)
	}
	return leaving(known, pods.Items), nil
}

// leaving are those of the last instances whose pods are still there. All of them end.
func leaving(last []prober.Instance, pods []corev1.Pod) []prober.Instance {
	known := map[types.UID]prober.Instance{}
	for _, instance := range last {
		known[instance.UID] = instance
	}
	var left []prober.Instance
	for i := range pods {
		pod := &pods[i]
		if instance, ok := known[pod.UID]; ok && !finished(pod) {
			instance = seen(instance, pod)
			instance.Cordoned, instance.Closing = false, instance.Terminating
			left = append(left, instance)
		}
	}
	return left
}
