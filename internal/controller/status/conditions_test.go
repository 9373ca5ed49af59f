package status

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/prober"
)

const allWell = "Ready=True/Ready Available=True/Available Accepted=True/Accepted Verified=True/Verified"

// truthTable is that of the architecture, with what each row means to kstatus.
var truthTable = map[string]struct {
	change  func(*Observed)
	want    string
	kstatus string
}{
	"everything works": {
		change: func(*Observed) {}, want: allWell, kstatus: "Current",
	},
	"just created": {
		change: func(o *Observed) { o.Deployment, o.Pods, o.Results = nil, nil, nil },
		want: "Ready=False/PodsStarting Available=False/PodsStarting Accepted=True/Accepted Verified=Unknown/ProbePending " +
			"Reconciling=True/Progressing", kstatus: "InProgress",
	},
	"refused before anything ran": {
		change: func(o *Observed) {
			o.Deployment, o.Pods, o.Results = nil, nil, nil
			o.Refusal = &Obstacle{mcpv1alpha1.ReasonReferenceNotFound, "Secret s does not exist: create it"}
		},
		want: "Ready=False/ReferenceNotFound Available=False/PodsNotCreated Accepted=False/ReferenceNotFound Verified=Unknown/ProbePending " +
			"Stalled=True/ReferenceNotFound", kstatus: "Failed",
	},
	"refused while it runs": {
		change: func(o *Observed) { o.Refusal = &Obstacle{mcpv1alpha1.ReasonInvalidImage, "no"} },
		want: "Ready=True/Ready Available=True/Available Accepted=False/InvalidImage Verified=True/Verified " +
			"Stalled=True/InvalidImage", kstatus: "Failed",
	},
	"refused while it runs and should not": {
		change: func(o *Observed) {
			o.Server.Spec.Suspend = true
			o.Refusal = &Obstacle{mcpv1alpha1.ReasonInvalidSpec, "no"}
		},
		want: "Ready=False/Suspended Available=False/Suspended Accepted=False/InvalidSpec Verified=Unknown/Suspended " +
			"Stalled=True/InvalidSpec", kstatus: "Failed",
	},
	"the registry does not answer for a new image while the old one serves": {
		change: func(o *Observed) {
			o.then()
			o.Waiting = &Obstacle{mcpv1alpha1.ReasonImageUnresolved, "no answer"}
		},
		want: allWell + " Reconciling=True/ImageUnresolved", kstatus: "InProgress",
	},
	"the registry does not answer": {
		change: func(o *Observed) {
			o.Deployment, o.Pods, o.Results = nil, nil, nil
			o.Waiting = &Obstacle{mcpv1alpha1.ReasonImageUnresolved, "set spec.command"}
		},
		want: "Ready=False/ImageUnresolved Available=False/PodsNotCreated Accepted=Unknown/ImageUnresolved Verified=Unknown/ProbePending " +
			"Reconciling=True/ImageUnresolved", kstatus: "InProgress",
	},
	"a step failed while it runs": {
		change: func(o *Observed) {
			o.then()
			o.Waiting = &Obstacle{mcpv1alpha1.ReasonRetrying, "apply Service: timeout"}
		},
		want: allWell + " Reconciling=True/Retrying", kstatus: "InProgress",
	},
	"no pod is ready": {
		change: func(o *Observed) { o.sickPod(func(*corev1.Pod) {}) },
		want: "Ready=False/PodsNotReady Available=False/PodsNotReady Accepted=True/Accepted Verified=Unknown/ProbePending " +
			"Reconciling=True/PodsNotReady", kstatus: "InProgress",
	},
	"the server exits": {
		change: func(o *Observed) {
			unready(&o.Pods[0])
			o.Results["a"] = reported(adapterapi.Exited, "exit code 1")
		},
		want: "Ready=False/ServerExits Available=False/ServerExits Accepted=True/Accepted Verified=False/ProbeFailed " +
			"Stalled=True/ServerExits", kstatus: "Failed",
	},
	"the server exits for the first time": {
		change: func(o *Observed) {
			unready(&o.Pods[0])
			o.Results["a"] = failed(1, adapterapi.Exited, "exit code 1")
		},
		want: "Ready=False/ServerExits Available=False/ServerExits Accepted=True/Accepted Verified=False/ProbeFailed " +
			"Reconciling=True/ServerExits", kstatus: "InProgress",
	},
	"a pod is ready and was not asked": {
		change: func(o *Observed) { o.Results = nil },
		want: "Ready=False/ProbePending Available=True/Available Accepted=True/Accepted Verified=Unknown/ProbePending " +
			"Reconciling=True/ProbePending", kstatus: "InProgress",
	},
	"the exchange failed": {
		change: func(o *Observed) {
			o.Results["a"] = prober.Result{Outcome: prober.Failed, Message: "initialize timed out"}
		},
		want:    "Ready=False/ProbeFailed Available=True/Available Accepted=True/Accepted Verified=False/ProbeFailed Reconciling=True/ProbeFailed",
		kstatus: "InProgress",
	},
	"the manager cannot dial": {
		change: func(o *Observed) { o.Results["a"] = prober.Result{Outcome: prober.Unreachable} },
		want:   "Ready=True/Ready Available=True/Available Accepted=True/Accepted Verified=Unknown/Unreachable", kstatus: "Current",
	},
	"the pod is full": {
		change: func(o *Observed) { o.Results["a"] = prober.Result{Outcome: prober.Full} },
		want:   "Ready=True/Ready Available=True/Available Accepted=True/Accepted Verified=Unknown/Full", kstatus: "Current",
	},
	"the server wants credentials": {
		change: func(o *Observed) { o.Results["a"] = prober.Result{Outcome: prober.Unauthorized} },
		want:   "Ready=True/Ready Available=True/Available Accepted=True/Accepted Verified=Unknown/Unauthorized", kstatus: "Current",
	},
	"suspended": {
		change:  func(o *Observed) { o.setPods(0); o.Server.Spec.Suspend, o.Server.Spec.Replicas = true, new(int32(4)) },
		want:    "Available=False/Suspended Accepted=True/Accepted Verified=Unknown/Suspended",
		kstatus: "Current",
	},
	"suspended, and the spec is refused": {
		change: func(o *Observed) {
			o.setPods(0)
			o.Server.Spec.Suspend, o.Refusal = true, &Obstacle{mcpv1alpha1.ReasonReferenceNotFound, "no Secret"}
		},
		want:    "Available=False/Suspended Accepted=False/ReferenceNotFound Verified=Unknown/Suspended",
		kstatus: "Current",
	},
	"suspended, and the last pod is draining": {
		change: func(o *Observed) {
			o.Server.Spec.Suspend, o.Deployment.Spec.Replicas = true, new(int32(0))
			o.Deployment.Status.Replicas, o.Deployment.Status.UpdatedReplicas = 0, 0
			o.Pods[0].DeletionTimestamp = &now
		},
		want:    "Available=False/Suspended Accepted=True/Accepted Verified=Unknown/Suspended",
		kstatus: "Current",
	},
	"suspended, and a pod still runs": {
		change: func(o *Observed) { o.Server.Spec.Suspend, o.Deployment.Spec.Replicas = true, new(int32(0)) },
		want: "Ready=False/Suspended Available=False/Suspended Accepted=True/Accepted Verified=Unknown/Suspended " +
			"Reconciling=True/Progressing", kstatus: "InProgress",
	},
	"suspended, and the Deployment counts no pod although one runs": {
		change: func(o *Observed) {
			o.Server.Spec.Suspend, o.Deployment.Spec.Replicas = true, new(int32(0))
			o.Deployment.Status.Replicas, o.Deployment.Status.UpdatedReplicas = 0, 0
		},
		want: "Ready=False/Suspended Available=False/Suspended Accepted=True/Accepted Verified=Unknown/Suspended " +
			"Reconciling=True/Progressing", kstatus: "InProgress",
	},
	"suspended, and the Deployment still counts a pod": {
		change: func(o *Observed) { o.setPods(0); o.Server.Spec.Suspend, o.Deployment.Status.Replicas = true, 1 },
		want: "Ready=False/Suspended Available=False/Suspended Accepted=True/Accepted Verified=Unknown/Suspended " +
			"Reconciling=True/Progressing", kstatus: "InProgress",
	},
	"suspended, and the Deployment was not told": {
		change: func(o *Observed) { o.setPods(1); o.Server.Spec.Suspend = true },
		want: "Ready=False/Suspended Available=False/Suspended Accepted=True/Accepted Verified=Unknown/Suspended " +
			"Reconciling=True/Progressing", kstatus: "InProgress",
	},
	"suspended, and a step failed": {
		change: func(o *Observed) {
			o.then()
			o.setPods(0)
			o.Server.Spec.Suspend, o.Waiting = true, &Obstacle{mcpv1alpha1.ReasonRetrying, "timeout"}
		},
		want: "Available=False/Suspended Accepted=True/Accepted Verified=Unknown/Suspended " +
			"Reconciling=True/Retrying", kstatus: "InProgress",
	},
	"suspended, and the registry does not answer": {
		change: func(o *Observed) {
			o.Deployment, o.Pods, o.Server.Spec.Suspend = nil, nil, true
			o.Waiting = &Obstacle{mcpv1alpha1.ReasonImageUnresolved, "no answer"}
		},
		want:    "Available=False/Suspended Accepted=Unknown/ImageUnresolved Verified=Unknown/Suspended",
		kstatus: "Current",
	},
	"scaled to zero": {
		change:  func(o *Observed) { o.setPods(0) },
		want:    "Available=False/ScaledToZero Accepted=True/Accepted Verified=Unknown/ScaledToZero",
		kstatus: "Current",
	},
}

