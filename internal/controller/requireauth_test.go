package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

// Which servers must have spec.auth, and which Namespace the cache needs to decide that.
func TestRequireAuth(t *testing.T) {
	inProduction := labels.SelectorFromSet(labels.Set{"stage": "production"})
	tests := map[string]struct {
		selector  labels.Selector
		namespace labels.Set // nil: the cache does not have it
		auth      *mcpv1alpha1.Auth
		refused   bool
		err       string
	}{
		"none":                     {},
		"all":                      {selector: labels.Everything(), refused: true},
		"all, with auth":           {selector: labels.Everything(), auth: &mcpv1alpha1.Auth{}},
		"all, checked by itself":   {selector: labels.Everything(), auth: &mcpv1alpha1.Auth{Mode: mcpv1alpha1.AuthModeServer}},
		"selected":                 {selector: inProduction, namespace: labels.Set{"stage": "production", "a": "b"}, refused: true},
		"selected, with auth":      {selector: inProduction, namespace: labels.Set{"stage": "production"}, auth: &mcpv1alpha1.Auth{}},
		"not selected":             {selector: inProduction, namespace: labels.Set{"stage": "test"}},
		"a namespace without":      {selector: inProduction, namespace: labels.Set{}},
		"not known yet":            {selector: inProduction, err: "get Namespace team"},
		"not known yet, with auth": {selector: inProduction, auth: &mcpv1alpha1.Auth{}},
		"not known yet, and none":  {},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			objects := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme)
			if test.namespace != nil {
				namespace := metadataOf(namespaceKind)
				namespace.Name, namespace.Labels = "team", test.namespace
				objects.WithObjects(namespace)
			}
			r := New(Options{RequireAuth: test.selector, Metadata: objects.Build()})
			s := newState(&mcpv1alpha1.MCPServer{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "echo"}, Spec: mcpv1alpha1.MCPServerSpec{Auth: test.auth}}, time.Now())
			err := r.observeNamespace(t.Context(), s)
			if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Fatalf("got error %v, want %q", err, test.err)
			}
			if err := r.requireAuth(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if (s.refusal != nil) != test.refused || s.refusal != nil && (s.refusal.Reason != mcpv1alpha1.ReasonAuthRequired || !strings.Contains(s.refusal.Message, "add spec.auth")) {
				t.Errorf("refused: %+v, want %v", s.refusal, test.refused)
			}
			watches := slices.ContainsFunc(r.watchedKinds(), func(kind watchedKind) bool { return kind.kind == namespaceKind })
			if want := test.selector != nil && !test.selector.Empty(); watches != want {
				t.Errorf("namespaces are watched: %v, want %v", watches, want)
			}
		})
	}
}

// Adapters of a server that lacks auth get a document that refuses every client, whatever else the spec says.
func TestAccessWithoutRequiredAuth(t *testing.T) {
	w := newAccessWorld(t)
	w.server.Spec.Auth = nil
	w.server.Spec.Access.Rules[0].Subjects[0].Name = adapterapi.GroupUnauthenticated
	_, open := w.plan()
	s := newState(w.server, w.now)
	s.keys, s.memory, s.lacksAuth = w.keys, w.memory, true
	if err := w.r.planAccess(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	closed, err := w.keys.ring.OpenAccess([]byte(s.access.Text))
	if err != nil {
		t.Fatal(err)
	}
	if len(open.Blocked) > 0 || len(closed.Blocked) != 1 || closed.Blocked[0].Name != adapterapi.GroupUnauthenticated || closed.Generation <= open.Generation {
		t.Errorf("%+v, then %+v", open, closed)
	}
	w.server.Spec.Access = nil
	if accessOf(s) == nil {
		t.Error("the status does not say whether adapters refuse every client")
	}
}
