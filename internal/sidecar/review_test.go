package sidecar

import (
	"net/http"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/onsi/gomega"
)

// onlyWith lets nobody in without credentials.
func onlyWith(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Servers that want credentials of everybody have clients of both eras, too.
func TestReviewServersThatWantCredentials(t *testing.T) {
	clients := &http.Client{Transport: showing("Bearer one")}
	for name, test := range map[string]struct {
		server   *httpServer
		revision string
	}{
		"modern server": {&httpServer{initialize: refuseInitialize}, "2025-11-25"},
		"legacy server": {&httpServer{initialize: agreeToInitialize, noDiscover: true}, "2026-07-28"},
	} {
		t.Run(name, func(t *testing.T) {
			at := serveHTTP(t, onlyWith(test.server))
			adapter, url := startAdapter(t, func(c *Config) { c.Transport, c.UpstreamURL = StreamableHTTP, at })
			gomega.NewWithT(t).Eventually(func() bool { state, _ := adapter.keeper.State(); return state.Ready }).WithTimeout(10 * time.Second).Should(gomega.BeTrue())
			session, err := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil).
				Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: clients, DisableStandaloneSSE: true}, &mcp.ClientSessionOptions{ProtocolVersion: test.revision})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = session.Close() }()
			if got := session.InitializeResult().ProtocolVersion; got != test.revision {
				t.Errorf("the client has revision %s, want %s", got, test.revision)
			}
		})
	}
}

// A subscription is made in the name of whoever wants it.
func TestReviewSubscriptionsShowTheToken(t *testing.T) {
	server := &httpServer{initialize: refuseInitialize}
	shown := make(chan string, 16)
	_, url := adapterFor(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Method") == "subscriptions/listen" {
			shown <- r.Header.Get("Authorization")
		}
		server.ServeHTTP(w, r)
	}), nil)
	<-shown // the keeper's
	session, err := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, nil).
		Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: showing("Bearer one")}}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = session.Close() }()
	select {
	case got := <-shown:
		if got != "Bearer one" {
			t.Errorf("it is asked for by somebody who shows %q", got)
		}
	case <-time.After(5 * time.Second):
		t.Error("no subscription")
	}
}