func TestTruthTable(t *testing.T) {
	for name, test := range truthTable {
		t.Run(name, func(t *testing.T) {
			o := working()
			test.change(o)
			got := Compute(*o)
			wantEqual(t, "conditions", strings.Fields(test.want), strings.Fields(sum(got)))
			o.Server.Status = got
			wantEqual(t, "kstatus", test.kstatus, kstatus(o.Server))
		})
	}
}

// kstatus follows the rules of sigs.k8s.io/cli-utils for objects with conditions.
func kstatus(server *mcpv1alpha1.MCPServer) string {
	is := map[string]metav1.ConditionStatus{}
	for _, c := range server.Status.Conditions {
		is[c.Type] = c.Status
	}
	switch {
	case server.Status.ObservedGeneration != server.Generation:
		return "InProgress"
	case is["Reconciling"] == metav1.ConditionTrue:
		return "InProgress"
	case is["Stalled"] == metav1.ConditionTrue:
		return "Failed"
	case is["Ready"] == metav1.ConditionTrue, is["Ready"] == "":
		return "Current"
	default:
		return "InProgress"
	}
}

func TestEveryConditionHasGenerationAndTime(t *testing.T) {
	for name, test := range truthTable {
		t.Run(name, func(t *testing.T) {
			o := working()
			test.change(o)
			got := Compute(*o)
			if got.ObservedGeneration != 3 {
				t.Errorf("observedGeneration is %d", got.ObservedGeneration)
			}
			for _, c := range got.Conditions {
				if c.ObservedGeneration != 3 || c.LastTransitionTime.IsZero() || c.Reason == "" || c.Message == "" {
					t.Errorf("incomplete condition %+v", c)
				}
			}
		})
	}
}

