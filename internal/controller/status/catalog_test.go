package status

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/prober"
	"github.com/slipway-mcp/slipway/internal/text"
	"github.com/slipway-mcp/slipway/internal/workload"
)

func TestRepresentative(t *testing.T) {
	young := podNamed("y")
	young.CreationTimestamp = ago(time.Minute)
	sick := podNamed("s")
	unready(&sick)
	draining := podNamed("d")
	draining.DeletionTimestamp = &now
	for name, test := range map[string]struct {
		pods    []corev1.Pod
		digests map[types.UID]string
		want    string
	}{
		"none":                          {nil, nil, ""},
		"one":                           {[]corev1.Pod{podNamed("a")}, map[types.UID]string{"a": "1"}, "1"},
		"most":                          {[]corev1.Pod{podNamed("a"), podNamed("b"), young}, map[types.UID]string{"a": "1", "b": "1", "y": "2"}, "1"},
		"of equals the youngest":        {[]corev1.Pod{young, podNamed("a")}, map[types.UID]string{"a": "1", "y": "2"}, "2"},
		"of one age the last":           {[]corev1.Pod{podNamed("b"), podNamed("a")}, map[types.UID]string{"a": "1", "b": "2"}, "2"},
		"without one that is not ready": {[]corev1.Pod{sick}, map[types.UID]string{"s": "1"}, ""},
		"without one that is not known": {[]corev1.Pod{young, podNamed("a")}, map[types.UID]string{"a": "1", "y": ""}, "1"},
		"without one that is draining":  {[]corev1.Pod{draining, podNamed("a")}, map[types.UID]string{"d": "1"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			results := map[types.UID]prober.Result{}
			for uid, digest := range test.digests {
				results[uid] = answered(digest)
			}
			got := ""
			if catalog := Representative(test.pods, results); catalog != nil {
				got = catalog.Summary.Catalog.Digest
			}
			wantEqual(t, "digest", test.want, got)
		})
	}
}

// Of catalogs that are the same, one that can be stored is worth more.
func TestRepresentativeIsWhole(t *testing.T) {
	young := podNamed("y")
	young.CreationTimestamp = now
	for _, whole := range []types.UID{"a", "y"} {
		results := map[types.UID]prober.Result{"a": answered("1"), "y": answered("1")}
		results[whole].Catalog.Stored = &workload.Catalog{Digest: "1"}
		for _, pods := range [][]corev1.Pod{{podNamed("a"), young}, {young, podNamed("a")}} {
			if Representative(pods, results).Stored == nil {
				t.Errorf("that of pod %s is whole, and another was taken", whole)
			}
		}
	}
}

func TestCatalogStaysWithoutAnswers(t *testing.T) {
	o := working()
	before := o.then()
	if len(before.Catalog.Tools) != 1 || before.ServerInfo.Name != "server of sha256:1" || before.Catalog.Digest != "sha256:1" || before.Catalog.ConfigMapName != "x-catalog" {
		t.Fatalf("incomplete catalog: %+v", before)
	}
	for name, change := range map[string]func(*Observed){
		"a restart":        func(o *Observed) { unready(&o.Pods[0]); o.Results = nil },
		"another manager":  func(o *Observed) { o.Results = nil },
		"no pods":          func(o *Observed) { o.Pods, o.Results = nil, nil },
		"suspended":        func(o *Observed) { o.setPods(0); o.Server.Spec.Suspend = true },
		"another image":    func(o *Observed) { o.Server.Spec.Image, o.Server.Generation, o.Results = "y", 4, nil },
		"too large":        func(o *Observed) { o.Results["a"].Catalog.Summary = prober.Summary{TooLarge: "x"} },
		"no longer listed": func(o *Observed) { o.Results["a"] = prober.Result{Outcome: prober.Failed} },
	} {
		t.Run(name, func(t *testing.T) {
			o := working()
			o.then()
			change(o)
			after := Compute(*o)
			wantEqual(t, "catalog", before.Catalog, after.Catalog)
			wantEqual(t, "serverInfo", before.ServerInfo, after.ServerInfo)
			wantEqual(t, "protocolVersions", before.ProtocolVersions, after.ProtocolVersions)
		})
	}
	o.Results["a"] = answered("sha256:2")
	wantEqual(t, "a new one", "sha256:2", Compute(*o).Catalog.Digest)
}

