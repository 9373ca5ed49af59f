package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/text"
)

// messageBytes is how long a condition's message may be. The API server would take
// more, people would not.
const messageBytes = 1280

// verdict is a condition without what is the same for all of them.
type verdict struct {
	status  metav1.ConditionStatus
	reason  string
	message string
	// generation is that of the spec which the verdict is about, if an earlier verdict stands; 0
	// means the one that the server has now.
	generation int64
}

func (d verdict) isTrue() bool { return d.status == metav1.ConditionTrue }

// conditionsOf are the conditions, always in the same order.
func conditionsOf(v *view, catalog *mcpv1alpha1.Catalog) []metav1.Condition {
	accepted, available := v.accepted(), v.available()
	verified, asking := v.verified()
	enforced, spreading := v.enforced()
	var conditions []metav1.Condition
	if !v.isStopped() {
		conditions = append(conditions, v.condition(mcpv1alpha1.ConditionReady, v.readiness(accepted, available, verified, enforced, catalog)))
	}
	// The column Reason of kubectl get shows the first, so Available comes next.
	conditions = append(conditions,
		v.condition(mcpv1alpha1.ConditionAvailable, available),
		v.condition(mcpv1alpha1.ConditionAccepted, accepted),
		v.condition(mcpv1alpha1.ConditionVerified, verified),
	)
	if v.Access != nil {
		conditions = append(conditions, v.condition(mcpv1alpha1.ConditionAccessEnforced, enforced))
	}
	name, why := v.progress(available, verified, asking)
	if name == "" && v.Access != nil && !v.isStopped() {
		name, why = enforcing(enforced, spreading)
	}
	if name == "" && isOlder(conditions, v.Server.Generation) {
		name, why = mcpv1alpha1.ConditionReconciling, Obstacle{mcpv1alpha1.ReasonProgressing, "not everything is known of the newest spec yet"}
	}
	if name != "" {
		conditions = append(conditions, v.condition(name, verdict{metav1.ConditionTrue, why.Reason, why.Message, 0}))
	}
	return conditions
}

// isOlder says whether any of the conditions is about an earlier spec.
func isOlder(conditions []metav1.Condition, generation int64) bool {
	return slices.ContainsFunc(conditions, func(c metav1.Condition) bool { return c.ObservedGeneration < generation })
}

// condition makes a condition of a verdict. Its time is the one it had, unless its
// status has changed.
func (v *view) condition(name string, d verdict) metav1.Condition {
	since := v.Now.Rfc3339Copy() // as it will be read again
	if was := meta.FindStatusCondition(v.before.Conditions, name); was != nil && was.Status == d.status {
		since = was.LastTransitionTime
	}
	return metav1.Condition{
		Type: name, Status: d.status, Reason: d.reason, Message: text.Fit(d.message, messageBytes),
		ObservedGeneration: cmp.Or(d.generation, v.Server.Generation), LastTransitionTime: since,
	}
}

// was is what a condition said before. It keeps the generation that it was about.
func (v *view) was(name string) (verdict, bool) {
	condition := meta.FindStatusCondition(v.before.Conditions, name)
	if condition == nil {
		return verdict{}, false
	}
	return verdict{condition.Status, condition.Reason, condition.Message, condition.ObservedGeneration}, true
}

// accepted says whether the spec makes sense. A controller that waits has not found out, so an
// earlier verdict stands. That a spec was refused does not stand, because the spec may be another
// by now, unless the controller waits because it failed. A stopped server is at rest, so no verdict
// about an earlier spec stands.
func (v *view) accepted() verdict {
	if v.Refusal != nil {
		return verdict{metav1.ConditionFalse, v.Refusal.Reason, v.Refusal.Message, 0}
	}
	if v.Waiting == nil || v.Waiting.Reason == mcpv1alpha1.ReasonRolloutQueued { // for which all of it was looked at
		return verdict{metav1.ConditionTrue, mcpv1alpha1.ReasonAccepted, "the spec and what it refers to make sense", 0}
	}
	was, known := v.was(mcpv1alpha1.ConditionAccepted)
	stands := was.isTrue() || was.status == metav1.ConditionFalse && v.Waiting.Reason == mcpv1alpha1.ReasonRetrying
	if known && stands && (!v.isStopped() || was.generation == v.Server.Generation) {
		return was
	}
	return verdict{metav1.ConditionUnknown, v.Waiting.Reason, v.Waiting.Message, 0}
}

// followsAvailable are the reasons for which nothing could be found out about an
// instance: then nothing speaks against one that is available.
var followsAvailable = []string{mcpv1alpha1.ReasonUnauthorized, mcpv1alpha1.ReasonFull, mcpv1alpha1.ReasonUnreachable}

