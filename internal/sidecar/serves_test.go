package sidecar

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/stateless"
	"github.com/slipway-mcp/slipway/test/hang"
)

// B-01, L-02: what clients can use depends on the transport, and on the revision that the
// server answers with when it is asked for the newest.
func TestServes(t *testing.T) {
	all := []string{"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}
	native, stdio, shared := config.Config{}, config.Config{StatelessClients: config.Translate}, config.Config{Shared: true}
	for name, test := range map[string]struct {
		config config.Config
		own    mcpprobe.Server
		want   []string
		found  stateless.Era
	}{
		"newest sessions":          {config: stdio, own: mcpprobe.Server{ProtocolVersion: "2025-11-25"}, want: all},
		"older sessions":           {config: stdio, own: mcpprobe.Server{ProtocolVersion: "2025-03-26"}, want: []string{"2026-07-28", "2025-03-26", "2024-11-05"}},
		"oldest sessions":          {config: stdio, own: mcpprobe.Server{ProtocolVersion: "2024-11-05"}, want: []string{"2026-07-28", "2024-11-05"}},
		"no sessions":              {config: native, own: mcpprobe.Server{ProtocolVersion: "2026-07-28", ProtocolVersions: []string{"2026-07-28"}}, want: all},
		"sessions only":            {config: native, own: mcpprobe.Server{ProtocolVersion: "2025-11-25"}, found: stateless.Legacy, want: all[1:]},
		"not known yet":            {config: native, own: mcpprobe.Server{ProtocolVersion: "2025-11-25"}, want: all[1:]},
		"both":                     {config: native, own: mcpprobe.Server{ProtocolVersion: "2025-11-25"}, found: stateless.Modern, want: all},
		"one process":              {config: shared, own: mcpprobe.Server{ProtocolVersion: "2025-06-18"}, want: []string{"2026-07-28", "2025-06-18"}},
		"one process, no sessions": {config: shared, own: mcpprobe.Server{ProtocolVersion: "2026-07-28"}, want: all},
		"HTTP":                     {config: config.Config{Transport: config.StreamableHTTP}, own: mcpprobe.Server{ProtocolVersion: "2026-07-28", ProtocolVersions: []string{"2026-07-28", "x"}}, found: stateless.Legacy, want: all},
		"HTTP, with sessions":      {config: config.Config{Transport: config.StreamableHTTP}, own: mcpprobe.Server{ProtocolVersion: "2025-06-18"}, found: stateless.Legacy, want: []string{"2025-06-18", "2025-03-26", "2024-11-05"}},
		"HTTP, translated":         {config: config.Config{Transport: config.StreamableHTTP, StatelessClients: config.Translate}, own: mcpprobe.Server{ProtocolVersion: "2025-06-18"}, found: stateless.Legacy, want: []string{"2026-07-28", "2025-06-18", "2025-03-26", "2024-11-05"}},
		"SSE":                      {config: config.Config{Transport: config.SSE}, own: mcpprobe.Server{ProtocolVersion: "2024-11-05"}, found: stateless.Legacy, want: []string{"2024-11-05"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, (&Adapter{config: test.config}).serves(test.own, test.found)); diff != "" {
				t.Errorf("served (-want +got):\n%s", diff)
			}
		})
	}
}

// B-02: the keeper of a server that has sessions uses one, and that of one without is
// ready all the same, with the second process that it starts, and knows that it has none.
func TestKeeperOfEachEra(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		era       stateless.Era
		shared    bool
		command   []string
		spoken    string
		stateless bool
	}{
		"legacy":                 {stateless.Auto, false, []string{eraFilter, "legacy", bothServer}, "2025-11-25", false},
		"both":                   {stateless.Auto, false, []string{bothServer}, "2025-11-25", false},
		"modern":                 {stateless.Auto, false, []string{eraFilter, "modern", bothServer}, "2026-07-28", true},
		"both, pinned to legacy": {stateless.Legacy, false, []string{bothServer}, "2025-11-25", false},
		"both, pinned to modern": {stateless.Modern, false, []string{bothServer}, "2026-07-28", true},
		"shared legacy":          {stateless.Auto, true, []string{eraFilter, "legacy", bothServer}, "2025-11-25", false},
		"shared modern":          {stateless.Auto, true, []string{eraFilter, "modern", bothServer}, "2026-07-28", true},
		"shared, pinned":         {stateless.Modern, true, []string{bothServer}, "2026-07-28", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			adapter, _ := startAdapterOn(t, newListener(t), func(c *config.Config) { c.Era, c.Shared, c.Warm = test.era, test.shared, 0 }, test.command...)
			deadline := time.After(hang.Guard)
			for {
				state, changed := adapter.keeper.State()
				if state.Ready {
					if state.Stateless != test.stateless || state.Catalog.Server.ProtocolVersion != test.spoken {
						t.Errorf("stateless %t, revision %s", state.Stateless, state.Catalog.Server.ProtocolVersion)
					}
					if diff := cmp.Diff(adapter.serves(state.Catalog.Server, stateless.Auto), state.Catalog.Server.ProtocolVersions); diff != "" {
						t.Errorf("served (-want +got):\n%s", diff)
					}
					starts := uint64(1)
					if test.stateless && test.era == stateless.Auto {
						starts = 2 // the first refuses to initialize
					}
					if got := adapter.backend.processes.Starts.Load(); got != starts {
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
