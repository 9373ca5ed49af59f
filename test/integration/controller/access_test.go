package controller

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/addresspolicy"
	"github.com/slipway-mcp/slipway/internal/promise"
	"github.com/slipway-mcp/slipway/internal/reason"
	"github.com/slipway-mcp/slipway/internal/workload"
	"github.com/slipway-mcp/slipway/test/authserver"
	"github.com/slipway-mcp/slipway/test/hang"
)

// accessText is the access document in the server's ConfigMap; empty if there is none.
func accessText(t *testing.T, server client.Object) string {
	t.Helper()
	config := &corev1.ConfigMap{}
	name := types.NamespacedName{Namespace: server.GetNamespace(), Name: server.GetName() + "-adapter"}
	if err := shared.client.Get(t.Context(), name, config); err != nil {
		return ""
	}
	return config.Data[adapterapi.AccessFile]
}

// accessOf is the access document, if it has the signature of the server's key; zero if not.
func accessOf(t *testing.T, server client.Object) adapterapi.Access {
	t.Helper()
	secret := &corev1.Secret{}
	name := types.NamespacedName{Namespace: server.GetNamespace(), Name: server.GetName() + "-keys"}
	if err := shared.client.Get(t.Context(), name, secret); err != nil {
		return adapterapi.Access{}
	}
	ring, err := adapterapi.ParseKeyring(string(secret.Data[adapterapi.KeysCurrent]), string(secret.Data[adapterapi.KeysAccepted]))
	if err != nil {
		t.Fatal(err)
	}
	access, err := ring.OpenAccess([]byte(accessText(t, server)))
	if err != nil {
		return adapterapi.Access{}
	}
	return access
}

// accessFor lets a group call every tool.
func accessFor(group string) *mcpv1alpha1.Access {
	return &mcpv1alpha1.Access{Rules: []mcpv1alpha1.AccessRule{{
		Subjects: []mcpv1alpha1.Subject{{Kind: mcpv1alpha1.SubjectKindGroup, Name: group}}, Tools: []mcpv1alpha1.NamePattern{"*"},
	}}}
}

// The access rules change without a restart, and nothing else changes the document: neither the rest of the
// spec, nor another manager, nor a user.
func TestAccessChangesWithoutRestart(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	old := startOperator(t, namespace, nil)
	server := newServer(namespace, "echo")
	create(t, server)
	eventually(t, server, "Ready", "True Ready", "AccessEnforced", "absent")
	pods, template := podNames(t, namespace), templateOf(t, server)
	first, text := accessOf(t, server), accessText(t, server)
	g.Expect(first).To(And(HaveField("Mode", adapterapi.AccessNone), HaveField("Server", adapterapi.AccessServer{Namespace: namespace, Name: "echo"})))

	config := &corev1.ConfigMap{}
	g.Expect(shared.client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "echo-adapter"}, config)).To(Succeed())
	change(t, config, func(c *corev1.ConfigMap) { c.Data[adapterapi.AccessFile] = "{}" })
	g.Eventually(accessText).WithArguments(t, server).WithTimeout(hang.Guard).Should(Equal(text))
	change(t, config, func(c *corev1.ConfigMap) { delete(c.Data, adapterapi.AccessFile) })
	g.Eventually(accessText).WithArguments(t, server).WithTimeout(hang.Guard).Should(Equal(text))
	g.Expect(shared.client.Delete(t.Context(), config)).To(Succeed())
	g.Eventually(accessText).WithArguments(t, server).WithTimeout(hang.Guard).Should(Equal(text))

	old.stop()
	startOperator(t, namespace, nil)
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Adapter.Verbosity = new(int32(1)) })
	g.Eventually(func() int { return settingsOf(t, server).Verbosity }).WithTimeout(hang.Guard).Should(Equal(1))
	g.Expect(accessText(t, server)).To(Equal(text))

	change(t, server, func(s *mcpv1alpha1.MCPServer) {
		s.Spec.Access = &mcpv1alpha1.Access{Hidden: []mcpv1alpha1.NamePattern{"admin_*"}}
		s.Spec.Audit = &mcpv1alpha1.Audit{Level: mcpv1alpha1.AuditLevelMetadata}
	})
	g.Eventually(accessOf).WithArguments(t, server).WithTimeout(hang.Guard).Should(And(
		HaveField("Generation", BeNumerically(">", first.Generation)), HaveField("Hidden", ConsistOf("admin_*")), HaveField("Audit.Level", adapterapi.AuditMetadata)))
	g.Eventually(says).WithArguments(t, server, "AccessEnforced").WithTimeout(hang.Guard).ShouldNot(Equal("absent"))
	g.Eventually(func() string { return status(t, server).Access.Digest }).WithTimeout(hang.Guard).Should(Equal(adapterapi.SettingsDigest([]byte(accessText(t, server)))))

	change(t, server, func(s *mcpv1alpha1.MCPServer) {
		s.Spec.Auth = &mcpv1alpha1.Auth{Kubernetes: &mcpv1alpha1.KubernetesAuth{}}
		s.Spec.Access = &mcpv1alpha1.Access{Rules: []mcpv1alpha1.AccessRule{{
			Subjects: []mcpv1alpha1.Subject{{Kind: mcpv1alpha1.SubjectKindServiceAccount, Namespace: "agents", Name: "triage"}}, Tools: []mcpv1alpha1.NamePattern{"*"},
		}}}
	})
	g.Eventually(accessOf).WithArguments(t, server).WithTimeout(hang.Guard).Should(And(
		HaveField("Mode", adapterapi.AccessRequired), HaveField("Resources", ConsistOf("http://echo."+namespace+".svc/mcp")),
		HaveField("Issuers", ConsistOf(And(HaveField("Name", adapterapi.KubernetesIssuer), HaveField("Keys", Not(BeEmpty())))))))
	g.Eventually(func() []mcpv1alpha1.IssuerStatus { return status(t, server).Access.Issuers }).WithTimeout(hang.Guard).Should(
		ConsistOf(And(HaveField("Name", adapterapi.KubernetesIssuer), HaveField("Keys", BeNumerically(">", 0)))))
	eventually(t, server, "Accepted", "True Accepted")

	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Auth, s.Spec.Access, s.Spec.Audit = nil, nil, nil })
	g.Eventually(accessOf).WithArguments(t, server).WithTimeout(hang.Guard).Should(HaveField("Mode", adapterapi.AccessNone))
	eventually(t, server, "Ready", "True Ready", "AccessEnforced", "absent", "Reconciling", "absent")
	g.Expect(podNames(t, namespace)).To(Equal(pods), "pods were replaced")
	g.Expect(templateOf(t, server)).To(Equal(template))
}

