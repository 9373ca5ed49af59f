package controller

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/config"
	"github.com/slipway-mcp/slipway/test/hang"
)

// pingStatus is the status of the answer to a client of the only pod that has no token.
func pingStatus(t *testing.T, namespace string) int {
	t.Helper()
	return statusWith(t, namespace, "")
}

// statusWith is the same of a client with a token, unless that is empty.
func statusWith(t *testing.T, namespace, token string) int {
	t.Helper()
	pods := listed(t, namespace, &corev1.PodList{})
	if len(pods) != 1 {
		t.Fatalf("%d pods", len(pods))
	}
	url := fmt.Sprintf("http://%s:%d/mcp", pods[0].(*corev1.Pod).Status.PodIP, mcpv1alpha1.AdapterPort)
	initialize := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(initialize))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	return response.StatusCode
}

// addAuth lets one ServiceAccount call every tool.
func addAuth(s *mcpv1alpha1.MCPServer) {
	s.Spec.Auth = &mcpv1alpha1.Auth{Kubernetes: &mcpv1alpha1.KubernetesAuth{}}
	s.Spec.Access = &mcpv1alpha1.Access{Rules: []mcpv1alpha1.AccessRule{{
		Subjects: []mcpv1alpha1.Subject{{Kind: mcpv1alpha1.SubjectKindServiceAccount, Namespace: "agents", Name: "triage"}}, Tools: []mcpv1alpha1.NamePattern{"*"},
	}}}
}

// If a platform team requires auth, the manager closes open servers without touching their pods, and
// reports it in an Event. New servers without auth get no pods.
func TestAuthIsRequiredOfAll(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	before := startOperator(t, namespace, nil)
	server := newServer(namespace, "echo")
	create(t, server)
	eventually(t, server, "Ready", "True Ready")
	g.Expect(pingStatus(t, namespace)).To(Equal(http.StatusOK))
	pods, template := podNames(t, namespace), templateOf(t, server)

	before.stop()
	required := func(o *operatorOptions) { o.auth.Require = config.RequireAll }
	first := startOperator(t, namespace, required)
	eventually(t, server, "Ready", "False AuthRequired", "Accepted", "False AuthRequired", "Available", "True Available",
		"Verified", "True Verified", "AccessEnforced", "True AccessEnforced", "Stalled", "True AuthRequired")
	g.Expect(pingStatus(t, namespace)).To(Equal(http.StatusForbidden))
	g.Eventually(func() []string {
		var reasons []string
		for _, event := range listed(t, namespace, &eventsv1.EventList{}) {
			reasons = append(reasons, event.(*eventsv1.Event).Reason)
		}
		return reasons
	}).WithTimeout(hang.Guard).Should(ContainElement("AuthRequired"))
	late := newServer(namespace, "late")
	create(t, late)
	eventually(t, late, "Accepted", "False AuthRequired", "Available", "False PodsNotCreated")
	first.stop()
	startOperator(t, namespace, required)

	change(t, server, addAuth)
	eventually(t, server, "Accepted", "True Accepted", "Ready", "True Ready", "AccessEnforced", "True AccessEnforced", "Stalled", "absent")
	g.Expect(pingStatus(t, namespace)).To(Equal(http.StatusUnauthorized))
	g.Expect(podNames(t, namespace)).To(Equal(pods), "pods were replaced")
	g.Expect(templateOf(t, server)).To(Equal(template))

	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Auth, s.Spec.Access = nil, nil })
	eventually(t, server, "Ready", "False AuthRequired", "AccessEnforced", "True AccessEnforced")
	g.Expect(pingStatus(t, namespace)).To(Equal(http.StatusForbidden))
}

// production selects namespaces by a label.
func production(o *operatorOptions) {
	o.auth = config.Auth{Require: config.RequireSelector, NamespaceSelector: metav1.LabelSelector{MatchLabels: map[string]string{"stage": "production"}}}
}

func relabel(t *testing.T, namespace, stage string) {
	t.Helper()
	change(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, func(n *corev1.Namespace) { n.Labels["stage"] = stage })
}

// The labels of a namespace say whether its servers need auth, also when they change.
func TestAuthIsRequiredBySelector(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	startOperator(t, namespace, production)
	server := newServer(namespace, "echo")
	create(t, server)
	eventually(t, server, "Ready", "True Ready", "AccessEnforced", "absent")
	relabel(t, namespace, "production")
	eventually(t, server, "Ready", "False AuthRequired", "AccessEnforced", "True AccessEnforced")
	g.Expect(pingStatus(t, namespace)).To(Equal(http.StatusForbidden))
	relabel(t, namespace, "test")
	eventually(t, server, "Ready", "True Ready", "Accepted", "True Accepted", "AccessEnforced", "absent")
	g.Eventually(pingStatus).WithArguments(t, namespace).WithTimeout(hang.Guard).Should(Equal(http.StatusOK))
}
