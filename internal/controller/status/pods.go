package status

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// patience is how long the kubelet may take for what it does with a pod, before the status says
// more than that it is under way. Within it, the kubelet has tried at least twice to pull an
// image: it waits 10 seconds after the first failure.
const patience = time.Minute

// PodReady says whether the kubelet calls a pod ready.
func PodReady(pod *corev1.Pod) bool {
	condition := podCondition(pod, corev1.PodReady)
	return condition != nil && condition.Status == corev1.ConditionTrue
}

func podCondition(pod *corev1.Pod, name corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == name {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// Recheck returns after which time the status has to be computed again even if nothing happens:
// what it says of a pod that is not ready depends on how long that lasts. Zero means never.
func Recheck(o Observed) time.Duration {
	var soonest time.Duration
	for i := range o.Pods {
		pod := &o.Pods[i]
		if isDraining(pod) || isFinished(pod) {
			continue
		}
		for _, deadline := range deadlines(pod, o.StartTimeout) {
			if left := deadline.Sub(o.Now.Time); left > 0 && (soonest == 0 || left < soonest) {
				soonest = left
			}
		}
	}
	return soonest
}

// deadlines are the times at which what the status says of a pod changes by itself.
func deadlines(pod *corev1.Pod, startTimeout time.Duration) []time.Time {
	var times []time.Time
	if server := containerStatus(pod, mcpv1alpha1.ContainerServer); server != nil {
		if end := lastCrash(server); end != nil {
			times = append(times, end.FinishedAt.Add(crashWindow))
		}
	}
	if PodReady(pod) {
		return times
	}
	times = append(times, creatingSince(pod).Add(patience))
	for _, name := range []string{mcpv1alpha1.ContainerAdapter, mcpv1alpha1.ContainerServer} {
		if c := containerStatus(pod, name); c != nil && c.State.Running != nil {
			times = append(times, c.State.Running.StartedAt.Add(patience), c.State.Running.StartedAt.Add(startTimeout))
		}
	}
	return times
}

func isDraining(pod *corev1.Pod) bool { return !pod.DeletionTimestamp.IsZero() }

// isFinished says whether a pod is only a record, such as that of an eviction.
func isFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// creatingSince is since when the kubelet could create the server's container: since it ended, or else
// since the adapter runs, or else since the pod has a node, or else since there is a pod.
func creatingSince(pod *corev1.Pod) time.Time {
	since := firstCreatingSince(pod)
	if server := containerStatus(pod, mcpv1alpha1.ContainerServer); server != nil {
		if end := server.LastTerminationState.Terminated; end != nil && end.FinishedAt.After(since) {
			return end.FinishedAt.Time
		}
	}
	return since
}

func firstCreatingSince(pod *corev1.Pod) time.Time {
	if adapter := containerStatus(pod, mcpv1alpha1.ContainerAdapter); adapter != nil && adapter.State.Running != nil {
		return adapter.State.Running.StartedAt.Time
	}
	if scheduled := podCondition(pod, corev1.PodScheduled); scheduled != nil && scheduled.Status == corev1.ConditionTrue && !scheduled.LastTransitionTime.IsZero() {
		return scheduled.LastTransitionTime.Time
	}
	return pod.CreationTimestamp.Time
}

// runningSince is since when the server's container runs, or the zero time.
func runningSince(pod *corev1.Pod) time.Time {
	if server := containerStatus(pod, mcpv1alpha1.ContainerServer); server != nil && server.State.Running != nil {
		return server.State.Running.StartedAt.Time
	}
	return time.Time{}
}

func containerStatus(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			if statuses[i].Name == name {
				return &statuses[i]
			}
		}
	}
	return nil
}

// at is a time as messages show it.
func at(t time.Time) string { return t.UTC().Format(time.RFC3339) }
