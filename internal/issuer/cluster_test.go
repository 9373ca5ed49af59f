package issuer

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/slipway-mcp/slipway/internal/addresspolicy"
	"github.com/slipway-mcp/slipway/test/hang"
)

func TestClusterProblems(t *testing.T) {
	forbidden := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"surprise","reason":"Forbidden","code":403}`))
	}
	// The API server's own address is not for the manager.
	metadata := document(object{"issuer": "https://kubernetes.default.svc", "jwks_uri": "https://169.254.169.254/keys"})
	keys := document(keySetOf(jwk(&rsaKey.PublicKey, "one", object{"alg": "RS256", "use": "sig"})))
	tests := map[string]struct {
		metadata, keys http.HandlerFunc
		want           string // the class of the error; empty for none
	}{
		"all is well":         {metadata, keys, ""},
		"no right":            {forbidden, keys, "answers with status 403"},
		"no right to keys":    {metadata, forbidden, "answers with status 403"},
		"discovery is off":    {http.NotFound, keys, "answers with status 404"},
		"an issuer of no use": {document(object{}), keys, "its metadata names no issuer"},
		"HTML":                {page("<html>"), keys, "its metadata cannot be read"},
		"keys in HTML":        {metadata, page("<html>"), "its keys cannot be read"},
		"no keys":             {metadata, document(keySetOf()), "it publishes no key that can verify signatures"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			mux := http.NewServeMux()
			mux.HandleFunc("/.well-known/openid-configuration", test.metadata)
			mux.HandleFunc("/openid/v1/jwks", test.keys)
			server := httptest.NewServer(mux)
			t.Cleanup(server.Close)
			api, err := NewAPIServer(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			got, err := (&fetcher{cluster: api, timeout: hang.Guard}).fetch(t.Context(), Source{Cluster: true})
			if test.want != "" {
				if err == nil || classify(err) != test.want {
					t.Errorf("fetch: %v, want %q", err, test.want)
				}
				return
			}
			if err != nil || got.Issuer != "https://kubernetes.default.svc" || !cmp.Equal(ids(t, got.Keys), []string{"one"}) || got.Warnings != nil {
				t.Errorf("fetch: %+v, %v", got, err)
			}
		})
	}
}

// A Store with real connections leaves none of them behind.
func TestNothingIsLeftBehind(t *testing.T) {
	g := gomega.NewWithT(t)
	good, silent := startAuthority(t), startAuthority(t)
	good.serve("/.well-known/openid-configuration", document(complete(good.URL, good.URL+"/keys")))
	good.serve("/keys", document(keySetOf(jwk(&ecKey.PublicKey, "one", nil))))
	silent.serve("/.well-known/oauth-authorization-server", hangHalfway)
	before := runtime.NumGoroutine()

	notified := make(chan types.NamespacedName, 8)
	store := New(Options{
		Addresses: addresspolicy.Policy{AllowLoopback: true}, Notify: func(server types.NamespacedName) { notified <- server },
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- store.Run(ctx) }()
	store.Follow(server("a"), []Source{good.source(""), silent.source("")})
	if got := <-notified; got != server("a") {
		t.Errorf("notified %s", got)
	}
	g.Eventually(func(g gomega.Gomega) {
		keys, known := store.Get(good.source(""))
		g.Expect(known).To(gomega.BeTrue())
		g.Expect(keys.Keys).To(gomega.HaveLen(1), keys.Err)
	}).WithTimeout(hang.Guard).Should(gomega.Succeed())
	g.Eventually(silent.requests).WithTimeout(hang.Guard).ShouldNot(gomega.BeEmpty())
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
	g.Eventually(runtime.NumGoroutine).WithTimeout(hang.Guard).Should(gomega.BeNumerically("<=", before))
	store.Follow(server("b"), []Source{good.source("/late")})
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines after the end, %d before", n, before)
	}
}