// A verdict that stands although the spec is another by now is about the earlier spec, and the
// controller is on its way to a new one.
func TestKeptVerdictKeepsItsGeneration(t *testing.T) {
	generations := func(status mcpv1alpha1.MCPServerStatus) map[string]int64 {
		all := map[string]int64{}
		for _, c := range status.Conditions {
			all[c.Type] = c.ObservedGeneration
		}
		return all
	}
	for name, test := range map[string]struct {
		change func(*Observed)
		want   map[string]int64
	}{
		"the registry is asked about another image": {
			func(o *Observed) { o.Waiting = &Obstacle{mcpv1alpha1.ReasonProgressing, "asking"} },
			map[string]int64{"Ready": 4, "Available": 4, "Accepted": 3, "Verified": 4, "Reconciling": 4},
		},
		"new pods were not asked": {
			func(o *Observed) { o.Results = nil; o.Pods = []corev1.Pod{podNamed("b")} },
			map[string]int64{"Ready": 3, "Available": 4, "Accepted": 4, "Verified": 3, "Reconciling": 4},
		},
		"another manager has not asked": {
			func(o *Observed) { o.Results = nil },
			map[string]int64{"Ready": 3, "Available": 4, "Accepted": 4, "Verified": 3, "Reconciling": 4},
		},
		"everything is known": {
			func(*Observed) {},
			map[string]int64{"Ready": 4, "Available": 4, "Accepted": 4, "Verified": 4},
		},
		"stopped, and the registry is asked about another image": {
			func(o *Observed) {
				o.setPods(0)
				o.Waiting = &Obstacle{mcpv1alpha1.ReasonProgressing, "asking"}
			},
			map[string]int64{"Available": 4, "Accepted": 4, "Verified": 4},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := working()
			o.then()
			o.Server.Generation++
			test.change(o)
			wantEqual(t, "generations", test.want, generations(o.then()))
			wantEqual(t, "computed again", test.want, generations(o.then()))
		})
	}
}

