package status

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/prober"
)

func TestVerified(t *testing.T) {
	large := answered("sha256:1")
	large.Catalog.Summary.TooLarge = "more than 10000 tools"
	largeByReport := answered("sha256:1")
	largeByReport.Report.Reason, largeByReport.Report.Error = string(adapterapi.TooLarge), "more than 64 pages"
	flapping := answered("sha256:1")
	flapping.Flapping = true
	failed := prober.Result{Outcome: prober.Failed, Message: "initialize timed out"}
	unreachable := prober.Result{Outcome: prober.Unreachable, Message: "i/o timeout"}
	for name, test := range map[string]struct {
		results map[types.UID]prober.Result // of the ready pods a and b
		want    string
		ready   string
		words   []string
	}{
		"both answer": {
			map[types.UID]prober.Result{"a": answered("sha256:1"), "b": answered("sha256:1")},
			"True/Verified", "True/Ready", []string{"2 of 2 ready pods"},
		},
		"one answers, one was not asked": {
			map[types.UID]prober.Result{"a": answered("sha256:1")}, "True/Verified", "True/Ready", []string{"1 of 2 ready pods"},
		},
		"one answers, one fails": {
			map[types.UID]prober.Result{"a": answered("sha256:1"), "b": failed},
			"True/Verified", "True/Ready", []string{"pod b: initialize timed out"},
		},
		"one offers too much": {
			map[types.UID]prober.Result{"a": large, "b": answered("sha256:1")},
			"True/CatalogTooLarge", "True/Ready", []string{"more than 10000 tools"},
		},
		"one offers so much that nothing was taken": {
			map[types.UID]prober.Result{"a": largeByReport}, "True/CatalogTooLarge", "True/Ready", []string{"more than 64 pages"},
		},
		"they disagree": {
			map[types.UID]prober.Result{"a": answered("sha256:1"), "b": answered("sha256:2")},
			"True/InstancesDisagree", "True/Ready", []string{"a have sha256:1; b have sha256:2"},
		},
		"what one offers is not known": {
			map[types.UID]prober.Result{"a": answered("sha256:1"), "b": {Outcome: prober.Verified}}, "True/Verified", "True/Ready", nil,
		},
		"they disagree and offer too much": {
			map[types.UID]prober.Result{"a": large, "b": answered("sha256:2")},
			"True/InstancesDisagree", "True/Ready", []string{"more than 10000 tools", "sha256:2"},
		},
		"one flaps": {
			map[types.UID]prober.Result{"a": flapping}, "True/Verified", "True/Ready", []string{"changes so often"},
		},
		"what one offers cannot be read": {
			map[types.UID]prober.Result{"a": {Outcome: prober.Verified, Message: "the catalog cannot be read: HTTP 401"}},
			"True/Verified", "True/Ready", []string{"pod a: the catalog cannot be read: HTTP 401"},
		},
		"none was asked": {nil, "Unknown/ProbePending", "False/ProbePending", nil},
		"one fails, one was not asked": {
			map[types.UID]prober.Result{"a": failed}, "False/ProbeFailed", "False/ProbeFailed", []string{"pod a: initialize timed out"},
		},
		"both fail": {
			map[types.UID]prober.Result{"a": failed, "b": failed}, "False/ProbeFailed", "False/ProbeFailed", []string{"(and 1 more)"},
		},
		"one fails, one is unreachable": {
			map[types.UID]prober.Result{"a": failed, "b": unreachable}, "False/ProbeFailed", "False/ProbeFailed", nil,
		},
		"one is unreachable, one was not asked": {
			map[types.UID]prober.Result{"b": unreachable}, "Unknown/Unreachable", "True/Ready",
			[]string{"NetworkPolicy", "16270", "16271", "pod b: i/o timeout"},
		},
		"one is unreachable, one is full": {
			map[types.UID]prober.Result{"a": unreachable, "b": {Outcome: prober.Full}}, "Unknown/Full", "True/Ready", []string{"maxPerPod", "pod b: it has no room for another session"},
		},
		"one is full, one wants credentials": {
			map[types.UID]prober.Result{"a": {Outcome: prober.Full}, "b": {Outcome: prober.Unauthorized}},
			"Unknown/Unauthorized", "True/Ready", []string{"credentials"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := working()
			o.setPods(2, podNamed("a"), podNamed("b"))
			o.Results = test.results
			got := Compute(*o)
			c, ready := find(t, got, mcpv1alpha1.ConditionVerified), find(t, got, mcpv1alpha1.ConditionReady)
			wantEqual(t, "Verified", test.want, string(c.Status)+"/"+c.Reason)
			wantEqual(t, "Ready", test.ready, string(ready.Status)+"/"+ready.Reason)
			wantContains(t, c.Message, test.words...)
		})
	}
}

func TestManyDisagree(t *testing.T) {
	o := working()
	var pods []corev1.Pod
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		pods = append(pods, podNamed(name))
		o.Results[types.UID(name)] = answered("sha256:" + string(max(name[0], 'd'))) // d has four
	}
	o.setPods(8, pods...)
	wantContains(t, find(t, Compute(*o), mcpv1alpha1.ConditionVerified).Message,
		"a, b, c and 1 more have sha256:d; e have sha256:e; f have sha256:f; and 2 more")
}

