package sidecar

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/sidecar/wire"
)

// A server without sessions that does not answer initialize at all. Its own clients, who have
// no use for one, must not wait for that.
func TestReviewSilentInitializeDelaysModernClients(t *testing.T) {
	without := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return shownServer() }, &mcp.StreamableHTTPOptions{Stateless: true})
	at := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if e, err := wire.Scan(body); err == nil && string(e.Method) == "initialize" {
			select {
			case <-r.Context().Done():
			case <-t.Context().Done():
			}
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		without.ServeHTTP(w, r)
	}))
	adapter, url := startAdapter(t, func(c *Config) { c.Transport, c.UpstreamURL = StreamableHTTP, at })
	gomega.NewWithT(t).Eventually(func() bool {
		state, _ := adapter.keeper.State()
		return state.Ready
	}).WithTimeout(20 * time.Second).Should(gomega.BeTrue())
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			begun := time.Now()
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(
				`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
					`"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`))
			if err != nil {
				t.Error(err)
				return
			}
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set("Accept", "application/json, text/event-stream")
			request.Header.Set("MCP-Protocol-Version", "2026-07-28")
			request.Header.Set("Mcp-Method", "server/discover")
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Error(err)
				return
			}
			_ = response.Body.Close()
			if took := time.Since(begun); took > 2*time.Second {
				t.Errorf("server/discover took %s (status %d)", took, response.StatusCode)
			}
		})
	}
	clients.Wait()
}
