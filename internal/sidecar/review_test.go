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

	"github.com/slipway-mcp/slipway/internal/sidecar/stateless"
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

// A client that makes more calls than a session may have gets 503 for the last; those
// before it go on.
func TestReviewTooManyCallsEndTheOthers(t *testing.T) {
	_, url := startAdapterOn(t, newListener(t), func(c *Config) { c.Era, c.Shared, c.CallsPerSession = stateless.Legacy, true, 3 }, bothServer)
	one, hears := sdkClient(t, url, "")
	over := make(chan error, 8)
	wait := func(token string) {
		params := &mcp.CallToolParams{Name: "wait"}
		params.SetProgressToken(token)
		_, err := one.CallTool(t.Context(), params)
		over <- err
	}
	for _, token := range []string{"a", "b"} {
		go wait(token)
		expectChange(t, hears, "progress")
	}
	for _, token := range []string{"c", "d", "e"} {
		go wait(token)
	}
	var ended []error
	timeout := time.After(4 * time.Second)
	for {
		select {
		case err := <-over:
			ended = append(ended, err)
			continue
		case <-timeout:
		}
		break
	}
	for _, err := range ended {
		t.Logf("ended: %v", err)
		if strings.Contains(err.Error(), "does not read what it is sent") {
			t.Error("a call that was in flight has ended")
		}
	}
}
