package status

import (
	"testing"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// A server that waits for its turn to be rolled out is accepted and serves, whatever was
// said of it before.
func TestQueuedServerServes(t *testing.T) {
	for name, before := range map[string]*Obstacle{
		"accepted": nil, "refused": {mcpv1alpha1.ReasonReferenceNotFound, "Secret s does not exist: create it"},
	} {
		t.Run(name, func(t *testing.T) {
			o := working()
			o.Refusal = before
			o.then()
			o.Refusal, o.Waiting = nil, &Obstacle{mcpv1alpha1.ReasonRolloutQueued, "waiting for its turn"}
			wantEqual(t, "conditions", allWell+" Reconciling=True/RolloutQueued", sum(o.then()))
		})
	}
}
