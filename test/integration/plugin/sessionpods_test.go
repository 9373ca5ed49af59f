package plugin

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/plugin/table"
	adminport "github.com/slipway-mcp/slipway/internal/sidecar/admin"
	"github.com/slipway-mcp/slipway/internal/sidecar/keys"
)

// A pod that does not answer, or has an older adapter, does not hide the sessions of the others.
func TestSessionsOfPodsThatDoNotAnswer(t *testing.T) {
	namespace := newNamespace(t, "session-pods")
	createServers(t, namespace)
	server := &mcpv1alpha1.MCPServer{}
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "tickets"}, server); err != nil {
		t.Fatal(err)
	}
	key := adapterapi.NewKey()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "tickets-sessions",
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(server, mcpv1alpha1.SchemeGroupVersion.WithKind("MCPServer"))},
		},
		StringData: map[string]string{adapterapi.SessionsKeyEntry: key.Sessions().Encode()},
	}
	create(t, secret)
	t.Cleanup(func() { remove(t, secret) })
	node := startKubelet(t, "session-pods")
	node.addPod(t, namespace, "tickets", "tickets-1-works", func(w http.ResponseWriter, r *http.Request) {
		pod := &corev1.Pod{}
		if err := admin.Get(r.Context(), client.ObjectKey{Namespace: namespace, Name: "tickets-1-works"}, pod); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		held, err := keys.New(adapterapi.Keyring{Current: key}, string(pod.UID))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		adminport.Handler(adminport.Options{Keys: held, Metrics: http.NotFoundHandler(), ListSessions: func() adapterapi.SessionList {
			return adapterapi.SessionList{Sessions: []adapterapi.SessionInfo{{Number: "7", Client: "inspector"}}}
		}}).ServeHTTP(w, r)
	})
	node.addPod(t, namespace, "tickets", "tickets-2-silent", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	node.addPod(t, namespace, "tickets", "tickets-3-old", http.NotFound)
	got := kubectlMCP(t, kubeconfig, table.Screen{}, "sessions", "tickets", "-n", namespace)
	if got.code != 0 || !strings.Contains(got.out, "works/7  inspector") {
		t.Errorf("exit code %d: %s%s", got.code, got.out, got.errOut)
	}
	for _, note := range []string{"pod tickets-2-silent: no answer within 4s", "pod tickets-3-old: the adapter is too old to list sessions"} {
		if !strings.Contains(got.errOut, note) {
			t.Errorf("%q is not in %s", note, got.errOut)
		}
	}
}
