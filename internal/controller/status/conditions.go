package status

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// messageRunes is how long a condition's message may be. The API server would take
// more, people would not.
const messageRunes = 4096

// verdict is a condition without what is the same for all of them.
type verdict struct {
	status  metav1.ConditionStatus
	reason  string
	message string
}

func (d verdict) isTrue() bool { return d.status == metav1.ConditionTrue }

// conditionsOf are the conditions, always in the same order.
func conditionsOf(v *view, counts *mcpv1alpha1.CatalogCounts) []metav1.Condition {
	accepted, available := v.accepted(), v.available()
	verified, asking := v.verified()
	ready := v.readiness(accepted, available, verified, counts)
	conditions := []metav1.Condition{
		v.condition(mcpv1alpha1.ConditionReady, ready),
		v.condition(mcpv1alpha1.ConditionAccepted, accepted),
		v.condition(mcpv1alpha1.ConditionAvailable, available),
		v.condition(mcpv1alpha1.ConditionVerified, verified),
	}
	if name, why := v.progress(available, asking); name != "" {
		conditions = append(conditions, v.condition(name, verdict{metav1.ConditionTrue, why.Reason, why.Message}))
	}
	return conditions
}

// condition makes a condition of a verdict. Its time is the one it had, unless its
// status has changed.
func (v *view) condition(name string, d verdict) metav1.Condition {
	since := v.Now.Rfc3339Copy() // as it will be read again
	if was := meta.FindStatusCondition(v.before.Conditions, name); was != nil && was.Status == d.status {
		since = was.LastTransitionTime
	}
	return metav1.Condition{
		Type: name, Status: d.status, Reason: d.reason, Message: cut(printable(d.message), messageRunes),
		ObservedGeneration: v.Server.Generation, LastTransitionTime: since,
	}
}

// was is what a condition said before.
func (v *view) was(name string) (verdict, bool) {
	condition := meta.FindStatusCondition(v.before.Conditions, name)
	if condition == nil {
		return verdict{}, false
	}
	return verdict{condition.Status, condition.Reason, condition.Message}, true
}

// accepted says whether the spec makes sense. Whoever waits has not found out, so
// what was known stays, but that a spec was refused: it may be another by now. A failure
// undoes not even that.
func (v *view) accepted() verdict {
	if v.Refusal != nil {
		return verdict{metav1.ConditionFalse, v.Refusal.Reason, v.Refusal.Message}
	}
	if v.Waiting == nil || v.Waiting.Reason == mcpv1alpha1.ReasonRolloutQueued { // for which all of it was looked at
		return verdict{metav1.ConditionTrue, mcpv1alpha1.ReasonAccepted, "the spec and what it refers to make sense"}
	}
	was, known := v.was(mcpv1alpha1.ConditionAccepted)
	if known && (was.isTrue() || was.status == metav1.ConditionFalse && v.Waiting.Reason == mcpv1alpha1.ReasonRetrying) {
		return was
	}
	return verdict{metav1.ConditionUnknown, v.Waiting.Reason, v.Waiting.Message}
}

// followsAvailable are the reasons for which nothing could be found out about an
// instance: then nothing speaks against one that is available.
var followsAvailable = []string{mcpv1alpha1.ReasonUnauthorized, mcpv1alpha1.ReasonFull, mcpv1alpha1.ReasonUnreachable}

// readiness sums the other conditions up.
func (v *view) readiness(accepted, available, verified verdict, counts *mcpv1alpha1.CatalogCounts) verdict {
	because := func(d verdict) verdict { return verdict{metav1.ConditionFalse, d.reason, d.message} }
	switch {
	case accepted.status == metav1.ConditionFalse:
		return because(accepted)
	case v.off != "":
		return because(available)
	case !accepted.isTrue():
		return because(accepted)
	case !available.isTrue():
		return because(available)
	case verified.isTrue():
		return verdict{metav1.ConditionTrue, mcpv1alpha1.ReasonReady, offers(counts) + v.podsReady() + v.sessionsFull()}
	case slices.Contains(followsAvailable, verified.reason):
		return verdict{metav1.ConditionTrue, mcpv1alpha1.ReasonReady, v.podsReady() + "; not verified: " + verified.message}
	default:
		return because(verified)
	}
}

// offers counts what a server offers.
func offers(counts *mcpv1alpha1.CatalogCounts) string {
	if counts == nil {
		return ""
	}
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
func (v *view) progress(available verdict, asking *Obstacle) (string, Obstacle) {
	switch {
	case v.Refusal != nil:
		return mcpv1alpha1.ConditionStalled, *v.Refusal
	case v.off != "":
		return v.stopping()
	case v.Waiting != nil:
		return mcpv1alpha1.ConditionReconciling, *v.Waiting
	case v.behind():
		return mcpv1alpha1.ConditionReconciling, Obstacle{mcpv1alpha1.ReasonProgressing, "the Deployment is being brought to what the spec asks for"}
	case !available.isTrue():
		why := Obstacle{available.reason, available.message}
		if stalls(why.Reason) {
			return mcpv1alpha1.ConditionStalled, why
		}
		return mcpv1alpha1.ConditionReconciling, why
	case !v.rolledOut():
		why := v.trouble()
		if stalls(why.Reason) {
			return mcpv1alpha1.ConditionStalled, why
		}
		return mcpv1alpha1.ConditionReconciling, Obstacle{mcpv1alpha1.ReasonProgressing, v.podsReady() + "; " + why.Message}
	case asking != nil:
		return mcpv1alpha1.ConditionReconciling, *asking
	default:
		return "", Obstacle{}
	}
}

// stopping is the progress of a server that should have no pods. One that has none is
// where it should be, whatever else could not be found out.
func (v *view) stopping() (string, Obstacle) {
	gone := v.live == 0 && (v.Deployment == nil || v.Deployment.Status.Replicas == 0 && !v.behind())
	switch {
	case v.Waiting != nil && (!gone || v.Waiting.Reason == mcpv1alpha1.ReasonRetrying):
		return mcpv1alpha1.ConditionReconciling, *v.Waiting
	case !gone:
		return mcpv1alpha1.ConditionReconciling, Obstacle{mcpv1alpha1.ReasonProgressing, "pods are being stopped"}
	default:
		return "", Obstacle{}
	}
}

// stalls says whether the user must do something about what is in the way of pods.
func stalls(reason string) bool {
	switch reason {
	case mcpv1alpha1.ReasonImagePullFailed:
		return true
	default:
		return isOfServer(reason)
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
