package status

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/prober"
)

func TestInvariants(t *testing.T) {
	const histories, steps = 400, 5
	seen := map[string]bool{}
	for seed := range uint64(histories) {
		random := rand.New(rand.NewPCG(seed, 4))
		o := working()
		for step := range steps {
			before := o.Server.Status
			*o = randomObserved(random)
			o.Server.Status = before
			o.Server.Generation = before.ObservedGeneration + random.Int64N(2)
			o.Now = metav1.NewTime(now.Add(time.Duration(step) * time.Minute))
			got := Compute(*o)
			checkInvariants(t, got)
			checkLimits(t, got)
			if t.Failed() {
				t.Fatalf("seed %d, step %d: %s", seed, step, sum(got))
			}
			for _, c := range got.Conditions {
				seen[c.Type+"="+string(c.Status)+"/"+c.Reason] = true
			}

			// At rest nothing changes, whatever the time.
			o.Server.Status = got
			o.Now = metav1.NewTime(o.Now.Add(time.Second))
			if again := Compute(*o); !equality.Semantic.DeepEqual(got, again) {
				t.Fatalf("seed %d, step %d: computed again it is another (-first +second):\n%s", seed, step, cmp.Diff(got, again))
			}
		}
	}
	for _, reason := range []string{
		"Ready=True/Ready", "Ready=False/Suspended", "Ready=False/ScaledToZero", "Accepted=True/Accepted", "Accepted=False/NameConflict",
		"Available=True/Available", "Available=False/PodsStarting", "Available=False/PodsNotCreated", "Available=False/PodsUnschedulable",
		"Available=False/ImagePullFailed", "Available=False/ServerExits", "Available=False/ServerIncompatible", "Available=False/ServerSilent", "Available=False/PodsNotReady",
		"Verified=True/Verified", "Verified=Unknown/ProbePending", "Verified=False/ProbeFailed", "Verified=Unknown/Unreachable",
		"Verified=Unknown/Full", "Verified=Unknown/Unauthorized", "Verified=True/CatalogTooLarge", "Verified=True/InstancesDisagree",
		"Reconciling=True/Progressing", "Reconciling=True/ImageUnresolved", "Reconciling=True/Retrying", "Stalled=True/ServerExits", "Reconciling=True/ServerExits", "Reconciling=True/ProbeFailed",
		"AccessEnforced=True/AccessEnforced", "AccessEnforced=Unknown/AccessPending", "AccessEnforced=False/AccessNotEnforced",
		"Ready=False/AccessNotEnforced", "Stalled=True/AccessNotEnforced", "Reconciling=True/AccessPending",
	} {
		if !seen[reason] {
			t.Errorf("%s never came up: the observations are not random enough", reason)
		}
	}
}

// withReason are the reasons with which Reconciling or Stalled must be there, as the
// comments of the API say.
var withReason = map[string]string{
	mcpv1alpha1.ReasonPodsStarting: reconciling, mcpv1alpha1.ReasonPodsNotCreated: reconciling,
	mcpv1alpha1.ReasonPodsUnschedulable: reconciling, mcpv1alpha1.ReasonPodsNotReady: reconciling,
	mcpv1alpha1.ReasonImagePullFailed: stalled, mcpv1alpha1.ReasonServerExits: stalled, mcpv1alpha1.ReasonServerSilent: stalled, mcpv1alpha1.ReasonServerIncompatible: stalled,
}