// A pod that works is not enough: only those that clients reach count.
func TestVerifiedCountsServingPodsOnly(t *testing.T) {
	o := working()
	o.setPods(1, podNamed("a"), podNamed("b"))
	o.Pods[0].DeletionTimestamp = &now
	c := find(t, Compute(*o), mcpv1alpha1.ConditionVerified)
	wantEqual(t, "Verified", mcpv1alpha1.ReasonProbePending, c.Reason)
}

// A new manager has not asked any instance yet. The answers that the previous manager got stay valid.
func TestAnswersOutliveTheManager(t *testing.T) {
	for name, change := range map[string]func(*Observed){
		"works":     func(*Observed) {},
		"disagrees": func(o *Observed) { o.setPods(2, podNamed("a"), podNamed("b")); o.Results["b"] = answered("sha256:2") },
		"fails":     func(o *Observed) { o.Results["a"] = prober.Result{Outcome: prober.Failed, Message: "broken pipe"} },
		"exits":     func(o *Observed) { unready(&o.Pods[0]); o.Results["a"] = reported(adapterapi.Exited, "exit code 1") },
		"too large": func(o *Observed) { o.Results["a"].Catalog.Summary.TooLarge = "many tools" },
		"two, and one fails": func(o *Observed) {
			o.setPods(2, podNamed("a"), podNamed("b"))
			o.Results["b"] = prober.Result{Outcome: prober.Failed, Message: "broken pipe"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := working()
			change(o)
			before := o.then()
			o.Results = nil
			wantEqual(t, "status", before, Compute(*o))
		})
	}
}

// The one pod is replaced: clients can use the server all the time, and the status
// says so, but it is not called done until the new pod was asked.
func TestRolloutDoesNotMakeUnready(t *testing.T) {
	o := working()
	old(&o.Pods[0])
	o.then()
	next := podNamed("b")
	o.Pods = append(o.Pods, next)
	o.Deployment.Status.Replicas = 2
	wantEqual(t, "both", allWell+" Reconciling=True/Progressing", sum(o.then()))
	o.Pods[0].DeletionTimestamp, o.Results, o.Deployment.Status.Replicas = &now, nil, 1
	wantEqual(t, "not asked", allWell+" Reconciling=True/ProbePending", sum(o.then()))
	o.Results = map[types.UID]prober.Result{"b": answered("sha256:2")}
	wantEqual(t, "asked", allWell, sum(o.then()))
	wantEqual(t, "digest", "sha256:2", o.Server.Status.Catalog.Digest)
}

// After an outage no earlier answer counts: the manager asks each instance first.
func TestAnswerDoesNotOutliveAnOutage(t *testing.T) {
	o := working()
	o.then()
	o.Pods, o.Results = nil, nil
	wantEqual(t, "outage", "False", string(find(t, o.then(), mcpv1alpha1.ConditionReady).Status))
	o.Pods = []corev1.Pod{podNamed("b")}
	c := find(t, o.then(), mcpv1alpha1.ConditionReady)
	wantEqual(t, "Ready", "False/ProbePending", string(c.Status)+"/"+c.Reason)
}

func TestServerThatStopsWorkingIsNoLongerVerified(t *testing.T) {
	o := working()
	o.then()
	unready(&o.Pods[0])
	o.Results["a"] = prober.Result{Outcome: prober.Failed, Message: "x", Report: &prober.Report{Reason: string(adapterapi.Exited), Error: "exit code 9"}}
	c := find(t, o.then(), mcpv1alpha1.ConditionVerified)
	wantEqual(t, "Verified", "False/ProbeFailed", string(c.Status)+"/"+c.Reason)
	wantContains(t, c.Message, "exit code 9")
}

// Pods that are about to go say nothing of the server that is about to come.
func TestOldPodsDoNotFailNewOnes(t *testing.T) {
	o := working()
	broken, starting := podNamed("a"), podNamed("b")
	old(&broken)
	unready(&broken)
	unready(&starting)
	o.setPods(1, broken, starting)
	o.Deployment.Status.UpdatedReplicas = 1
	o.Results["a"] = reported(adapterapi.Exited, "exit code 1")
	wantEqual(t, "Verified", mcpv1alpha1.ReasonProbePending, find(t, Compute(*o), mcpv1alpha1.ConditionVerified).Reason)
}

// A pod that has become ready is asked before it is called broken.
func TestFailureDoesNotOutliveRecovery(t *testing.T) {
	o := working()
	unready(&o.Pods[0])
	o.Results["a"] = prober.Result{Outcome: prober.Failed, Report: &prober.Report{Reason: string(adapterapi.Exited)}}
	o.then()
	o.Pods[0], o.Results = podNamed("a"), nil
	wantEqual(t, "Verified", mcpv1alpha1.ReasonProbePending, find(t, o.then(), mcpv1alpha1.ConditionVerified).Reason)
}
