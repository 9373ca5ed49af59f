//go:build conformance

package conformance

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/slipway-mcp/slipway/test/adapter"
	"github.com/slipway-mcp/slipway/test/authserver"
)

// With auth the same scenarios pass as without. The suite has no token, so a proxy adds it.
func TestRequiredWithAuth(t *testing.T) {
	suite, err := Install(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	const resource = "https://echo.example.com/mcp"
	issuer := authserver.Start(t, authserver.Options{})
	document := adapter.NewAccess(t, resource, adapter.Issuer(t, issuer.Issuer, resource, issuer.Keys()), adapter.Everything())
	guarded := adapter.ServeWith(t, []string{"--access-file", document.Path}, tool(t, "everything-server"))
	response, err := http.Post(guarded, "application/json", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusUnauthorized {
		t.Fatalf("the adapter answers %s without a token: the suite would pass without the proxy", response.Status)
	}
	for _, revision := range []string{legacy, modern} {
		t.Run(revision, func(t *testing.T) {
			t.Parallel() // two callers, who share nothing
			token := issuer.Mint(map[string]any{"sub": "suite of " + revision, "aud": resource})
			require(t, suite, withToken(t, guarded, token), revision)
		})
	}
}

// withToken runs a proxy that adds a token to every request, and returns its URL. Streams pass through it as
// they come.
func withToken(t *testing.T, address, token string) string {
	t.Helper()
	target, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0), // clients leave streams
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host
			r.Out.Host = r.In.Host // what the suite has sent is for the adapter to judge
			r.Out.Header.Set("Authorization", "Bearer "+token)
		},
	})
	t.Cleanup(proxy.Close)
	return proxy.URL + target.Path
}