func checkInvariants(t *testing.T, got mcpv1alpha1.MCPServerStatus) {
	t.Helper()
	is := func(name string) bool { return meta.IsStatusConditionTrue(got.Conditions, name) }
	for _, name := range []string{"Accepted", "Available", "Verified"} {
		find(t, got, name)
	}
	if is(reconciling) && is(stalled) {
		t.Error("both Reconciling and Stalled")
	}
	for _, name := range []string{reconciling, stalled} {
		if meta.FindStatusCondition(got.Conditions, name) != nil && !is(name) {
			t.Errorf("%s is there and not True", name)
		}
	}
	if is("Ready") && (!is("Available") || meta.IsStatusConditionFalse(got.Conditions, "Verified")) {
		t.Error("Ready, and clients cannot use it")
	}
	if is("Ready") && meta.IsStatusConditionFalse(got.Conditions, mcpv1alpha1.ConditionAccessEnforced) {
		t.Error("Ready, and the rules of the spec are not in effect")
	}
	for _, c := range got.Conditions {
		if c.ObservedGeneration > got.ObservedGeneration || c.ObservedGeneration < got.ObservedGeneration && !is(reconciling) && !is(stalled) {
			t.Errorf("%s is of generation %d of %d, and the server is at rest", c.Type, c.ObservedGeneration, got.ObservedGeneration)
		}
	}
	isStopped := meta.FindStatusCondition(got.Conditions, "Ready") == nil
	if meta.IsStatusConditionFalse(got.Conditions, "Accepted") && !is(stalled) && !is(reconciling) && !isStopped {
		t.Error("refused, and neither Stalled nor Reconciling")
	}
	if isStopped {
		if is(stalled) {
			t.Error("stopped and stalled")
		}
		available := find(t, got, "Available")
		if available.Reason != mcpv1alpha1.ReasonSuspended && available.Reason != mcpv1alpha1.ReasonScaledToZero {
			t.Errorf("no Ready, and Available is %s", available.Reason)
		}
		return
	}
	ready := find(t, got, "Ready")
	if with := withReason[ready.Reason]; with != "" && !is(with) && !is(reconciling) {
		t.Errorf("not Ready for %s without %s", ready.Reason, with)
	}
	if ready.Status == metav1.ConditionFalse && !is(reconciling) && !is(stalled) {
		t.Errorf("not Ready for %s, and neither Reconciling nor Stalled", ready.Reason)
	}
	if ready.Status == metav1.ConditionUnknown {
		t.Error("Ready is Unknown")
	}
}

func checkLimits(t *testing.T, got mcpv1alpha1.MCPServerStatus) {
	t.Helper()
	short := func(what, text string, most int) {
		t.Helper()
		if n := utf8.RuneCountInString(text); n > most || !utf8.ValidString(text) {
			t.Errorf("%s has %d characters, or is not text", what, n)
		}
	}
	few := func(what string, n, most int) {
		t.Helper()
		if n > most {
			t.Errorf("%d %s", n, what)
		}
	}
	for _, c := range got.Conditions {
		short(c.Type, c.Message, 4096)
	}
	few("instances", len(got.Instances), 16)
	for _, in := range got.Instances {
		short("an instance's message", in.Message, 1024)
		short("an instance's digest", in.CatalogDigest, 128)
	}
	if info := got.ServerInfo; info != nil {
		short("name", info.Name, 256)
		short("title", info.Title, 256)
		short("version", info.Version, 128)
		short("protocol", info.ProtocolVersion, 32)
		short("instructions", info.Instructions, 1024)
		if c := info.Capabilities; c != nil {
			few("extensions", len(c.Extensions), 8)
			names := map[string]bool{}
			for _, name := range c.Extensions {
				short("extension", name, 64)
				if names[name] {
					t.Errorf("extension twice")
				}
				names[name] = true
			}
		}
	}
	if image := got.Image; image != nil {
		short("digest", image.Digest, 128)
		short("user", image.User, 256)
		few("arguments", len(image.Command), 64)
		for _, argument := range image.Command {
			short("argument", argument, 1024)
		}
	}
}

func oneOf[T any](random *rand.Rand, all ...T) T { return all[random.IntN(len(all))] }

func words(random *rand.Rand) string {
	return oneOf(random, "", "a word", strings.Repeat("line\n", 50), strings.Repeat("\U0001F600", 1500), "\xff\x1b[2J",
		"exit code 1; its last lines on standard error: "+strings.Repeat("oops\n", 400))
}

