package controller

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

func withConditions(pairs ...string) mcpv1alpha1.MCPServerStatus {
	var status mcpv1alpha1.MCPServerStatus
	for i := 0; i < len(pairs); i += 3 {
		status.Conditions = append(status.Conditions, metav1.Condition{
			Type: pairs[i], Status: metav1.ConditionStatus(pairs[i+1]), Reason: pairs[i+2], Message: "because",
		})
	}
	return status
}

func withTools(digest string, names ...string) mcpv1alpha1.MCPServerStatus {
	if digest == "" {
		return mcpv1alpha1.MCPServerStatus{}
	}
	catalog := &mcpv1alpha1.Catalog{Digest: digest, Counts: mcpv1alpha1.CatalogCounts{Tools: int32(len(names))}}
	for _, name := range names {
		catalog.Tools = append(catalog.Tools, mcpv1alpha1.CatalogEntry{Name: name})
	}
	return mcpv1alpha1.MCPServerStatus{Catalog: catalog}
}

func TestTransitions(t *testing.T) {
	for name, test := range map[string]struct {
		before, after mcpv1alpha1.MCPServerStatus
		want          []string
	}{
		"nothing": {withConditions("Ready", "True", "Ready"), withConditions("Ready", "True", "Ready"), nil},
		"first status, on its way": {
			withConditions(), withConditions("Ready", "False", "PodsStarting", "Reconciling", "True", "PodsStarting"), nil,
		},
		"ready":           {withConditions("Ready", "False", "PodsStarting"), withConditions("Ready", "True", "Ready"), []string{"Normal Ready"}},
		"no longer ready": {withConditions("Ready", "True", "Ready"), withConditions("Ready", "False", "PodsNotReady"), []string{"Warning PodsNotReady"}},
		"stalled, told once": {
			withConditions("Ready", "True", "Ready"), withConditions("Ready", "False", "ServerExits", "Stalled", "True", "ServerExits"), []string{"Warning ServerExits"},
		},
		"stalled for another reason": {
			withConditions("Ready", "False", "A", "Stalled", "True", "A"), withConditions("Ready", "False", "B", "Stalled", "True", "B"), []string{"Warning B"},
		},
		"still stalled": {
			withConditions("Ready", "False", "A", "Stalled", "True", "A"), withConditions("Ready", "False", "A", "Stalled", "True", "A"), nil,
		},
		"stalled rollout of what works": {
			withConditions("Ready", "True", "Ready"), withConditions("Ready", "True", "Ready", "Stalled", "True", "ImagePullFailed"), []string{"Warning ImagePullFailed"},
		},
		"suspended, and pods still run": {
			withConditions("Ready", "True", "Ready", "Available", "True", "Available"),
			withConditions("Ready", "False", "Suspended", "Available", "False", "Suspended"), []string{"Normal Suspended"},
		},
		"suspended": {
			withConditions("Ready", "False", "Suspended", "Available", "False", "Suspended"), withConditions("Available", "False", "Suspended"), nil,
		},
		"suspended at once": {
			withConditions("Ready", "True", "Ready", "Available", "True", "Available"), withConditions("Available", "False", "Suspended"), []string{"Normal Suspended"},
		},
		"first catalog":   {withTools(""), withTools("1", "a"), nil},
		"other catalog":   {withTools("1", "a"), withTools("2", "b"), []string{"Normal CatalogChanged"}},
		"catalog is gone": {withTools("1", "a"), withTools(""), nil},
		"second pod":      {mcpv1alpha1.MCPServerStatus{Replicas: 1}, mcpv1alpha1.MCPServerStatus{Replicas: 2}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, event := range transitions(&test.before, &test.after) {
				got = append(got, event.kind+" "+event.reason)
				if event.note == "" || event.action == "" || len(event.note) > noteBytes {
					t.Errorf("%+v", event)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestCatalogChange(t *testing.T) {
	before, after := withTools("1", "a", "b"), withTools("2", "b", "c", "d")
	if got := catalogChange(before.Catalog, after.Catalog); got != "what the server offers has changed: new tools: c, d; tools gone: a; 3 tools in all" {
		t.Errorf("got %q", got)
	}
	after.Catalog.Truncated = true
	if got := catalogChange(before.Catalog, after.Catalog); got != "what the server offers has changed: 3 tools in all" {
		t.Errorf("got %q", got)
	}
	same := withTools("3", "a", "b")
	if got := catalogChange(before.Catalog, same.Catalog); !strings.Contains(got, "the same tools") {
		t.Errorf("got %q", got)
	}
}
