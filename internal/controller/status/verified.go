package status

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/prober"
	"github.com/slipway-mcp/slipway/internal/reason"
)

// verified returns the verdict of the verifications. It also returns what the manager waits for until
// the verdict is about the current instances, or nil if it waits for nothing.
func (v *view) verified() (verdict, *Obstacle) {
	if v.off != "" {
		return verdict{metav1.ConditionUnknown, v.off, "no pods are wanted, so there is no pod to ask", 0}, nil
	}
	if v.ready == 0 {
		return v.withoutReadyPod(), nil
	}
	was, known := v.was(mcpv1alpha1.ConditionVerified)
	if good := v.servingWith(prober.Verified); len(good) > 0 {
		if known && was.isTrue() && !slices.ContainsFunc(good, func(in *instance) bool { return !in.remembered }) {
			return was, nil // nothing is known beyond that
		}
		return v.works(good), nil
	}
	if bad := v.servingWith(prober.Failed); len(bad) > 0 {
		return verdict{metav1.ConditionFalse, mcpv1alpha1.ReasonProbeFailed, told(bad), 0}, nil
	}
	// One of which something is known says more than one that was not asked.
	for _, unknown := range []struct {
		outcome prober.Outcome
		reason  string
		text    string
	}{
		{prober.Unauthorized, mcpv1alpha1.ReasonUnauthorized, "the server wants credentials that the manager does not have, so what it offers cannot be checked; " +
			"clients that have credentials can use it"},
		{prober.Full, mcpv1alpha1.ReasonFull, "the server has no room for another session, so nothing could be checked; it is tried again; " +
			string(reason.MoreSessions)},
		{prober.Unreachable, mcpv1alpha1.ReasonUnreachable, "the manager cannot connect to the pods, which says nothing about clients; " +
			string(reason.LetManagerIn)},
	} {
		if found := v.servingWith(unknown.outcome); len(found) > 0 {
			return verdict{metav1.ConditionUnknown, unknown.reason, unknown.text + "; " + told(found), 0}, nil
		}
	}
	asking := &Obstacle{mcpv1alpha1.ReasonProbePending, "pods are ready and about to be asked what they offer"}
	if standsUntilAsked(was) {
		return was, asking
	}
	return verdict{metav1.ConditionUnknown, asking.Reason, asking.Message, 0}, asking
}

// standsUntilAsked says whether an answer stands although those who gave it are gone
// and the ones in their place were not asked yet: a rollout, or another manager, is no
// reason to call a server broken. None is left to stand after an outage, because no
// ready pod means no answer.
func standsUntilAsked(was verdict) bool {
	return was.isTrue() || slices.Contains(followsAvailable, was.reason)
}

// withoutReadyPod is the verdict while no pod is ready. It is that the server does not work,
// if that is the cause.
func (v *view) withoutReadyPod() verdict {
	for i := range v.instances {
		in := &v.instances[i]
		if in.current && in.problem != nil && isOfServer(in.problem.Reason) {
			return verdict{metav1.ConditionFalse, mcpv1alpha1.ReasonProbeFailed, "pod " + in.pod.Name + ": " + in.problem.Message, 0}
		}
	}
	return verdict{metav1.ConditionUnknown, mcpv1alpha1.ReasonProbePending, "no pod is ready to be asked what it offers", 0}
}

// servingWith are the instances that clients can reach and of which an outcome is known.
func (v *view) servingWith(outcome prober.Outcome) []*instance {
	var found []*instance
	for i := range v.instances {
		if in := &v.instances[i]; in.serving() && in.outcome == outcome {
			found = append(found, in)
		}
	}
	return found
}

// told is what the first of some instances reported.
func told(found []*instance) string {
	text := "pod " + found[0].pod.Name + ": " + found[0].message
	if others := len(found) - 1; others > 0 {
		text += fmt.Sprintf(" (and %d more)", others)
	}
	return text
}

// works is the verdict when some instances were asked and answered.
func (v *view) works(good []*instance) verdict {
	d := verdict{metav1.ConditionTrue, mcpv1alpha1.ReasonVerified, fmt.Sprintf("a real MCP exchange with %d of %s succeeded", len(good), some(v.ready, "ready pod")), 0}
	var notes []string
	if i := slices.IndexFunc(good, func(in *instance) bool { return in.tooLarge != "" }); i >= 0 {
		d.reason = mcpv1alpha1.ReasonCatalogTooLarge
		notes = append(notes, "the server lists more than is taken from it, so the status has the last that could be taken: "+brief(good[i].tooLarge))
	}
	if disagreement := disagreement(good); disagreement != "" {
		d.reason = mcpv1alpha1.ReasonInstancesDisagree
		notes = append(notes, "pods offer different tools, prompts or resources, so clients see one or the other: "+disagreement)
	}
	if slices.ContainsFunc(good, func(in *instance) bool { return in.flapping }) {
		notes = append(notes, "what the server offers changes so often that not every change is followed")
	}
	unlisted := slices.DeleteFunc(slices.Clone(good), func(in *instance) bool { return in.message == "" })
	for _, found := range [][]*instance{unlisted, v.servingWith(prober.Failed)} {
		if len(found) > 0 {
			notes = append(notes, told(found))
		}
	}
	d.message = strings.Join(append([]string{d.message}, notes...), "; ")
	return d
}

// What is said of a disagreement: so many catalogs, and so many pods of each.
const (
	catalogsNamed = 3
	podsNamed     = 3
)

// disagreement says which instances offer what, if not all offer the same.
func disagreement(good []*instance) string {
	pods := map[string][]string{}
	for _, in := range good {
		if in.digest != "" {
			pods[in.digest] = append(pods[in.digest], in.pod.Name)
		}
	}
	if len(pods) < 2 {
		return ""
	}
	var parts []string
	for digest, names := range pods {
		parts = append(parts, listPods(names)+" have "+digest)
	}
	slices.Sort(parts)
	if more := len(parts) - catalogsNamed; more > 0 {
		parts = append(parts[:catalogsNamed], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, "; ")
}
