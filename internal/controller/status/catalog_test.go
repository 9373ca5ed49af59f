package status

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/prober"
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
				got = catalog.Summary.Digest
			}
			wantEqual(t, "digest", test.want, got)
		})
	}
}

// Of catalogues that are the same, one that can be stored is worth more.
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

func TestCatalogStaysWhileNobodyCanTell(t *testing.T) {
	o := working()
	before := o.then()
	if len(before.Tools) != 1 || before.Counts == nil || before.ServerInfo.Name != "server of sha256:1" || before.CatalogDigest != "sha256:1" {
		t.Fatalf("incomplete catalogue: %+v", before)
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
			wantEqual(t, "tools", before.Tools, after.Tools)
			wantEqual(t, "counts", before.Counts, after.Counts)
			wantEqual(t, "serverInfo", before.ServerInfo, after.ServerInfo)
			wantEqual(t, "digest", before.CatalogDigest, after.CatalogDigest)
		})
	}
	o.Results["a"] = answered("sha256:2")
	wantEqual(t, "a new one", "sha256:2", Compute(*o).CatalogDigest)
}

// Whoever writes into a status must not write into what the prober keeps, nor into
// the status before.
func TestStatusSharesNothing(t *testing.T) {
	o := working()
	o.Image = &mcpv1alpha1.ResolvedImage{Command: []string{"node"}}
	o.Adapter = &mcpv1alpha1.AdapterStatus{Version: "1"}
	first := o.then()
	*first.Tools[0].ReadOnly, first.Counts.Tools, first.ServerInfo.Name = false, 9, "?"
	first.Image.Command[0], first.Adapter.Version = "?", "?"
	summary := o.Results["a"].Catalog.Summary
	if !*summary.Tools[0].ReadOnly || summary.Counts.Tools != 1 || summary.ServerInfo.Name == "?" || o.Image.Command[0] == "?" || o.Adapter.Version == "?" {
		t.Error("a change of the status has changed what it was computed from")
	}
	o.Results = nil
	second := Compute(*o)
	second.Tools[0].Name = "?"
	if o.Server.Status.Tools[0].Name == "?" {
		t.Error("a change of the status has changed the one before")
	}
}

// hostile is as large as a server can make it.
func hostile() prober.Summary {
	long := strings.Repeat("\U0001F600", 50000)
	s := prober.Summary{Digest: long, ServerInfo: mcpv1alpha1.ServerInfo{
		Name: long, Title: long, Version: long, ProtocolVersion: long, Instructions: long,
		Capabilities: &mcpv1alpha1.Capabilities{},
	}}
	for range 300 {
		s.Tools = append(s.Tools, mcpv1alpha1.Tool{Name: long, Title: long, Description: long})
		s.Prompts = append(s.Prompts, mcpv1alpha1.Prompt{Name: long, Title: long, Description: long})
		s.Resources = append(s.Resources, mcpv1alpha1.Resource{URI: long, Name: long})
		s.ResourceTemplates = append(s.ResourceTemplates, mcpv1alpha1.ResourceTemplate{URITemplate: long, Name: long})
		s.ServerInfo.ProtocolVersions = append(s.ServerInfo.ProtocolVersions, long)
		s.ServerInfo.Capabilities.Extensions = append(s.ServerInfo.Capabilities.Extensions, long)
	}
	return s
}

func TestHostileCatalogIsBounded(t *testing.T) {
	o := working()
	o.Results["a"] = prober.Result{Outcome: prober.Verified, Catalog: &prober.Catalog{Summary: hostile()}}
	long := strings.Repeat("\x00", 70000)
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
	if len(encoded) > 1<<20 {
		t.Errorf("a status of %d bytes", len(encoded))
	}
	if len(got.Tools) == 0 || len(got.Resources) == 0 {
		t.Error("nothing is left")
	}
}
