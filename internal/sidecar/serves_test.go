package sidecar

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/test/hang"
)

// B-02: the keeper uses a session if the server has sessions. Without them it still becomes
// ready, with the second process that it starts, and knows that the server has none.
func TestKeeperOfEachEra(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		era       sessionless.Era
		shared    bool
		command   []string
		spoken    string
		stateless bool
	}{
		"legacy":                 {sessionless.Auto, false, []string{eraFilter, "legacy", bothServer}, "2025-11-25", false},
		"both":                   {sessionless.Auto, false, []string{bothServer}, "2025-11-25", false},
		"modern":                 {sessionless.Auto, false, []string{eraFilter, "modern", bothServer}, "2026-07-28", true},
		"both, pinned to legacy": {sessionless.Legacy, false, []string{bothServer}, "2025-11-25", false},
		"both, pinned to modern": {sessionless.Modern, false, []string{bothServer}, "2026-07-28", true},
		"shared legacy":          {sessionless.Auto, true, []string{eraFilter, "legacy", bothServer}, "2025-11-25", false},
		"shared modern":          {sessionless.Auto, true, []string{eraFilter, "modern", bothServer}, "2026-07-28", true},
		"shared, pinned":         {sessionless.Modern, true, []string{bothServer}, "2026-07-28", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			adapter, _ := startAdapterOn(t, newListener(t), func(c *config.Config) { c.Era, c.Shared, c.Warm = test.era, test.shared, 0 }, test.command...)
			deadline := time.After(hang.Guard)
			for {
				state, changed := adapter.env.Keeper.State()
				if state.Ready {
					if state.Stateless != test.stateless || state.Catalog.Server.ProtocolVersion != test.spoken {
						t.Errorf("stateless %t, revision %s", state.Stateless, state.Catalog.Server.ProtocolVersion)
					}
					if diff := cmp.Diff(adapter.backend.Serves(state.Catalog.Server), state.Catalog.Server.ProtocolVersions); diff != "" {
						t.Errorf("served (-want +got):\n%s", diff)
					}
					starts := uint64(1)
					if test.stateless && test.era == sessionless.Auto {
						starts = 2 // the first refuses to initialize
					}
					if got := published(t, adapter, "server_starts_total")(); got != starts {
						t.Errorf("%d processes were started, want %d", got, starts)
					}
					return
				}
				if state.Reason != adapterapi.Starting && state.Reason != adapterapi.Silent { // as it may seem on a busy machine
					t.Errorf("meanwhile it was %s: %v", state.Reason, state.Err)
				}
				select {
				case <-changed:
				case <-deadline:
					t.Fatalf("not ready: %v", state.Err)
				}
			}
		})
	}
}
