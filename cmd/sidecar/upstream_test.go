package main

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/test/hang"
)

// A pod has a socket for the adapter's hook, whatever the server speaks. No launcher connects to the
// adapter of an HTTP server, and the adapter does not wait for one.
func TestHTTPServerNeedsNoLauncher(t *testing.T) {
	t.Parallel()
	for transport, handler := range map[string]http.Handler{
		"streamable-http": mcp.NewStreamableHTTPHandler(newTestServer, nil),
		"sse":             mcp.NewSSEHandler(newTestServer, nil),
	} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			upstream := httptest.NewServer(handler)
			t.Cleanup(upstream.Close)
			_, admin := startSidecar(t, "--socket", filepath.Join(t.TempDir(), "s"), "--transport", transport, "--upstream", upstream.URL+"/")
			gomega.NewWithT(t).Eventually(func() int { return status(t, admin+"/readyz?wait=1.8s") }).
				WithTimeout(hang.Guard).Should(gomega.Equal(http.StatusOK))
		})
	}
}

func newTestServer(*http.Request) *mcp.Server {
	return mcp.NewServer(&mcp.Implementation{Name: "upstream", Version: "1"}, nil)
}
