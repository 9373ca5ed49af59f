package sidecar

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/test/hang"
)

// A server that is shared may write one data file. So clients without sessions share one process even when it has more
// calls in flight than make the adapter start another one otherwise.
func TestSharedServerHasOneProcessUnderLoad(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*config.Config)
		more   bool
	}{
		"shared":     {shared, false},
		"not shared": {nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := gomega.NewWithT(t)
			_, url := startAdapterOn(t, newListener(t), test.change, bothServer)
			var inFlight atomic.Int64
			client, err := mcp.NewClient(&mcp.Implementation{Name: "busy", Version: "1"}, &mcp.ClientOptions{
				ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { inFlight.Add(1) },
			}).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url}, &mcp.ClientSessionOptions{ProtocolVersion: "2026-07-28"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = client.Close() })
			pids := map[string]bool{}
			ask := func() int {
				answer, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: "pid"})
				if err != nil {
					t.Fatal(err)
				}
				pids[answer.Content[0].(*mcp.TextContent).Text] = true
				return len(pids)
			}
			ask()
			for i := range sessionless.BusyCalls {
				params := &mcp.CallToolParams{Name: "wait"}
				params.SetProgressToken(i)
				go func() { _, _ = client.CallTool(t.Context(), params) }()
				g.Eventually(inFlight.Load).WithTimeout(hang.Guard).Should(gomega.BeEquivalentTo(i + 1))
			}
			if test.more {
				g.Eventually(ask).WithTimeout(hang.Guard).Should(gomega.BeNumerically(">", 1))
				return
			}
			for range 10 * sessionless.BusyCalls {
				ask()
			}
			if len(pids) > 1 {
				t.Errorf("%d processes answer", len(pids))
			}
		})
	}
}
