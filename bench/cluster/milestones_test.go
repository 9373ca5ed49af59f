package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

func labeled() metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: "other", Labels: map[string]string{mcpv1alpha1.LabelServer: "one"}}
}

func serverWith(conditions ...metav1.Condition) *mcpv1alpha1.MCPServer {
	return &mcpv1alpha1.MCPServer{
		ObjectMeta: metav1.ObjectMeta{Name: "one", Generation: 2},
		Status:     mcpv1alpha1.MCPServerStatus{Conditions: conditions},
	}
}

func condition(name string, generation int64) metav1.Condition {
	return metav1.Condition{Type: name, Status: metav1.ConditionTrue, ObservedGeneration: generation}
}

func TestReachedBy(t *testing.T) {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	for name, test := range map[string]struct {
		object client.Object
		want   []milestone
	}{
		"deployment": {&appsv1.Deployment{ObjectMeta: labeled()}, []milestone{deploymentSeen}},
		"replicaSet": {&appsv1.ReplicaSet{ObjectMeta: labeled()}, []milestone{replicaSetSeen}},
		"new pod":    {&corev1.Pod{ObjectMeta: labeled()}, []milestone{podSeen}},
		"pod whose sidecar runs, but not its hook's end": {&corev1.Pod{ObjectMeta: labeled(), Spec: corev1.PodSpec{NodeName: "node"}, Status: corev1.PodStatus{
			InitContainerStatuses: []corev1.ContainerStatus{{Name: mcpv1alpha1.ContainerAdapter, State: running, Started: new(false)}},
			ContainerStatuses:     []corev1.ContainerStatus{{Name: mcpv1alpha1.ContainerServer}},
			Conditions:            []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}},
		}}, []milestone{podSeen, podScheduled}},
		"ready pod": {&corev1.Pod{ObjectMeta: labeled(), Spec: corev1.PodSpec{NodeName: "node"}, Status: corev1.PodStatus{
			InitContainerStatuses: []corev1.ContainerStatus{{Name: mcpv1alpha1.ContainerAdapter, State: running, Started: new(true)}},
			ContainerStatuses:     []corev1.ContainerStatus{{Name: mcpv1alpha1.ContainerServer, State: running}},
			Conditions:            []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		}}, []milestone{podSeen, podScheduled, adapterStarted, serverRunning, podReady}},
		"new server":                     {serverWith(), nil},
		"server that is only Ready":      {serverWith(condition(mcpv1alpha1.ConditionReady, 2)), nil},
		"server of an earlier spec":      {serverWith(condition(mcpv1alpha1.ConditionReady, 1), condition(mcpv1alpha1.ConditionVerified, 2)), nil},
		"server that is Ready, Verified": {serverWith(condition(mcpv1alpha1.ConditionReady, 2), condition(mcpv1alpha1.ConditionVerified, 2)), []milestone{verified}},
	} {
		t.Run(name, func(t *testing.T) {
			server, reached := reachedBy(test.object)
			if server != "one" {
				t.Errorf("server = %q", server)
			}
			if diff := cmp.Diff(test.want, reached); diff != "" {
				t.Errorf("reached (-want +got):\n%s", diff)
			}
		})
	}
}

// at makes a timeline of milliseconds.
func at(milliseconds ...int) *timeline {
	line, start := &timeline{}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for m, ms := range milliseconds {
		line.note(milestone(m), start.Add(time.Duration(ms)*time.Millisecond))
	}
	return line
}

func TestStages(t *testing.T) {
	for name, test := range map[string]struct {
		line *timeline
		want []int
	}{
		"in order":                    {at(0, 5, 25, 30, 40, 45, 900, 910, 1200, 1300), []int{0, 5, 20, 5, 10, 5, 855, 10, 290, 100}},
		"at once":                     {at(0, 5, 25, 30, 40, 45, 900, 900, 900, 1000), []int{0, 5, 20, 5, 10, 5, 855, 0, 0, 100}},
		"heard of in another order":   {at(0, 50, 25, 30, 28, 45, 900, 910, 1200, 1150), []int{0, 25, 0, 3, 0, 17, 855, 10, 240, 0}},
		"answered after all the rest": {at(0, 2000, 25, 30, 40, 45, 900, 910, 1200, 1300), []int{0, 25, 0, 5, 10, 5, 855, 10, 290, 100}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []int
			var sum time.Duration
			for _, stage := range test.line.stages() {
				got = append(got, int(stage.Milliseconds()))
				sum += stage
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("stages (-want +got):\n%s", diff)
			}
			if sum != test.line.total() {
				t.Errorf("the stages are %v together, and the whole is %v", sum, test.line.total())
			}
		})
	}
}

func TestNoteKeepsTheFirst(t *testing.T) {
	line, first := &timeline{}, time.Now()
	line.note(podSeen, first)
	line.note(podSeen, first.Add(time.Second))
	if line[podSeen] != first {
		t.Errorf("pod seen at %v, first at %v", line[podSeen], first)
	}
	if diff := cmp.Diff([]string{"asked", "stored", "deployment", "replicaSet", "scheduled", "adapterStarted", "serverRunning", "podReady", "verified"}, line.missing()); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
}
