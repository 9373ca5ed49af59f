package sidecar

import (
	"context"
	"net/http"
	"sync"
	"testing"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/test/hang"
)

// The number of sessions does not bound clients that have none. As many of them call and
// listen at a time where the server speaks HTTP as where it speaks on its standard output.
func TestHTTPServerHasRoomForClientsWithoutSessions(t *testing.T) {
	t.Parallel()
	const clients = 21
	for name, test := range map[string]struct{ method, params string }{
		"listeners": {"subscriptions/listen", `"notifications":{"toolsListChanged":true},`},
		"calls":     {"tools/call", `"name":"t",`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &httpServer{initialize: refuseInitialize}
			server.call = func(w http.ResponseWriter, r *http.Request, id string, _ []byte) { server.listen(w, r, id) }
			adapter, url := adapterFor(t, server, func(c *config.Config) { c.MaxSessions = clients - 1 })
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			refused := make(chan string, clients)
			for range clients {
				running.Go(func() {
					if status, body := modernPost(ctx, t, url, test.method, test.params); status == http.StatusServiceUnavailable {
						refused <- body
					}
				})
			}
			gomega.NewWithT(t).Eventually(func() int { return int(published(t, adapter, "upstream_single_requests")()) + len(refused) }).WithTimeout(hang.Guard).Should(gomega.Equal(clients))
			if len(refused) > 0 {
				t.Errorf("%d are refused: %s", len(refused), <-refused)
			}
			cancel()
			running.Wait()
		})
	}
}
