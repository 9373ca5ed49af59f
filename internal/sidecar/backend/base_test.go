package backend

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/mcpprobe"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
)

// B-01, L-02: what clients can use depends on the transport, and on the revision that the
// server answers with when it is asked for the newest.
func TestRevisions(t *testing.T) {
	all := []string{"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}
	native, stdio, shared := config.Config{}, config.Config{StatelessClients: config.Translate}, config.Config{Shared: true}
	for name, test := range map[string]struct {
		config config.Config
		own    mcpprobe.Server
		want   []string
		found  sessionless.Era
	}{
		"newest sessions":          {config: stdio, own: mcpprobe.Server{ProtocolVersion: "2025-11-25"}, want: all},
		"older sessions":           {config: stdio, own: mcpprobe.Server{ProtocolVersion: "2025-03-26"}, want: []string{"2026-07-28", "2025-03-26", "2024-11-05"}},
		"oldest sessions":          {config: stdio, own: mcpprobe.Server{ProtocolVersion: "2024-11-05"}, want: []string{"2026-07-28", "2024-11-05"}},
		"no sessions":              {config: native, own: mcpprobe.Server{ProtocolVersion: "2026-07-28", ProtocolVersions: []string{"2026-07-28"}}, want: all},
		"sessions only":            {config: native, own: mcpprobe.Server{ProtocolVersion: "2025-11-25"}, found: sessionless.Legacy, want: all[1:]},
		"not known yet":            {config: native, own: mcpprobe.Server{ProtocolVersion: "2025-11-25"}, want: all[1:]},
		"both":                     {config: native, own: mcpprobe.Server{ProtocolVersion: "2025-11-25"}, found: sessionless.Modern, want: all},
		"one process":              {config: shared, own: mcpprobe.Server{ProtocolVersion: "2025-06-18"}, want: []string{"2026-07-28", "2025-06-18"}},
		"one process, no sessions": {config: shared, own: mcpprobe.Server{ProtocolVersion: "2026-07-28"}, want: all},
		"HTTP":                     {config: config.Config{Transport: config.StreamableHTTP}, own: mcpprobe.Server{ProtocolVersion: "2026-07-28", ProtocolVersions: []string{"2026-07-28", "x"}}, found: sessionless.Legacy, want: all},
		"HTTP, with sessions":      {config: config.Config{Transport: config.StreamableHTTP}, own: mcpprobe.Server{ProtocolVersion: "2025-06-18"}, found: sessionless.Legacy, want: []string{"2025-06-18", "2025-03-26", "2024-11-05"}},
		"HTTP, translated":         {config: config.Config{Transport: config.StreamableHTTP, StatelessClients: config.Translate}, own: mcpprobe.Server{ProtocolVersion: "2025-06-18"}, found: sessionless.Legacy, want: []string{"2026-07-28", "2025-06-18", "2025-03-26", "2024-11-05"}},
		"SSE":                      {config: config.Config{Transport: config.SSE}, own: mcpprobe.Server{ProtocolVersion: "2024-11-05"}, found: sessionless.Legacy, want: []string{"2024-11-05"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, (&Env{Config: test.config}).revisions(test.own, test.found)); diff != "" {
				t.Errorf("served (-want +got):\n%s", diff)
			}
		})
	}
}
