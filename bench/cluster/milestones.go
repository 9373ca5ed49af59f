package main

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// milestone is something that happens once on the way from an MCPServer to one that is
// verified. They are in the order in which they happen.
type milestone int

const (
	asked          milestone = iota // the request to create it is about to be sent
	stored                          // the API server has answered it
	deploymentSeen                  // the manager has created the Deployment
	replicaSetSeen                  // kube-controller-manager has made the ReplicaSet
	podSeen                         // and the pod
	podScheduled                    // the pod has a node
	adapterStarted                  // the native sidecar runs, and its hook has ended
	serverRunning                   // the server's container runs
	podReady                        // the adapter has had an answer from the server
	verified                        // the MCPServer is Ready and Verified
	milestones                      // how many there are
)

// reachedBy says of which server an object tells what it has reached.
func reachedBy(object client.Object) (server string, reached []milestone) {
	server = object.GetLabels()[mcpv1alpha1.LabelServer]
	switch o := object.(type) {
	case *mcpv1alpha1.MCPServer:
		server = o.Name
		if isTrue(o, mcpv1alpha1.ConditionReady) && isTrue(o, mcpv1alpha1.ConditionVerified) {
			reached = append(reached, verified)
		}
	case *appsv1.Deployment:
		reached = append(reached, deploymentSeen)
	case *appsv1.ReplicaSet:
		reached = append(reached, replicaSetSeen)
	case *corev1.Pod:
		reached = reachedByPod(o)
	}
	return server, reached
}

func isTrue(server *mcpv1alpha1.MCPServer, condition string) bool {
	found := meta.FindStatusCondition(server.Status.Conditions, condition)
	return found != nil && found.Status == "True" && found.ObservedGeneration == server.Generation
}

func reachedByPod(pod *corev1.Pod) []milestone {
	reached := []milestone{podSeen}
	if pod.Spec.NodeName != "" {
		reached = append(reached, podScheduled)
	}
	for _, status := range pod.Status.InitContainerStatuses {
		if status.Name == mcpv1alpha1.ContainerAdapter && status.Started != nil && *status.Started {
			reached = append(reached, adapterStarted)
		}
	}
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == mcpv1alpha1.ContainerServer && status.State.Running != nil {
			reached = append(reached, serverRunning)
		}
	}
	if isReady(pod) {
		reached = append(reached, podReady)
	}
	return reached
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// timeline is when one server has reached what.
type timeline [milestones]time.Time

// note keeps the first time at which a milestone is seen.
func (t *timeline) note(reached milestone, at time.Time) {
	if t[reached].IsZero() {
		t[reached] = at
	}
}

// missing are the milestones that were not reached.
func (t *timeline) missing() (names []string) {
	for m := range milestones {
		if t[m].IsZero() {
			names = append(names, milestoneNames[m])
		}
	}
	return names
}

// stages are the times from each milestone to the next. Every kind of object has a watch
// of its own, so what came first can be heard of last: nothing happens later than what
// depends on it.
func (t *timeline) stages() (durations [milestones]time.Duration) {
	at := *t
	for m := verified; m > asked; m-- {
		if at[m].Before(at[m-1]) {
			at[m-1] = at[m]
		}
	}
	for m := stored; m <= verified; m++ {
		durations[m] = at[m].Sub(at[m-1])
	}
	return durations
}

// total is the time from the first milestone to the last.
func (t *timeline) total() time.Duration { return t[verified].Sub(t[asked]) }

var milestoneNames = [milestones]string{
	"asked", "stored", "deployment", "replicaSet", "pod", "scheduled", "adapterStarted", "serverRunning", "podReady", "verified",
}
