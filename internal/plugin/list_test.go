package plugin

import (
	"testing"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// Pods that end are none of those that there are to be.
func TestReplicas(t *testing.T) {
	for want, status := range map[string]mcpv1alpha1.MCPServerStatus{
		"2/3":              {ReadyReplicas: 2, Replicas: 3},
		"0/0 (2 draining)": {Draining: &mcpv1alpha1.Draining{Replicas: 2, Sessions: 14}},
	} {
		if got := replicasOf(&mcpv1alpha1.MCPServer{Status: status}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
