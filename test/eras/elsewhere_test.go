//go:build conformance

package eras

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/test/adapter"
)

// Every revision uses every feature of every server as with one replica, although the replica at which requests arrive
// never has the session or the parked call.
func TestMatrixElsewhere(t *testing.T) {
	clients := []client{{name: "go", use: useGo, refused: "agreed on 2025-11-25, want 2026-07-28"}}
	for _, s := range columns {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.elsewhere = true
			visit(t, s, clients, slices.Clone(revisions))
		})
		if slices.Contains(s.ways, fallsBack) {
			t.Run(s.name+", translated", func(t *testing.T) {
				t.Parallel()
				translated := s.withTranslation()
				translated.elsewhere = true
				visit(t, translated, clients, []string{modern})
			})
		}
	}
}

// throughAnother has all that begins arrive at the first replica, and all that goes on there at the second.
func throughAnother(t *testing.T, replicas []adapter.Process) address {
	t.Helper()
	var targets []*url.URL
	for _, replica := range replicas {
		target, err := url.Parse(strings.TrimSuffix(replica.URL, "/mcp"))
		if err != nil {
			t.Fatal(err)
		}
		targets = append(targets, target)
	}
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		target := targets[1]
		if begins(r.In) {
			target = targets[0]
		}
		r.SetURL(target)
		r.Out.Header["X-Forwarded-For"] = nil
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client has gone
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return address{http: server.URL + "/mcp", sse: server.URL + "/sse"}
}

// begins reports whether a request begins something: a session, a stream of the older transport, or a call.
func begins(r *http.Request) bool {
	switch {
	case r.Method == http.MethodGet:
		return r.URL.Path == "/sse"
	case r.Header.Get("Mcp-Session-Id") != "" || r.URL.Path != "/mcp":
		return false
	}
	again, err := r.GetBody()
	if err != nil {
		return false
	}
	body, err := io.ReadAll(again)
	return err == nil && !bytes.Contains(body, []byte(`"requestState"`))
}