// Every step goes from what the one before it left; the times are minutes.
func TestTransitions(t *testing.T) {
	o := working()
	good := o.Pods[0]
	steps := []struct {
		name    string
		change  func()
		want    string
		changed string // conditions whose time is that of the step
	}{
		{"created", func() { o.Deployment, o.Pods, o.Results = nil, nil, nil },
			"Ready=False/PodsStarting Available=False/PodsStarting Accepted=True/Accepted Verified=Unknown/ProbePending Reconciling=True/Progressing",
			"Ready Available Accepted Verified Reconciling"},
		{"starting", func() {
			*o = *again(o)
			o.sickPod(func(p *corev1.Pod) { *serverOf(p) = corev1.ContainerStatus{}; p.CreationTimestamp = o.Now })
		}, "Ready=False/PodsStarting Available=False/PodsStarting Accepted=True/Accepted Verified=Unknown/ProbePending Reconciling=True/PodsStarting", ""},
		{"ready", func() { o.Pods = []corev1.Pod{good} },
			"Ready=False/ProbePending Available=True/Available Accepted=True/Accepted Verified=Unknown/ProbePending Reconciling=True/ProbePending", "Available"},
		{"verified", func() { o.Results = map[types.UID]prober.Result{"a": answered("sha256:1")} }, allWell, "Ready Verified"},
		{"at rest", func() {}, allWell, ""},
		{"a new generation", func() { o.Server.Generation++ }, allWell, ""},
		{"broken", func() { o.Results["a"] = prober.Result{Outcome: prober.Failed, Message: "no"} },
			"Ready=False/ProbeFailed Available=True/Available Accepted=True/Accepted Verified=False/ProbeFailed Reconciling=True/ProbeFailed", "Ready Verified Reconciling"},
		{"not ready either", func() {
			unready(&o.Pods[0])
			o.Results["a"] = reported(adapterapi.Silent, "no answer")
		}, "Ready=False/ServerSilent Available=False/ServerSilent Accepted=True/Accepted Verified=False/ProbeFailed Stalled=True/ServerSilent", "Available Stalled"},
		{"refused", func() { o.Refusal = &Obstacle{mcpv1alpha1.ReasonNameConflict, "Service x"} },
			"Ready=False/NameConflict Available=False/ServerSilent Accepted=False/NameConflict Verified=False/ProbeFailed Stalled=True/NameConflict", "Accepted"},
		{"another spec, and nothing known of its image", func() {
			o.Refusal, o.Waiting = nil, &Obstacle{mcpv1alpha1.ReasonImageUnresolved, "asked again"}
		}, "Ready=False/ImageUnresolved Available=False/ServerSilent Accepted=Unknown/ImageUnresolved Verified=False/ProbeFailed Reconciling=True/ImageUnresolved",
			"Accepted Reconciling"},
		{"well again", func() { o.Waiting, o.Pods[0], o.Results["a"] = nil, podNamed("a"), answered("sha256:1") },
			allWell, "Ready Available Accepted Verified"},
		{"suspended", func() { o.setPods(0); o.Server.Spec.Suspend = true },
			"Available=False/Suspended Accepted=True/Accepted Verified=Unknown/Suspended", "Available Verified"},
	}
	for _, step := range steps {
		o.Now = metav1.NewTime(o.Now.Add(time.Minute))
		step.change()
		got := o.then()
		wantEqual(t, step.name, strings.Fields(step.want), strings.Fields(sum(got)))
		var changed []string
		for _, c := range got.Conditions {
			if c.LastTransitionTime.Equal(&o.Now) {
				changed = append(changed, c.Type)
			}
		}
		wantEqual(t, step.name+": changed", strings.Fields(step.changed), changed)
	}
}

// again is a working server at the time and with the status of another.
func again(o *Observed) *Observed {
	next := working()
	next.Now, next.Server.Status = o.Now, o.Server.Status
	return next
}

// The API server keeps whole seconds: more would be a change with every read.
func TestTimesAreWholeSeconds(t *testing.T) {
	o := working()
	o.Now = metav1.NewTime(now.Add(time.Second + time.Millisecond))
	want := now.Add(time.Second)
	if got := find(t, Compute(*o), mcpv1alpha1.ConditionReady).LastTransitionTime; !got.Time.Equal(want) {
		t.Errorf("since %v, want %v", got, want)
	}
}