// A caller that writes into a status must not write into what the prober keeps, nor into the
// status before.
func TestStatusSharesNothing(t *testing.T) {
	o := working()
	o.Image = &mcpv1alpha1.ResolvedImage{Command: []string{"node"}}
	o.PodTemplate = &mcpv1alpha1.TemplateStatus{AdapterVersion: "1"}
	first := o.then()
	first.Catalog.Tools[0].Name, first.Catalog.Counts.Tools, first.ServerInfo.Name = "?", 9, "?"
	first.Image.Command[0], first.Template.AdapterVersion, first.ProtocolVersions[0] = "?", "?", "?"
	summary := o.Results["a"].Catalog.Summary
	if summary.Catalog.Tools[0].Name == "?" || summary.Catalog.Counts.Tools != 1 || summary.ServerInfo.Name == "?" || summary.ProtocolVersions[0] == "?" ||
		o.Image.Command[0] == "?" || o.PodTemplate.AdapterVersion == "?" {
		t.Error("a change of the status has changed what it was computed from")
	}
	o.Server.Status.Catalog.Tools[0].Name = "echo"
	o.Results = nil
	second := Compute(*o)
	second.Catalog.Tools[0].Name = "?"
	if o.Server.Status.Catalog.Tools[0].Name == "?" {
		t.Error("a change of the status has changed the one before")
	}
}

// Whatever servers and images say, what the controller writes stays below 48 KiB with room for a
// spec. What the prober passes on of a catalog is bounded by the prober, which has a test of its
// own; here it is as large as that allows.
func TestStatusIsBounded(t *testing.T) {
	long := strings.Repeat("<\"", 70000) // as JSON, these take most
	o := working()
	summary := prober.Summary{ServerInfo: mcpv1alpha1.ServerInfo{Instructions: text.Fit(long, 1024)}}
	for len(summary.Catalog.Tools) < 28<<10/400 {
		summary.Catalog.Tools = append(summary.Catalog.Tools, mcpv1alpha1.CatalogEntry{Name: strings.Repeat("n", 256), Description: strings.Repeat("d", 118)})
	}
	summary.Catalog.Digest = "sha256:" + strings.Repeat("0", 64)
	var pods []corev1.Pod
	for i := range 200 {
		pod := podNamed(fmt.Sprintf("%s-%03d", strings.Repeat("p", 76), i))
		if i > 0 {
			unready(&pod)
			o.Results[pod.UID] = reported(adapterapi.Broken, long)
		} else {
			o.Results[pod.UID] = prober.Result{Outcome: prober.Verified, Catalog: &prober.Catalog{Summary: summary}}
		}
		pods = append(pods, pod)
	}
	o.setPods(200, pods...)
	o.Refusal = &Obstacle{Reason: mcpv1alpha1.ReasonInvalidSpec, Message: long}
	o.Waiting = &Obstacle{Reason: mcpv1alpha1.ReasonRetrying, Message: long}
	o.Image = &mcpv1alpha1.ResolvedImage{Digest: long, User: long}
	for range 600 {
		o.Image.Command = append(o.Image.Command, long)
	}
	got := Compute(*o)
	checkLimits(t, got)
	encoded, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if len(encoded) > 47<<10 {
		t.Errorf("a status of %d bytes", len(encoded))
	}
	if len(got.Catalog.Tools) == 0 || len(got.Instances) == 0 || len(got.Image.Command) == 0 {
		t.Error("nothing is left")
	}
}
