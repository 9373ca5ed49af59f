package controller

import (
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/test/hang"
)

// standIn answers for the adapter of simulated pods of a server, as a test wants it to.
func standIn(t *testing.T, server types.NamespacedName, address string, clients http.Handler, catalog http.HandlerFunc) {
	t.Helper()
	serve(t, net.JoinHostPort(address, strconv.Itoa(mcpv1alpha1.AdapterPort)), clients)
	administrators := http.NewServeMux()
	administrators.Handle(adapterapi.PathCatalog, &signing{t: t, server: server, catalog: catalog})
	serve(t, net.JoinHostPort(address, strconv.Itoa(mcpv1alpha1.AdapterAdminPort)), administrators)
}

// signing signs what a handler answers, as the adapter of one of the server's pods.
type signing struct {
	t       *testing.T
	server  types.NamespacedName
	catalog http.HandlerFunc

	mu   sync.Mutex
	ring adapterapi.Keyring
	pods []types.UID
}

func (s *signing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	proof, _, ok := s.verify(r.Header.Get(adapterapi.HeaderProof), adapterapi.CatalogSubject)
	if !ok {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	recorded := httptest.NewRecorder()
	s.catalog(recorded, r)
	maps.Copy(w.Header(), recorded.Header())
	w.Header().Set(adapterapi.HeaderAnswer, proof.Seal(adapterapi.Answer{
		Status: recorded.Code, ETag: recorded.Header().Get("ETag"), Sessions: recorded.Header().Get(adapterapi.HeaderSessions), Body: recorded.Body.Bytes(),
	}))
	w.WriteHeader(recorded.Code)
	_, _ = w.Write(recorded.Body.Bytes())
}

// verify says which pod a request is for. It looks the server's keys and pods up when it does not know the one that is
// meant.
func (s *signing) verify(header string, subject func(podUID string) adapterapi.Subject) (adapterapi.Proof, types.UID, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range 2 {
		for _, uid := range s.pods {
			if proof, ok := s.ring.Verify(header, subject(string(uid)), time.Now()); ok {
				return proof, uid, true
			}
		}
		s.look()
	}
	return adapterapi.Proof{}, "", false
}

func (s *signing) look() {
	secret, pods := &corev1.Secret{}, &corev1.PodList{}
	name := types.NamespacedName{Namespace: s.server.Namespace, Name: s.server.Name + "-keys"}
	if err := shared.client.Get(s.t.Context(), name, secret); err != nil {
		return
	}
	err := shared.client.List(s.t.Context(), pods, client.InNamespace(s.server.Namespace), client.MatchingLabels{mcpv1alpha1.LabelServer: s.server.Name})
	if err != nil {
		return
	}
	s.ring, _ = adapterapi.ParseKeyring(string(secret.Data[adapterapi.KeysCurrent]), string(secret.Data[adapterapi.KeysAccepted]))
	s.pods = s.pods[:0]
	for i := range pods.Items {
		s.pods = append(s.pods, pods.Items[i].UID)
	}
}

func serve(t *testing.T, address string, handler http.Handler) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: hang.Guard}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
}
