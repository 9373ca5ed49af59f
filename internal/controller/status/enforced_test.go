package status

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/prober"
)

// enforcingResult is what is known of an instance that works and enforces a document.
func enforcingResult(digest string) prober.Result {
	result := answered("sha256:1")
	result.Access = &prober.Access{Version: 1, Generation: 1, Digest: digest}
	return result
}

func TestAccessEnforced(t *testing.T) {
	const enforced, pending, tooOld = "AccessEnforced=True/AccessEnforced", "AccessEnforced=Unknown/AccessPending", "AccessEnforced=False/AccessNotEnforced"
	const rest = " Available=True/Available Accepted=True/Accepted Verified=True/Verified "
	two := func(first, second prober.Result) func(*Observed) {
		return func(o *Observed) {
			o.setPods(2, podNamed("a"), podNamed("b"))
			o.Results = map[types.UID]prober.Result{"a": first, "b": second}
		}
	}
	reads := func(version int) prober.Result {
		result := enforcingResult("d")
		result.Access.Version = version
		return result
	}
	for name, test := range map[string]struct {
		change func(*Observed)
		want   string
	}{
		"nothing to enforce": {func(o *Observed) { o.Access = nil }, "Ready=True/Ready" + " Available=True/Available Accepted=True/Accepted Verified=True/Verified"},
		"every pod":          {two(enforcingResult("d"), enforcingResult("d")), "Ready=True/Ready" + rest + enforced},
		"one has another":    {two(enforcingResult("d"), enforcingResult("c")), "Ready=True/Ready" + rest + pending + " Reconciling=True/AccessPending"},
		"one has none yet":   {two(enforcingResult("d"), enforcingResult("")), "Ready=True/Ready" + rest + pending + " Reconciling=True/AccessPending"},
		"one was not asked":  {two(enforcingResult("d"), prober.Result{}), "Ready=True/Ready" + rest + pending},
		"one is too old":     {two(enforcingResult("c"), answered("sha256:1")), "Ready=False/AccessNotEnforced" + rest + tooOld + " Stalled=True/AccessNotEnforced"},
		"one reads another version": {
			two(enforcingResult("d"), reads(0)), "Ready=False/AccessNotEnforced" + rest + tooOld + " Stalled=True/AccessNotEnforced",
		},
		"one that is too old is ending": {func(o *Observed) {
			two(enforcingResult("d"), answered("sha256:1"))(o)
			o.Pods[1].DeletionTimestamp = &now
			o.setPods(1, o.Pods...)
		}, "Ready=True/Ready" + rest + enforced},
		"one that is too old is being replaced": {func(o *Observed) {
			two(enforcingResult("d"), answered("sha256:1"))(o)
			old(&o.Pods[1])
			o.Deployment.Status.UpdatedReplicas = 1
		}, "Ready=False/AccessNotEnforced" + rest + tooOld + " Reconciling=True/Progressing"},
		"no document can be made of the spec": {func(o *Observed) {
			two(enforcingResult("d"), enforcingResult("d"))(o)
			o.Access = &Access{Problem: "too large; shrink it"}
			o.Refusal = &Obstacle{mcpv1alpha1.ReasonInvalidSpec, "too large; shrink it"}
		}, "Ready=False/AccessNotEnforced Available=True/Available Accepted=False/InvalidSpec Verified=True/Verified " + tooOld + " Stalled=True/InvalidSpec"},
		"no document can be made of the spec, and it is stopped": {func(o *Observed) {
			o.setPods(0)
			o.Results = nil
			o.Access = &Access{Problem: "too large; shrink it"}
			o.Refusal = &Obstacle{mcpv1alpha1.ReasonInvalidSpec, "too large; shrink it"}
		}, "Available=False/ScaledToZero Accepted=False/InvalidSpec Verified=Unknown/ScaledToZero " + tooOld},
		"no document was made yet": {func(o *Observed) {
			two(enforcingResult("d"), enforcingResult("d"))(o)
			o.Access = &Access{}
			o.Waiting = &Obstacle{mcpv1alpha1.ReasonRetrying, "the API server is away"}
		}, "Ready=True/Ready Available=True/Available Accepted=Unknown/Retrying Verified=True/Verified " + pending + " Reconciling=True/Retrying"},
		"auth is required": {func(o *Observed) {
			two(enforcingResult("d"), enforcingResult("d"))(o)
			o.Refusal = &Obstacle{mcpv1alpha1.ReasonAuthRequired, "add it"}
		}, "Ready=False/AuthRequired Available=True/Available Accepted=False/AuthRequired Verified=True/Verified " + enforced + " Stalled=True/AuthRequired"},
		"auth is required, and one is too old": {func(o *Observed) {
			two(enforcingResult("d"), answered("sha256:1"))(o)
			o.Refusal = &Obstacle{mcpv1alpha1.ReasonAuthRequired, "add it"}
		}, "Ready=False/AccessNotEnforced Available=True/Available Accepted=False/AuthRequired Verified=True/Verified " + tooOld + " Stalled=True/AuthRequired"},
		"stopped": {func(o *Observed) {
			o.setPods(0)
			o.Results = nil
		}, "Available=False/ScaledToZero Accepted=True/Accepted Verified=Unknown/ScaledToZero " + pending},
	} {
		t.Run(name, func(t *testing.T) {
			o := working()
			o.Access = &Access{Digest: "d", Issuers: []mcpv1alpha1.IssuerStatus{{Name: "corp", Keys: 2}}}
			test.change(o)
			got := o.then()
			wantEqual(t, "conditions", test.want, sum(got))
			if o.Access == nil || o.Access.Digest == "" {
				wantEqual(t, "access", (*mcpv1alpha1.AccessStatus)(nil), got.Access)
			} else {
				wantEqual(t, "access", &mcpv1alpha1.AccessStatus{Digest: "d", Issuers: o.Access.Issuers}, got.Access)
			}
			wantEqual(t, "computed again", got, o.then())
		})
	}
}

