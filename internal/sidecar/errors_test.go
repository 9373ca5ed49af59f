package sidecar

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/sidecar/config"
)

const initializeBody = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`

// The adapter does not start a server that speaks HTTP, so the error does not say that a start failed.
func TestServerIsNotThere(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	at, err := url.Parse(gone.URL)
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	_, address := startAdapter(t, func(c *config.Config) { c.Transport, c.UpstreamURL = config.SSE, at })
	response, err := http.Post(address, "application/json", strings.NewReader(initializeBody))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), `"message":"the server could not be reached: `) {
		t.Errorf("%s: %s, %v", response.Status, body, err)
	}
}
