package controller

import (
	"context"
	"net"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/controller/status"
	"github.com/slipway-mcp/slipway/internal/prober"
	"github.com/slipway-mcp/slipway/internal/workload"
)

// What a probe is like when the spec does not say, as its comments promise.
const (
	defaultInterval = 10 * time.Second
	defaultTimeout  = 5 * time.Second
)

// watchInstances tells the prober which pods there are. What it finds out comes back
// as a reason to reconcile. Pods that are being deleted are among them until nothing of
// them runs: they have sessions.
func (r *Reconciler) watchInstances(_ context.Context, s *state) error {
	var instances []prober.Instance
	for i := range s.pods {
		pod := &s.pods[i]
		if pod.Status.PodIP == "" || s.keys == nil || finished(pod) {
			continue
		}
		instance := prober.Instance{
			Pod: s.in(pod.Name), UID: pod.UID,
			Refresh:  s.server.Annotations[mcpv1alpha1.AnnotationRefresh],
			Key:      s.keys.ring.Current,
			Interval: orDefault(s.server.Spec.Verification.Interval, defaultInterval),
			Timeout:  orDefault(s.server.Spec.Verification.Timeout, defaultTimeout),
			Stored:   storedCatalog(s),
			Settings: s.settings, Access: s.access,
			Newest: s.isNewest(pod), Cordoned: s.isCordoned(pod.UID, isDeleted(pod)),
			Closing: isDeleted(pod) && s.ends(pod),
		}
		instances = append(instances, seen(instance, pod))
	}
	s.memory.instances = instances
	r.Prober.Watch(s.name, instances)
	return nil
}

// seen is an instance with what its pod shows.
func seen(instance prober.Instance, pod *corev1.Pod) prober.Instance {
	instance.IP, instance.Starts, instance.Zone = pod.Status.PodIP, restarts(pod), pod.Labels[corev1.LabelTopologyZone]
	instance.Address = ""
	if takesPeers(pod) {
		instance.Address = net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(mcpv1alpha1.AdapterPeerPort))
	}
	instance.Terminating = isDeleted(pod)
	instance.Ready = status.PodReady(pod) && !instance.Terminating
	instance.DrainSeconds = int64(workload.DrainWithin(pod) / time.Second)
	return instance
}

// ends says whether a pod that is being deleted goes because all of its server's pods do: there are to be none, those of
// its template have to be gone before others start, or the namespace goes.
func (s *state) ends(pod *corev1.Pod) bool {
	return s.isInLeavingNamespace() || workload.Replicas(s.server) == 0 || s.server.Spec.Rollout.Strategy == mcpv1alpha1.RolloutRecreate && !s.isNewest(pod)
}

// annotationRestarted is what `kubectl rollout restart` sets in the pod template.
const annotationRestarted = "kubectl.kubernetes.io/restartedAt"

// isNewest says whether a pod is of the template that the Deployment leads to.
func (s *state) isNewest(pod *corev1.Pod) bool {
	deployment := s.deployment()
	return deployment != nil && generationOf(pod.Annotations) == generationOf(deployment.Spec.Template.Annotations)
}

// podGeneration tells pods of a Deployment apart that differ in their template.
type podGeneration struct{ template, restarted string }

func generationOf(annotations map[string]string) podGeneration {
	return podGeneration{annotations[mcpv1alpha1.AnnotationTemplate], annotations[annotationRestarted]}
}

// takingPeers is all that the cache has of the containers of pods that take requests of other pods. It is shared by all
// of these pods, so the caller must not change it.
var takingPeers = []corev1.Container{{
	Name: mcpv1alpha1.ContainerAdapter, Ports: []corev1.ContainerPort{{ContainerPort: mcpv1alpha1.AdapterPeerPort}},
}}

// takesPeers says whether a pod takes requests of other pods. One of an older template has no port for that.
func takesPeers(pod *corev1.Pod) bool {
	for i := range pod.Spec.InitContainers {
		container := &pod.Spec.InitContainers[i]
		if container.Name != mcpv1alpha1.ContainerAdapter {
			continue
		}
		for j := range container.Ports {
			if container.Ports[j].ContainerPort == mcpv1alpha1.AdapterPeerPort {
				return true
			}
		}
	}
	return false
}

func isDeleted(pod *corev1.Pod) bool { return !pod.DeletionTimestamp.IsZero() }

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
