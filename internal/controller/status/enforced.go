package status

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/reason"
)

// enforcement is how far the ready pods are with the current access document, by their names.
type enforcement struct {
	old     []string // their adapters cannot read it
	behind  []string // they enforce another one
	unheard []string // they were not asked yet
	// believed says that all of these instances told an earlier manager that they enforce it.
	believed bool
}

// enforcement looks at the ready pods.
func (v *view) enforcement() enforcement {
	e := enforcement{believed: true}
	for i := range v.instances {
		in := &v.instances[i]
		result := v.Results[in.pod.UID]
		switch {
		case !in.serving():
		case result.Report == nil && result.Access == nil:
			e.unheard = append(e.unheard, in.pod.Name)
			e.believed = e.believed && v.enforcedBefore(in)
		case result.Access == nil || result.Access.Version < adapterapi.AccessVersion:
			e.old = append(e.old, in.pod.Name)
		case result.Access.Digest != v.Access.Digest:
			e.behind = append(e.behind, in.pod.Name)
		}
	}
	return e
}

// accessOf is what the status says of the document. The last one stays where no other takes its place.
func accessOf(v *view) *mcpv1alpha1.AccessStatus {
	switch {
	case v.Access == nil:
		return nil
	case v.Access.Digest == "":
		return v.before.Access.DeepCopy()
	default:
		return &mcpv1alpha1.AccessStatus{Digest: v.Access.Digest, Issuers: v.Access.Issuers}
	}
}

// enforced says whether every ready pod enforces the current access document, and whether the document is
// on its way to a pod that takes it.
func (v *view) enforced() (d verdict, spreading bool) {
	if v.Access == nil {
		return verdict{}, false
	}
	pending := func(text string) verdict {
		return verdict{metav1.ConditionUnknown, mcpv1alpha1.ReasonAccessPending, text, 0}
	}
	switch e := v.enforcement(); {
	case len(e.old) > 0:
		return verdict{metav1.ConditionFalse, mcpv1alpha1.ReasonAccessNotEnforced, "pods whose adapter is too old to enforce auth, access and audit serve everyone: " +
			listPods(e.old) + "; " + string(reason.ReplacePods), 0}, false
	case v.Access.Problem != "":
		return verdict{metav1.ConditionFalse, mcpv1alpha1.ReasonAccessNotEnforced, v.Access.Problem, 0}, false
	case v.Access.Digest == "":
		if was, known := v.was(mcpv1alpha1.ConditionAccessEnforced); known && was.generation == v.Server.Generation {
			return was, false
		}
		return pending("the manager has not worked out the rules of the newest spec yet"), false
	case len(e.behind) > 0:
		return pending("the current rules have not reached every ready pod: " + listPods(e.behind)), true
	case len(e.unheard) > 0 && !e.believed:
		return pending("ready pods were not asked yet which rules they enforce: " + listPods(e.unheard)), false
	case v.ready == 0:
		return pending("no pod is ready"), false
	default:
		return verdict{metav1.ConditionTrue, mcpv1alpha1.ReasonAccessEnforced, "every ready pod enforces the current rules", 0}, false
	}
}

// enforcedBefore says whether an earlier manager has heard from a pod that it enforces the document.
func (v *view) enforcedBefore(in *instance) bool {
	was, _ := v.was(mcpv1alpha1.ConditionAccessEnforced)
	return was.isTrue() && v.before.Access != nil && v.before.Access.Digest == v.Access.Digest &&
		slices.ContainsFunc(v.before.Instances, func(before mcpv1alpha1.Instance) bool {
			return before.Pod == in.pod.Name && before.State == mcpv1alpha1.InstanceReady
		})
}

// enforcing is the progress of a server that is where it should be, but for its access document.
func enforcing(enforced verdict, spreading bool) (string, Obstacle) {
	why := Obstacle{enforced.reason, enforced.message}
	switch {
	case enforced.reason == mcpv1alpha1.ReasonAccessNotEnforced:
		return mcpv1alpha1.ConditionStalled, why
	case spreading:
		return mcpv1alpha1.ConditionReconciling, why
	default:
		return "", Obstacle{}
	}
}

// listPods names some pods.
func listPods(names []string) string {
	text := strings.Join(names[:min(len(names), podsNamed)], ", ")
	if more := len(names) - podsNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
