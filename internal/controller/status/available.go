package status

import (
	"cmp"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// available says whether pods are ready, and if none is, what is in the way.
func (v *view) available() verdict {
	switch {
	case v.off == mcpv1alpha1.ReasonSuspended:
		return verdict{metav1.ConditionFalse, v.off, "spec.suspend is true, so no pods are wanted; set it to false to start the server" + v.drains(), 0}
	case v.off != "":
		return verdict{metav1.ConditionFalse, v.off, "spec.replicas is 0, so no pods are wanted; raise it to start the server" + v.drains(), 0}
	case v.ready > 0:
		return verdict{metav1.ConditionTrue, mcpv1alpha1.ReasonAvailable, v.podsReady(), 0}
	default:
		why := v.trouble()
		return verdict{metav1.ConditionFalse, why.Reason, why.Message, 0}
	}
}

// sessionsFull says that every session slot is taken, if it is. Idle sessions still make room
// for newcomers.
func (v *view) sessionsFull() string {
	if v.Sessions == nil || v.SessionsLimit == 0 || *v.Sessions != v.SessionsLimit {
		return ""
	}
	return fmt.Sprintf("; %d of %s", *v.Sessions, some(v.SessionsLimit, "session"))
}

// drains says how many pods end, if any do, and how many sessions they wait for.
func (v *view) drains() string {
	if v.Draining == nil {
		return ""
	}
	verb := "drain"
	if v.Draining.Replicas == 1 {
		verb = "drains"
	}
	text := "; " + some(v.Draining.Replicas, "pod") + " " + verb
	if v.Draining.Sessions > 0 {
		text += ", with " + some(v.Draining.Sessions, "session")
	}
	return text
}

func (v *view) podsReady() string {
	return fmt.Sprintf("%d of %s ready", v.ready, some(max(v.want, v.ready), "pod"))
}

// behind says whether the Deployment does not yet say, or has not yet heard, what the
// spec asks for: what its pods do is of the past. That of a server which was refused
// stays as it is.
func (v *view) behind() bool {
	if v.Refusal != nil {
		return false
	}
	d := v.Deployment
	return d == nil || d.Generation < v.Applied || d.Status.ObservedGeneration < d.Generation ||
		d.Spec.Replicas != nil && *d.Spec.Replicas != v.want
}

// rolledOut says whether there are as many pods as wanted, all of the current
// template and ready. It is as `kubectl rollout status` has it, of a Deployment that
// is not behind.
func (v *view) rolledOut() bool {
	s := &v.Deployment.Status
	return s.UpdatedReplicas >= v.want && s.Replicas <= s.UpdatedReplicas && v.ready >= v.want
}

// severity orders what can keep pods from being ready, the most telling first: what the
// user must fix, then what others must fix, then what may resolve without action.
var severity = []string{
	mcpv1alpha1.ReasonImagePullFailed,
	mcpv1alpha1.ReasonServerExits,
	mcpv1alpha1.ReasonServerIncompatible,
	mcpv1alpha1.ReasonServerSilent,
	mcpv1alpha1.ReasonPodsNotCreated,
	mcpv1alpha1.ReasonPodsUnschedulable,
	mcpv1alpha1.ReasonPodsNotReady,
	mcpv1alpha1.ReasonPodsStarting,
}

// trouble is what is in the way of pods that are wanted and not ready: the most
// telling of what is wrong with those of the current template. Others are about to go.
func (v *view) trouble() problem {
	if v.Deployment == nil {
		return v.nothingCreated()
	}
	if v.behind() {
		return *passing(mcpv1alpha1.ReasonPodsStarting, "pods are about to be created")
	}
	var found []problem
	if message, failed := replicaFailure(v.Deployment); failed {
		found = append(found, *passing(mcpv1alpha1.ReasonPodsNotCreated, "pods cannot be created: "+message))
	}
	numbers := map[string]int32{}
	for i := range v.instances {
		if in := &v.instances[i]; in.current && in.problem != nil {
			numbers[in.problem.Reason]++
			found = append(found, problem{Obstacle{in.problem.Reason, "pod " + in.pod.Name + ": " + in.problem.Message}, in.problem.stalls})
		}
	}
	if len(found) == 0 {
		return *passing(mcpv1alpha1.ReasonPodsStarting, "pods are being created or replaced")
	}
	// Of equals the first: the order is that of names.
	worst := slices.MinFunc(found, func(a, b problem) int {
		return cmp.Or(cmp.Compare(slices.Index(severity, a.Reason), slices.Index(severity, b.Reason)), cmp.Compare(rank(a), rank(b)))
	})
	if others := numbers[worst.Reason] - 1; others > 0 {
		worst.Message += fmt.Sprintf(" (and the like in %s)", some(others, "other pod"))
	}
	return worst
}

// rank puts what the user must act on before what may pass.
func rank(p problem) int {
	if p.stalls {
		return 0
	}
	return 1
}

// nothingCreated is what is in the way while there is not even a Deployment.
func (v *view) nothingCreated() problem {
	switch {
	case v.Refusal != nil:
		return *passing(mcpv1alpha1.ReasonPodsNotCreated, "there are no pods, because the server is not accepted: "+v.Refusal.Message)
	case v.Waiting != nil && v.Waiting.Reason != mcpv1alpha1.ReasonProgressing:
		return *passing(mcpv1alpha1.ReasonPodsNotCreated, "there are no pods yet: "+v.Waiting.Message)
	default:
		return *passing(mcpv1alpha1.ReasonPodsStarting, "pods are about to be created")
	}
}

// replicaFailure is the API server's word on pods that it does not let be created.
func replicaFailure(d *appsv1.Deployment) (string, bool) {
	for i := range d.Status.Conditions {
		c := &d.Status.Conditions[i]
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			return c.Message, true
		}
	}
	return "", false
}