func randomObserved(random *rand.Rand) Observed {
	o := *working()
	o.Server.Spec.Suspend = random.IntN(8) == 0
	o.Server.Spec.Transport.Type = oneOf(random, mcpv1alpha1.TransportStdio, mcpv1alpha1.TransportSSE)
	want := int32(random.IntN(4))
	if random.IntN(6) == 0 {
		o.Refusal = &Obstacle{oneOf(random, mcpv1alpha1.ReasonNameConflict, mcpv1alpha1.ReasonInvalidSpec, mcpv1alpha1.ReasonAuthRequired), strings.Repeat("x", 1+random.IntN(9000))}
	}
	if random.IntN(6) == 0 {
		o.Waiting = &Obstacle{oneOf(random, mcpv1alpha1.ReasonRetrying, mcpv1alpha1.ReasonImageUnresolved, mcpv1alpha1.ReasonProgressing), "x" + words(random)}
	}
	if random.IntN(4) == 0 {
		o.Processes = adapterapi.Processes{Ended: random.Int64N(20), Crashed: random.Int64N(9), OutOfMemory: random.Int64N(9), Unstartable: random.Int64N(3), Cause: "exit code 3"}
	}
	switch random.IntN(8) {
	case 0:
		o.Access = &Access{Problem: "x" + words(random)}
	case 1:
		o.Access = &Access{}
	case 2, 3, 4:
		o.Access = &Access{Digest: oneOf(random, "d", "e"), Issuers: []mcpv1alpha1.IssuerStatus{{Name: "corp"}}}
	}
	var pods []corev1.Pod
	o.Results = map[types.UID]prober.Result{}
	for i := range random.IntN(5) {
		pod := randomPod(random, fmt.Sprintf("pod-%d", i))
		pods = append(pods, pod)
		if random.IntN(5) > 0 {
			o.Results[pod.UID] = randomResult(random)
		}
	}
	o.setPods(want, pods...)
	o.Deployment.Status.UpdatedReplicas = int32(random.IntN(len(pods) + 1))
	o.Deployment.Generation += oneOf(random, int64(0), 0, 0, 1)
	if o.Server.Spec.Suspend {
		o.Deployment.Spec.Replicas = new(int32(0))
	}
	if random.IntN(6) == 0 {
		o.Deployment.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: words(random)}}
	}
	if random.IntN(8) == 0 {
		o.Deployment = nil
	}
	return o
}

func randomPod(random *rand.Rand, name string) corev1.Pod {
	pod := podNamed(name)
	if random.IntN(6) == 0 {
		return pod
	}
	pod.CreationTimestamp = ago(oneOf(random, 0, 10*time.Second, time.Hour)) // never so that a minute passes within a second
	if random.IntN(4) == 0 {
		old(&pod)
	}
	if random.IntN(6) == 0 {
		pod.DeletionTimestamp = &now
	}
	if random.IntN(3) == 0 {
		return pod
	}
	unready(&pod)
	if random.IntN(8) == 0 {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: words(random)})
	}
	for _, c := range []*corev1.ContainerStatus{adapterOf(&pod), serverOf(&pod)} {
		if random.IntN(2) == 0 {
			continue
		}
		c.State = oneOf(random, c.State, c.State, c.State, startedAgo(time.Second), terminated(int32(random.IntN(200)), "Error", words(random)),
			waiting(oneOf(random, "ErrImagePull", "CrashLoopBackOff", "ContainerCreating", "CreateContainerConfigError", "RunContainerError", "Odd"), words(random)))
		c.RestartCount = int32(random.IntN(4))
		if random.IntN(3) == 0 {
			c.LastTerminationState = terminated(1, oneOf(random, "Error", "OOMKilled", "StartError"), words(random))
		}
	}
	pod.Status.Phase = oneOf(random, corev1.PodRunning, corev1.PodRunning, corev1.PodPending, corev1.PodFailed)
	return pod
}

func randomResult(random *rand.Rand) prober.Result {
	result := prober.Result{
		Outcome: oneOf(random, prober.Pending, prober.Verified, prober.Verified, prober.Verified, prober.Failed, prober.Unreachable, prober.Full, prober.Unauthorized),
		Message: words(random), Flapping: random.IntN(9) == 0,
	}
	if random.IntN(3) > 0 {
		result.Report = &prober.Report{
			Ready: random.IntN(2) == 0, Error: words(random), Failures: random.Int64N(3),
			Reason: string(oneOf(random, adapterapi.Starting, adapterapi.Unstartable, adapterapi.Exited, adapterapi.Silent, adapterapi.Unauthorized, adapterapi.TooLarge, adapterapi.NoRoom, adapterapi.Broken, "Odd")),
		}
	}
	if random.IntN(3) > 0 {
		result.Catalog = answered(oneOf(random, "sha256:1", "sha256:2")).Catalog
		result.Catalog.Summary.TooLarge = oneOf(random, "", "", "", words(random))
	}
	if random.IntN(4) > 0 {
		result.Access = &prober.Access{Version: oneOf(random, 0, 1, 1, 1), Digest: oneOf(random, "d", "d", "e")}
	}
	return result
}