// A server that is refused for another reason still enforces its spec. The certificates of an issuer are a
// reference like others, but a change of them does not replace pods.
func TestAccessOfRefusedServer(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace, server := readyServer(t)
	pods := podNames(t, namespace)
	change(t, server, func(s *mcpv1alpha1.MCPServer) {
		s.Spec.Auth = &mcpv1alpha1.Auth{Issuers: []mcpv1alpha1.Issuer{{
			Name: "corp", URL: "https://corp.invalid", CABundle: &mcpv1alpha1.ConfigMapKey{Name: "corp-ca", Key: "ca.crt"},
		}}}
		s.Spec.Access = accessFor("corp:sre")
	})
	eventually(t, server, "Accepted", "False ReferenceNotFound")
	g.Eventually(accessOf).WithArguments(t, server).WithTimeout(hang.Guard).Should(And(
		HaveField("Mode", adapterapi.AccessRequired), HaveField("Issuers", ConsistOf(And(HaveField("Name", "corp"), HaveField("Keys", BeEmpty()))))))

	create(t, &corev1.ConfigMap{ObjectMeta: objectMeta(namespace, "corp-ca"), Data: map[string]string{"ca.crt": "none"}})
	eventually(t, server, "Accepted", "False IssuerUnavailable")
	g.Expect(podNames(t, namespace)).To(Equal(pods), "pods were replaced")
}

// hugeRules are more than adapters can take. They are like the first rule of the server.
func hugeRules(s *mcpv1alpha1.MCPServer) {
	rule := s.Spec.Access.Rules[0]
	for i := range 128 {
		rule.Resources = append(rule.Resources, mcpv1alpha1.URIPattern(fmt.Sprintf("docs://%d/%s", i, strings.Repeat("x", 200))))
	}
	s.Spec.Access.Rules = slices.Repeat([]mcpv1alpha1.AccessRule{rule}, 32)
}

// Rules that adapters cannot take are not in effect, and the status says so. The pods keep the last ones, and so
// does the ConfigMap for pods that start. Settings still change.
func TestAccessThatIsTooLarge(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace, server := readyServer(t)
	pods := podNames(t, namespace)
	change(t, server, func(s *mcpv1alpha1.MCPServer) {
		addAuth(s)
		s.Spec.Adapter.AllowedOrigins = []mcpv1alpha1.Origin{"https://app.example"}
	})
	eventually(t, server, "Ready", "True Ready", "AccessEnforced", "True AccessEnforced")
	g.Expect(settingsOf(t, server).AllowedOrigins).To(ConsistOf("https://app.example"))
	text, digest := accessText(t, server), status(t, server).Access.Digest

	change(t, server, func(s *mcpv1alpha1.MCPServer) {
		hugeRules(s)
		s.Spec.Adapter.AllowedOrigins = nil
	})
	eventually(t, server, "Ready", "False AccessNotEnforced", "AccessEnforced", "False AccessNotEnforced", "Accepted", "False InvalidSpec",
		"Available", "True Available", "Stalled", "True InvalidSpec")
	for _, condition := range []string{"Ready", "AccessEnforced", "Accepted"} {
		g.Expect(meta.FindStatusCondition(status(t, server).Conditions, condition)).To(HaveField("Message",
			And(ContainSubstring("pods keep enforcing the last ones"), ContainSubstring("the document is too large"), HaveSuffix(string(reason.ShrinkAccess)))), condition)
	}
	g.Expect(settingsOf(t, server).AllowedOrigins).To(BeEmpty())
	g.Expect(accessText(t, server)).To(Equal(text))
	g.Expect(status(t, server).Access.Digest).To(Equal(digest))

	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Access.Rules = accessFor("system:authenticated").Rules })
	eventually(t, server, "Ready", "True Ready", "AccessEnforced", "True AccessEnforced", "Accepted", "True Accepted", "Stalled", "absent")
	g.Expect(accessText(t, server)).NotTo(Equal(text))
	g.Expect(podNames(t, namespace)).To(Equal(pods), "pods were replaced")
}

