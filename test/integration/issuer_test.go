package integration

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/slipway-mcp/slipway/internal/issuer"
	"github.com/slipway-mcp/slipway/test/hang"
)

// The keys that a ServiceAccount without any right of its own reads verify the tokens of the API server.
func TestKeysOfTheCluster(t *testing.T) {
	g := NewWithT(t)
	namespace := newNamespace(t, shared, "issuer-")
	token := newAccount(t, shared, namespace, "reader")
	config := rest.AnonymousClientConfig(shared.env.Config)
	config.BearerToken = token
	api, err := issuer.NewAPIServer(config)
	g.Expect(err).NotTo(HaveOccurred())

	notified := make(chan types.NamespacedName, 1)
	store := issuer.New(issuer.Options{Cluster: api, Notify: func(server types.NamespacedName) { notified <- server }})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- store.Run(ctx) }()
	source := issuer.Source{Name: "kubernetes", Cluster: true}
	store.Follow(types.NamespacedName{Namespace: namespace, Name: "echo"}, []issuer.Source{source})
	g.Eventually(notified).WithTimeout(hang.Guard).Should(Receive())
	cancel()
	g.Expect(<-done).To(Succeed())

	keys, known := store.Get(source)
	g.Expect(known).To(BeTrue())
	g.Expect(keys.Err).To(BeEmpty())
	g.Expect(keys.Warnings).To(BeEmpty())
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.RS256, jose.ES256})
	g.Expect(err).NotTo(HaveOccurred())
	var claims jwt.Claims
	g.Expect(parsed.Claims(keySet(t, keys.Keys), &claims)).To(Succeed(), "the keys do not verify a token")
	g.Expect(claims.Issuer).To(Equal(keys.Issuer))
	g.Expect(claims.Subject).To(Equal("system:serviceaccount:" + namespace + ":reader"))
}

func keySet(t *testing.T, keys []json.RawMessage) *jose.JSONWebKeySet {
	t.Helper()
	set := &jose.JSONWebKeySet{Keys: make([]jose.JSONWebKey, len(keys))}
	for i, key := range keys {
		if err := set.Keys[i].UnmarshalJSON(key); err != nil {
			t.Fatal(err)
		}
	}
	return set
}

// A stranger gets a class, and nothing of what the API server said.
func TestKeysOfTheClusterAreRefused(t *testing.T) {
	g := NewWithT(t)
	config := rest.AnonymousClientConfig(shared.env.Config)
	config.BearerToken = "nonsense"
	api, err := issuer.NewAPIServer(config)
	g.Expect(err).NotTo(HaveOccurred())
	store := issuer.New(issuer.Options{Cluster: api})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- store.Run(ctx) }()
	source := issuer.Source{Cluster: true}
	store.Follow(types.NamespacedName{Name: "echo"}, []issuer.Source{source})
	g.Eventually(func() string { keys, _ := store.Get(source); return keys.Err }).WithTimeout(hang.Guard).Should(Equal("answers with status 401"))
	cancel()
	g.Expect(<-done).To(Succeed())
}
