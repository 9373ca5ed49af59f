package controller

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/prober"
	"github.com/slipway-mcp/slipway/internal/workload"
)

// runningPod is a pod as the API server has it.
func runningPod(template string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "a", UID: "a", Labels: map[string]string{corev1.LabelTopologyZone: "zone-1"},
			Annotations: map[string]string{mcpv1alpha1.AnnotationTemplate: template},
		},
		Spec: corev1.PodSpec{
			NodeName: "node", TerminationGracePeriodSeconds: new(int64(80)),
			InitContainers: []corev1.Container{{
				Name: mcpv1alpha1.ContainerAdapter, Image: "adapter", Args: []string{"serve"},
				Ports: []corev1.ContainerPort{{ContainerPort: mcpv1alpha1.AdapterPort}, {ContainerPort: mcpv1alpha1.AdapterPeerPort}},
			}},
			Containers: []corev1.Container{{Name: mcpv1alpha1.ContainerServer}},
		},
		Status: corev1.PodStatus{
			PodIP:             "2001:db8::1",
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{RestartCount: 2}},
		},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

func deletedWith(seconds int64) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: noon}, &seconds
	}
}

// What the cache keeps of a pod is enough to tell the others of it. What went through the cache can do so again.
func TestInstancesOfTheCache(t *testing.T) {
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want prober.Instance
	}{
		"serves": {runningPod("new"), prober.Instance{
			IP: "2001:db8::1", Ready: true, Starts: 2, Address: "[2001:db8::1]:16272", Zone: "zone-1",
		}},
		"is of an older template": {
			runningPod("old", func(pod *corev1.Pod) { pod.Spec.InitContainers[0].Ports = pod.Spec.InitContainers[0].Ports[:1] }),
			prober.Instance{IP: "2001:db8::1", Ready: true, Starts: 2, Zone: "zone-1"},
		},
		"is in no zone": {runningPod("new", func(pod *corev1.Pod) { pod.Labels = nil }), prober.Instance{
			IP: "2001:db8::1", Ready: true, Starts: 2, Address: "[2001:db8::1]:16272",
		}},
		"was deleted": {runningPod("new", deletedWith(80)), prober.Instance{
			IP: "2001:db8::1", Terminating: true, Starts: 2, Address: "[2001:db8::1]:16272", Zone: "zone-1",
		}},
		"was deleted with less time": {runningPod("new", deletedWith(20)), prober.Instance{
			IP: "2001:db8::1", Terminating: true, DrainSeconds: 7, Starts: 2, Address: "[2001:db8::1]:16272", Zone: "zone-1",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				if _, err := trimPod(test.pod); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(test.want, seen(prober.Instance{}, test.pod), cmpopts.IgnoreFields(prober.Instance{}, "Key")); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
			if test.pod.Spec.Containers != nil || test.pod.Spec.NodeName != "node" {
				t.Errorf("the cache has %+v", test.pod.Spec)
			}
		})
	}
}

// Pods of a Deployment are told apart by what the cache keeps of its template, also after kubectl rollout restart. A pod
// that is deleted ends for good only if all others do.
func TestWhichPodsEnd(t *testing.T) {
	restarted := func(annotations map[string]string) { annotations[annotationRestarted] = "2026-11-18T12:00:00Z" }
	for name, test := range map[string]struct {
		change         func(*mcpv1alpha1.MCPServerSpec)
		template       string
		restarted      bool // the Deployment
		isNewest, ends bool
	}{
		"newest":                  {nil, "new", false, true, false},
		"old":                     {nil, "old", false, false, false},
		"restarted":               {nil, "new", true, false, false},
		"suspended":               {func(s *mcpv1alpha1.MCPServerSpec) { s.Suspend = true }, "new", false, true, true},
		"scaled to zero":          {func(s *mcpv1alpha1.MCPServerSpec) { s.Replicas = new(int32(0)) }, "new", false, true, true},
		"recreated":               {func(s *mcpv1alpha1.MCPServerSpec) { s.Rollout.Strategy = mcpv1alpha1.RolloutRecreate }, "old", false, false, true},
		"recreated by a restart":  {func(s *mcpv1alpha1.MCPServerSpec) { s.Rollout.Strategy = mcpv1alpha1.RolloutRecreate }, "new", true, false, true},
		"one that others outlive": {func(s *mcpv1alpha1.MCPServerSpec) { s.Rollout.Strategy = mcpv1alpha1.RolloutRecreate }, "new", false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			deployment := &appsv1.Deployment{}
			deployment.Spec.Template.Annotations = map[string]string{mcpv1alpha1.AnnotationTemplate: "new"}
			if test.restarted {
				restarted(deployment.Spec.Template.Annotations)
			}
			if _, err := trimDeployment(deployment); err != nil {
				t.Fatal(err)
			}
			server := &mcpv1alpha1.MCPServer{Spec: mcpv1alpha1.MCPServerSpec{Replicas: new(int32(2))}}
			if test.change != nil {
				test.change(&server.Spec)
			}
			s := newState(server, time.Time{})
			s.live[workload.ObjectDeployment] = deployment
			pod := runningPod(test.template)
			if newest, ends := s.isNewest(pod), s.ends(pod); newest != test.isNewest || ends != test.ends {
				t.Errorf("newest: %t, ends: %t; want %t and %t", newest, ends, test.isNewest, test.ends)
			}
		})
	}
}
