package controller

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/controller/status"
	"github.com/slipway-mcp/slipway/internal/prober"
)

// What a probe is like when the spec does not say, as its comments promise.
const (
	defaultInterval = 10 * time.Second
	defaultTimeout  = 5 * time.Second
)

// watchInstances tells the prober which pods there are. What it finds out comes back
// as a reason to reconcile.
func (r *Reconciler) watchInstances(_ context.Context, s *state) error {
	var instances []prober.Instance
	for i := range s.pods {
		pod := &s.pods[i]
		if pod.Status.PodIP == "" || !pod.DeletionTimestamp.IsZero() || s.keys == nil || finished(pod) {
			continue
		}
		instances = append(instances, prober.Instance{
			Pod: s.in(pod.Name), UID: pod.UID, IP: pod.Status.PodIP,
			Ready: status.PodReady(pod), Starts: restarts(pod),
			Refresh:  s.server.Annotations[mcpv1alpha1.AnnotationRefresh],
			Key:      s.keys.ring.Current,
			Interval: orDefault(s.server.Spec.Verification.Interval, defaultInterval),
			Timeout:  orDefault(s.server.Spec.Verification.Timeout, defaultTimeout),
			Stored:   storedCatalog(s),
			Settings: s.settings, Access: s.access,
		})
	}
	r.Prober.Watch(s.name, instances)
	return nil
}

func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// restarts counts the starts of a pod's containers after the first.
func restarts(pod *corev1.Pod) int32 {
	var sum int32
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			sum += statuses[i].RestartCount
		}
	}
	return sum
}

func orDefault(duration *metav1.Duration, otherwise time.Duration) time.Duration {
	if duration == nil {
		return otherwise
	}
	return duration.Duration
}