func TestAccepted(t *testing.T) {
	for name, test := range map[string]struct {
		before           *Obstacle // why it was refused
		refusal, waiting *Obstacle
		want             string
	}{
		"it makes sense":                    {want: "True/Accepted"},
		"it makes sense again":              {before: &Obstacle{"InvalidSpec", "x"}, want: "True/Accepted"},
		"refused: InvalidSpec":              {refusal: &Obstacle{mcpv1alpha1.ReasonInvalidSpec, "x"}, want: "False/InvalidSpec"},
		"refused: ReferenceNotFound":        {refusal: &Obstacle{mcpv1alpha1.ReasonReferenceNotFound, "x"}, want: "False/ReferenceNotFound"},
		"refused: InvalidImage":             {refusal: &Obstacle{mcpv1alpha1.ReasonInvalidImage, "x"}, want: "False/InvalidImage"},
		"refused: CommandUnknown":           {refusal: &Obstacle{mcpv1alpha1.ReasonCommandUnknown, "x"}, want: "False/CommandUnknown"},
		"refused: NameConflict":             {refusal: &Obstacle{mcpv1alpha1.ReasonNameConflict, "x"}, want: "False/NameConflict"},
		"refused, and something else waits": {refusal: &Obstacle{"NameConflict", "x"}, waiting: &Obstacle{"Retrying", "y"}, want: "False/NameConflict"},
		"was fine, now asking":              {waiting: &Obstacle{mcpv1alpha1.ReasonProgressing, "asking"}, want: "True/Accepted"},
		"was refused, now asking":           {before: &Obstacle{"InvalidImage", "x"}, waiting: &Obstacle{"Progressing", "asking"}, want: "Unknown/Progressing"},
		"was refused, now a failure":        {before: &Obstacle{"InvalidImage", "x"}, waiting: &Obstacle{"Retrying", "timeout"}, want: "False/InvalidImage"},
	} {
		t.Run(name, func(t *testing.T) {
			o := working()
			o.Refusal = test.before
			o.then()
			o.Refusal, o.Waiting = test.refusal, test.waiting
			c := find(t, Compute(*o), mcpv1alpha1.ConditionAccepted)
			wantEqual(t, "Accepted", test.want, string(c.Status)+"/"+c.Reason)
			if test.refusal != nil {
				wantEqual(t, "message", test.refusal.Message, c.Message)
			}
		})
	}
}

func TestMessageOfReady(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Observed)
		want   string
	}{
		"one of each": {func(*Observed) {}, "1 tool; 1 of 1 pod ready"},
		"more": {func(o *Observed) {
			o.setPods(2, podNamed("a"), podNamed("b"))
			o.Results["a"].Catalog.Summary.Catalog.Counts = mcpv1alpha1.CatalogCounts{Tools: 12, Prompts: 3, Resources: 1, ResourceTemplates: 2}
		}, "12 tools, 3 prompts, 1 resource, 2 resource templates; 2 of 2 pods ready"},
		"every session is taken":     {func(o *Observed) { o.Sessions, o.SessionsLimit = new(int32(20)), 20 }, "1 tool; 1 of 1 pod ready; 20 of 20 sessions"},
		"not every session is taken": {func(o *Observed) { o.Sessions, o.SessionsLimit = new(int32(19)), 20 }, "1 tool; 1 of 1 pod ready"},
		"the limit is not known":     {func(o *Observed) { o.Sessions = new(int32(20)) }, "1 tool; 1 of 1 pod ready"},
		"none":                       {func(o *Observed) { o.Results["a"].Catalog.Summary.Catalog.Counts.Tools = 0 }, "0 tools; 1 of 1 pod ready"},
		"processes run out of memory": {
			func(o *Observed) {
				o.Processes = adapterapi.Processes{Ended: 10, Crashed: 9, OutOfMemory: 8, Cause: "out of memory"}
			},
			"1 tool; 1 of 1 pod ready; 9 of 10 processes ended by themselves in 5 minutes: out of memory; raise spec.resources.limits.memory",
		},
		"not verified": {
			func(o *Observed) { o.Results["a"] = prober.Result{Outcome: prober.Full, Message: "HTTP 503"} },
			"1 of 1 pod ready; not verified: the server has no room for another session, so nothing could be checked; it is tried again; " +
				"if clients are refused too, raise spec.session.maxPerPod or spec.replicas; pod a: HTTP 503",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := working()
			test.change(o)
			wantEqual(t, "message", test.want, find(t, Compute(*o), mcpv1alpha1.ConditionReady).Message)
		})
	}
}