// A manager that has just started believes what an earlier one has heard, of the same pods and the same
// document only.
func TestAccessEnforcedBefore(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Observed)
		want   metav1.ConditionStatus
	}{
		"nothing is new":        {func(*Observed) {}, metav1.ConditionTrue},
		"another document":      {func(o *Observed) { o.Access = &Access{Digest: "e"} }, metav1.ConditionUnknown},
		"another pod":           {func(o *Observed) { o.setPods(1, podNamed("b")) }, metav1.ConditionUnknown},
		"it has said otherwise": {func(o *Observed) { o.Results = map[types.UID]prober.Result{"a": enforcingResult("c")} }, metav1.ConditionUnknown},
		"it is too old":         {func(o *Observed) { o.Results = map[types.UID]prober.Result{"a": answered("sha256:1")} }, metav1.ConditionFalse},
	} {
		t.Run(name, func(t *testing.T) {
			o := working()
			o.Access = &Access{Digest: "d"}
			o.Results = map[types.UID]prober.Result{"a": enforcingResult("d")}
			o.then()
			o.Results = nil
			test.change(o)
			if got := find(t, o.then(), mcpv1alpha1.ConditionAccessEnforced); got.Status != test.want {
				t.Errorf("got %s: %s", got.Status, got.Message)
			}
		})
	}
}

// Users asked for rules that are not in effect, so the status names the problem instead of the document
// before. What stays is the name of the document that pods do enforce.
func TestAccessOfSpecWithoutDocument(t *testing.T) {
	for name, test := range map[string]struct {
		access  Access
		changed bool // whether the spec is another than that of the last document
		want    string
	}{
		"no document can be made of the spec": {Access{Problem: "too large; shrink it"}, true, "False too large; shrink it"},
		"it was not worked out":               {Access{}, true, "Unknown the manager has not worked out the rules of the newest spec yet"},
		"the manager failed at the same":      {Access{}, false, "True every ready pod enforces the current rules"},
	} {
		t.Run(name, func(t *testing.T) {
			o := working()
			o.Access = &Access{Digest: "d", Issuers: []mcpv1alpha1.IssuerStatus{{Name: "corp", Keys: 2}}}
			o.Results = map[types.UID]prober.Result{"a": enforcingResult("d")}
			before := o.then()
			o.Access = &test.access
			if test.changed {
				o.Server.Generation++
			}
			got := o.then()
			condition := find(t, got, mcpv1alpha1.ConditionAccessEnforced)
			wantEqual(t, "AccessEnforced", test.want, string(condition.Status)+" "+condition.Message)
			wantEqual(t, "generation", o.Server.Generation, condition.ObservedGeneration)
			wantEqual(t, "access", before.Access, got.Access)
		})
	}
}
