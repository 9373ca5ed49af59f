package status

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

// The conditions say how many pods end, and how many sessions they wait for, also of a server that is stopped.
func TestDrainingIsTold(t *testing.T) {
	for name, test := range map[string]struct {
		draining  *mcpv1alpha1.Draining
		suspended bool
		condition string
		want      string
	}{
		"none drains":       {nil, false, "Ready", "1 tool; 1 of 1 pod ready"},
		"without sessions":  {&mcpv1alpha1.Draining{Replicas: 1}, false, "Ready", "1 tool; 1 of 1 pod ready; 1 pod drains"},
		"with sessions":     {&mcpv1alpha1.Draining{Replicas: 2, Sessions: 14}, false, "Ready", "1 tool; 1 of 1 pod ready; 2 pods drain, with 14 sessions"},
		"with one":          {&mcpv1alpha1.Draining{Replicas: 1, Sessions: 1}, false, "Ready", "1 tool; 1 of 1 pod ready; 1 pod drains, with 1 session"},
		"of a stopped one":  {&mcpv1alpha1.Draining{Replicas: 2, Sessions: 14}, true, "Available", "spec.suspend is true, so no pods are wanted; set it to false to start the server; 2 pods drain, with 14 sessions"},
		"all of it stopped": {nil, true, "Available", "spec.suspend is true, so no pods are wanted; set it to false to start the server"},
	} {
		t.Run(name, func(t *testing.T) {
			o := working()
			if test.suspended {
				o.Server.Spec.Suspend, o.Deployment.Spec.Replicas, o.Deployment.Status = true, new(int32(0)), appsv1.DeploymentStatus{ObservedGeneration: 5}
				o.Pods = nil
			}
			o.Draining = test.draining
			got := o.then()
			wantEqual(t, "message", test.want, find(t, got, test.condition).Message)
			wantEqual(t, "draining", test.draining, got.Draining)
			wantEqual(t, "computed again", got, o.then())
		})
	}
}

// A remedy for crashes is found behind what is said of drains: kubectl mcp reads it off the end of the message.
func TestDrainingComesBeforeCrashes(t *testing.T) {
	o := working()
	o.Draining = &mcpv1alpha1.Draining{Replicas: 2, Sessions: 14}
	o.Processes = adapterapi.Processes{Ended: 2, Crashed: 2, OutOfMemory: 2, Cause: "out of memory"}
	wantContains(t, find(t, o.then(), "Ready").Message, "with 14 sessions; 2 of 2 processes ended by themselves")
}