// A user adds auth to an open server, with rules that adapters cannot take. The pods do not stay open: they
// refuse every client until the rules fit, and so do pods that start. Another manager leaves it at that.
func TestAuthWithRulesThatAreTooLarge(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	old := startOperator(t, namespace, nil)
	server := newServer(namespace, "echo")
	server.Spec.Adapter.AllowedOrigins = []mcpv1alpha1.Origin{"https://app.example"}
	create(t, server)
	eventually(t, server, "Ready", "True Ready")
	g.Expect(pingStatus(t, namespace)).To(Equal(http.StatusOK))
	pods := podNames(t, namespace)

	change(t, server, func(s *mcpv1alpha1.MCPServer) {
		addAuth(s)
		hugeRules(s)
		s.Spec.Adapter.AllowedOrigins = nil
	})
	g.Eventually(pingStatus).WithArguments(t, namespace).WithTimeout(hang.Guard).Should(Equal(http.StatusForbidden))
	notEnforced := []string{"Ready", "False AccessNotEnforced", "AccessEnforced", "False AccessNotEnforced", "Accepted", "False InvalidSpec", "Available", "True Available"}
	eventually(t, server, notEnforced...)
	g.Expect(meta.FindStatusCondition(status(t, server).Conditions, "AccessEnforced")).To(HaveField("Message",
		And(ContainSubstring("refuse every client"), HaveSuffix(string(reason.ShrinkAccess)))))
	closed, text := accessOf(t, server), accessText(t, server)
	g.Expect(workload.IsClosed(&closed)).To(BeTrue(), "pods that start are open")
	g.Expect(status(t, server).Access.Digest).To(Equal(adapterapi.SettingsDigest([]byte(text))))
	g.Expect(settingsOf(t, server).AllowedOrigins).To(BeEmpty())

	old.stop()
	startOperator(t, namespace, nil)
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Adapter.Verbosity = new(int32(1)) })
	g.Eventually(func() int { return settingsOf(t, server).Verbosity }).WithTimeout(hang.Guard).Should(Equal(1))
	g.Expect(accessText(t, server)).To(Equal(text))
	eventually(t, server, notEnforced...)

	change(t, server, addAuth)
	eventually(t, server, "Ready", "True Ready", "AccessEnforced", "True AccessEnforced", "Accepted", "True Accepted")
	g.Expect(pingStatus(t, namespace)).To(Equal(http.StatusUnauthorized))
	g.Expect(podNames(t, namespace)).To(Equal(pods), "pods were replaced")
}

// An issuer signs with a key that it publishes only then, as some do, right after the manager has fetched its
// keys. Clients are told to try again, and soon the token counts.
func TestNewKeyCountsInTime(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace, corp := newNamespace(t), authserver.Start(t, authserver.Options{})
	startOperator(t, namespace, func(o *operatorOptions) { o.issuers = addresspolicy.Policy{AllowLoopback: true} })
	create(t, &corev1.ConfigMap{ObjectMeta: objectMeta(namespace, "corp-ca"), Data: map[string]string{"ca.crt": string(corp.CA)}})
	server := newServer(namespace, "echo")
	server.Spec.Auth = &mcpv1alpha1.Auth{Issuers: []mcpv1alpha1.Issuer{{
		Name: "corp", URL: corp.Issuer, CABundle: &mcpv1alpha1.ConfigMapKey{Name: "corp-ca", Key: "ca.crt"},
	}}}
	server.Spec.Access = accessFor("system:authenticated")
	create(t, server)
	eventually(t, server, "Ready", "True Ready", "AccessEnforced", "True AccessEnforced")
	claims := map[string]any{"sub": "alice", "aud": "http://echo." + namespace + ".svc/mcp"}
	g.Expect(statusWith(t, namespace, corp.Mint(claims))).To(Equal(http.StatusOK))

	corp.Rotate()
	corp.Retire()
	fresh, begin := corp.Mint(claims), time.Now()
	g.Expect(statusWith(t, namespace, fresh)).To(Equal(http.StatusServiceUnavailable))
	g.Eventually(statusWith).WithArguments(t, namespace, fresh).WithTimeout(hang.Guard).Should(Equal(http.StatusOK))
	g.Expect(time.Since(begin)).To(BeNumerically("<=", promise.NewKey))
}
