package controller

import (
	"context"

	"github.com/slipway-mcp/slipway/internal/workload"
)

// planSettings decides what adapters are to take over while they run.
func (r *Reconciler) planSettings(_ context.Context, s *state) (err error) {
	s.settings, err = workload.Settings(s.server, r.ClusterDomain).Encode()
	return err
}

// applySettings keeps that and the access document in a ConfigMap, for adapters that start. Adapters that run are
// sent it by the prober, and neither waits for the other. A refused server gets it, too:
// a user who removes an origin from the list wants that to take effect, whatever else is
// wrong with the spec.
func (r *Reconciler) applySettings(ctx context.Context, s *state) error {
	if s.keys == nil { // what would use it cannot be there
		return nil
	}
	return r.applyOne(ctx, s, r.desired(s, workload.ObjectSettings, workload.Parts{Server: s.server, Settings: s.settings, Access: s.access}))
}
