package status

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/prober"
)

func TestInstances(t *testing.T) {
	o := working()
	starting, draining, evicted := podNamed("e"), podNamed("c"), podNamed("gone")
	unready(&starting)
	starting.Status.ContainerStatuses, starting.CreationTimestamp = nil, now
	draining.DeletionTimestamp = &now
	evicted.Status.Phase = corev1.PodFailed
	o.setPods(6, starting, draining, podNamed("f"), podNamed("d"), podNamed("b"), podNamed("a"), evicted)
	o.Results["b"] = prober.Result{Outcome: prober.Unreachable, Message: "i/o timeout"}
	o.Results["f"] = prober.Result{Outcome: prober.Verified, Message: "the catalog cannot be read"}
	o.Results["d"] = prober.Result{Outcome: prober.Failed}
	wantEqual(t, "instances", []mcpv1alpha1.Instance{
		{Pod: "b", State: "Ready", Verification: "Unknown", Message: "i/o timeout"},
		{Pod: "d", State: "Ready", Verification: "Failed", Message: "the server does not answer as an MCP server does"},
		{Pod: "e", State: "NotReady", Verification: "Unknown", Message: "it waits for a node since 2026-08-01T12:00:00Z"},
		{Pod: "f", State: "Ready", Verification: "Verified", Message: "the catalog cannot be read"},
		{Pod: "a", State: "Ready", Verification: "Verified", CatalogDigest: "sha256:1"},
		{Pod: "c", State: "Draining", Verification: "Unknown"},
	}, Compute(*o).Instances)
}

func TestNumbers(t *testing.T) {
	o := working()
	sick, draining := podNamed("b"), podNamed("c")
	unready(&sick)
	draining.DeletionTimestamp = &now
	o.setPods(2, podNamed("a"), sick, draining)
	o.Deployment.Status.Replicas = 2
	o.Sessions = new(int32(7))
	got := Compute(*o)
	wantEqual(t, "replicas", []int32{2, 1, 7}, []int32{got.Replicas, got.ReadyReplicas, *got.Sessions})
	wantEqual(t, "selector", o.Selector, got.Selector)
	wantEqual(t, "address", &mcpv1alpha1.Address{URL: o.URL}, got.Address)

	o.Deployment, o.Pods = nil, nil
	got = Compute(*o)
	wantEqual(t, "replicas", []int32{0, 0}, []int32{got.Replicas, got.ReadyReplicas})
	wantEqual(t, "address", &mcpv1alpha1.Address{URL: o.URL}, got.Address)
}

func TestInstancesAreBounded(t *testing.T) {
	o := working()
	var pods []corev1.Pod
	for i := range 200 {
		pod := podNamed(fmt.Sprintf("p%03d", i))
		if i >= 150 {
			unready(&pod)
			o.Results[pod.UID] = reported(adapterapi.Broken, strings.Repeat("é", 5000))
		}
		pods = append(pods, pod)
	}
	o.setPods(200, pods...)
	got := Compute(*o)
	wantEqual(t, "number", 16, len(got.Instances))
	wantEqual(t, "first", "p150", got.Instances[0].Pod)
	if n := len(got.Instances[0].Message); n > 256 || n < 240 {
		t.Errorf("a message of %d bytes", n)
	}
}

// What was wrong with the only pod is known until another manager has asked, and
// not where it would be said of something else.
func TestRecall(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Observed)
		want   string // in the pod's message
	}{
		"it was not asked":  {func(*Observed) {}, "exit code 1"},
		"it was asked":      {func(o *Observed) { o.Results["a"] = reported(adapterapi.Starting, "starting") }, "the server runs since 2026-08-01T11:00:00Z and has not answered yet"},
		"it is unreachable": {func(o *Observed) { o.Results["a"] = prober.Result{Outcome: prober.Unreachable} }, "it runs and is not ready"},
		"another pod":       {func(o *Observed) { o.Pods[0].Name = "b" }, "it runs and is not ready"},
		"more pods":         {func(o *Observed) { o.Pods = append(o.Pods, o.Pods[0]); o.Pods[1].Name = "b" }, "it runs and is not ready"},
		"a new template":    {func(o *Observed) { o.Deployment.Generation++ }, "it runs and is not ready"},
		"no new pod yet":    {func(o *Observed) { o.Deployment.Status.UpdatedReplicas = 0 }, "it runs and is not ready"},
		"suspended":         {func(o *Observed) { o.Server.Spec.Suspend, o.Deployment.Spec.Replicas = true, new(int32(0)) }, "it runs and is not ready"},
		"better known":      {func(o *Observed) { serverOf(&o.Pods[0]).State = terminated(5, "", "") }, "exit code 5"},
	} {
		t.Run(name, func(t *testing.T) {
			o := working()
			unready(&o.Pods[0])
			o.Results["a"] = reported(adapterapi.Exited, "exit code 1")
			o.then()
			o.Results = map[types.UID]prober.Result{}
			test.change(o)
			first := o.then()
			wantContains(t, first.Instances[0].Message, test.want)
			wantEqual(t, "computed again", first, o.then())
		})
	}
}

// What a server wrote may end up on a user's terminal.
func TestMessagesArePrintable(t *testing.T) {
	o := working()
	unready(&o.Pods[0])
	o.Results = map[types.UID]prober.Result{"a": reported(adapterapi.Exited, "exit code 1; its last lines on standard error: \x1b[2Jgone\x00\nb\xffd\r")}
	got := Compute(*o)
	for _, text := range []string{find(t, got, mcpv1alpha1.ConditionAvailable).Message, got.Instances[0].Message} {
		wantContains(t, text, "standard error:  [2Jgone \nb\uFFFDd")
	}
}

// Whatever a server writes, the message ends with where to find the rest.
func TestHintIsNotCutOff(t *testing.T) {
	for name, lines := range map[string]string{
		"a long line": strings.Repeat("x", 5000), "long lines": strings.Repeat(strings.Repeat("x", 500)+"\n", 20), "runes": strings.Repeat("é", 5000),
	} {
		t.Run(name, func(t *testing.T) {
			o := working()
			unready(&o.Pods[0])
			o.Results = map[types.UID]prober.Result{"a": reported(adapterapi.Exited, "the server's process ended: exit code 1; it wrote on standard error: "+lines)}
			got := Compute(*o).Instances[0].Message
			wantContains(t, got, "exit code 1; it wrote on standard error: ")
			if !strings.HasSuffix(got, "; see kubectl logs -n ns a -c mcp-server") {
				t.Errorf("message %q", got)
			}
		})
	}
}