// readiness says whether clients can use the server now. Whether its spec is accepted matters only
// if there is nothing to use, or if no client may use it.
func (v *view) readiness(accepted, available, verified, enforced verdict, catalog *mcpv1alpha1.Catalog) verdict {
	because := func(d verdict) verdict { return verdict{metav1.ConditionFalse, d.reason, d.message, d.generation} }
	switch {
	case v.off != "":
		return because(available)
	case !available.isTrue() && !accepted.isTrue():
		return because(accepted)
	case !available.isTrue():
		return because(available)
	case enforced.reason == mcpv1alpha1.ReasonAccessNotEnforced:
		return because(enforced)
	case accepted.reason == mcpv1alpha1.ReasonAuthRequired:
		return because(accepted)
	case verified.isTrue():
		return verdict{metav1.ConditionTrue, mcpv1alpha1.ReasonReady, offers(catalog) + v.podsReady() + v.notes(), verified.generation}
	case slices.Contains(followsAvailable, verified.reason):
		return verdict{metav1.ConditionTrue, mcpv1alpha1.ReasonReady, v.podsReady() + v.notes() + "; not verified: " + verified.message, verified.generation}
	default:
		return because(verified)
	}
}

// notes are what users should know of a server that works.
func (v *view) notes() string {
	text := v.sessionsFull() + v.drains()
	if crashes := Crashes(*v.Observed); crashes != "" {
		text += "; " + crashes
	}
	return text
}

// offers counts what a server offers.
func offers(catalog *mcpv1alpha1.Catalog) string {
	if catalog == nil {
		return ""
	}
	counts := catalog.Counts
	var parts []string
	for _, kind := range []struct {
		number int32
		name   string
	}{
		{counts.Tools, "tool"}, {counts.Prompts, "prompt"},
		{counts.Resources, "resource"}, {counts.ResourceTemplates, "resource template"},
	} {
		if kind.number > 0 || kind.name == "tool" {
			parts = append(parts, some(kind.number, kind.name))
		}
	}
	return strings.Join(parts, ", ") + "; "
}

// some is a number of things.
func some(number int32, thing string) string {
	if number == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", number, thing)
}

// progress says whether the controller is on its way (Reconciling), needs help
// (Stalled) or is there ("").
func (v *view) progress(available, verified verdict, asking *Obstacle) (string, Obstacle) {
	switch {
	case v.isStopped():
		return v.stopping()
	case v.Refusal != nil:
		return mcpv1alpha1.ConditionStalled, *v.Refusal
	case v.off != "":
		return v.stopping()
	case v.Waiting != nil:
		return mcpv1alpha1.ConditionReconciling, *v.Waiting
	case v.behind():
		return mcpv1alpha1.ConditionReconciling, Obstacle{mcpv1alpha1.ReasonProgressing, "the Deployment is rolling out the current spec"}
	case !available.isTrue() || !v.rolledOut():
		return v.rollout(available)
	case asking != nil:
		return mcpv1alpha1.ConditionReconciling, *asking
	case verified.status == metav1.ConditionFalse: // the manager goes on asking
		return mcpv1alpha1.ConditionReconciling, Obstacle{verified.reason, verified.message}
	default:
		return "", Obstacle{}
	}
}

// rollout is the progress of a server of which not every pod is ready and of the current template.
func (v *view) rollout(available verdict) (string, Obstacle) {
	why := v.trouble()
	switch {
	case why.stalls:
		return mcpv1alpha1.ConditionStalled, why.Obstacle
	case !available.isTrue():
		return mcpv1alpha1.ConditionReconciling, why.Obstacle
	case why.Reason == mcpv1alpha1.ReasonPodsStarting:
		return mcpv1alpha1.ConditionReconciling, Obstacle{mcpv1alpha1.ReasonProgressing, v.podsReady() + "; " + why.Message}
	default:
		return mcpv1alpha1.ConditionReconciling, Obstacle{why.Reason, v.podsReady() + "; " + why.Message}
	}
}

// isStopped says whether a server that should have no pods has none.
func (v *view) isStopped() bool {
	return v.off != "" && v.live == 0 && (v.Deployment == nil || v.Deployment.Status.Replicas == 0 && !v.behind())
}

// stopping is the progress of a server that should have no pods. A server that has none is
// where it should be, whatever else could not be found out.
func (v *view) stopping() (string, Obstacle) {
	switch {
	case v.Waiting != nil && (!v.isStopped() || v.Waiting.Reason == mcpv1alpha1.ReasonRetrying):
		return mcpv1alpha1.ConditionReconciling, *v.Waiting
	case !v.isStopped():
		return mcpv1alpha1.ConditionReconciling, Obstacle{mcpv1alpha1.ReasonProgressing, "pods are being stopped"}
	default:
		return "", Obstacle{}
	}
}

// isOfServer says whether pods are not ready because the server itself does not work.
func isOfServer(reason string) bool {
	switch reason {
	case mcpv1alpha1.ReasonServerExits, mcpv1alpha1.ReasonServerIncompatible, mcpv1alpha1.ReasonServerSilent:
		return true
	default:
		return false
	}
}
