//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/promise"
)

const (
	accessInitialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"e2e","version":"1"}}}`
	accessEcho       = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"text":"secret argument"}}}`
	accessPID        = `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"pid","arguments":{}}}`
)

var _ = Describe("Access", Label("sessions"), func() {
	It("is for ServiceAccounts that a rule names, in running pods", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		server := start(ctx, stdioServer(ctx, namespace))
		before := identities(ctx, server)
		for _, name := range []string{"triage", "stranger"} {
			Expect(cluster.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}})).To(Succeed())
		}
		anonymous := visitorOf(server, "")
		Expect(anonymous.send(ctx, accessInitialize)).To(Equal(http.StatusOK), "without auth, no client needs a token")

		By("turning auth on, without a restart")
		change(ctx, server, func(spec *mcpv1alpha1.MCPServerSpec) {
			spec.Auth = &mcpv1alpha1.Auth{Kubernetes: &mcpv1alpha1.KubernetesAuth{}}
			spec.Access = &mcpv1alpha1.Access{Rules: []mcpv1alpha1.AccessRule{{
				Subjects: []mcpv1alpha1.Subject{{Kind: mcpv1alpha1.SubjectKindServiceAccount, Namespace: namespace, Name: "triage"}},
				Tools:    []mcpv1alpha1.NamePattern{"echo", "s*"},
			}}}
			spec.Audit = &mcpv1alpha1.Audit{Level: mcpv1alpha1.AuditLevelMetadata}
		})
		expectAccess(ctx, "refused without a token", func() int { return visitorOf(server, "").send(ctx, accessInitialize) }, Equal(http.StatusUnauthorized))
		awaitCondition(ctx, server, mcpv1alpha1.ConditionAccessEnforced, metav1.ConditionTrue, mcpv1alpha1.ReasonAccessEnforced)
		awaitReady(ctx, server)
		Expect(anonymous.send(ctx, accessEcho)).To(Equal(http.StatusUnauthorized), "the session that was open before")

		By("serving an agent pod with a projected token")
		said := runAgent(ctx, server, "triage", server.Status.Address.URL, "echo", "pid")
		Expect(said).To(And(
			ContainSubstring("listed: echo"), ContainSubstring("listed: sleep"), Not(ContainSubstring("listed: pid")),
			ContainSubstring("call echo: error false"), MatchRegexp(`call pid: .*no rule of this server allows you to call the tool`)))
		By("refusing pods without a rule, or with a token for another audience")
		Expect(runAgent(ctx, server, "stranger", server.Status.Address.URL, "echo")).To(MatchRegexp(`failed: connect: .*Forbidden`))
		Expect(runAgent(ctx, server, "triage", "https://another.example.com/mcp", "echo")).To(MatchRegexp(`failed: connect: .*Unauthorized`))

		By("refusing with 401 and 403 what the rules do not give")
		audience := server.Status.Address.URL
		triage := visitorOf(server, tokenFor(ctx, namespace, "triage", audience))
		Expect(triage.send(ctx, accessInitialize)).To(Equal(http.StatusOK))
		Expect(triage.send(ctx, accessEcho)).To(Equal(http.StatusOK))
		Expect(triage.send(ctx, accessPID)).To(Equal(http.StatusForbidden))
		Expect(triage.header.Get("WWW-Authenticate")).To(BeEmpty(), "logging in again would not help")
		Expect(triage.body).To(ContainSubstring(`"id":3`))
		Expect(visitorOf(server, tokenFor(ctx, namespace, "stranger", audience)).send(ctx, accessInitialize)).To(Equal(http.StatusForbidden))
		Expect(visitorOf(server, tokenFor(ctx, namespace, "triage", "https://kubernetes.default.svc")).send(ctx, accessInitialize)).To(Equal(http.StatusUnauthorized))
		other := visitorOf(server, tokenFor(ctx, namespace, "triage", audience))
		other.session = triage.session
		Expect(other.send(ctx, accessEcho)).To(Equal(http.StatusOK), "a refreshed token is the same principal")

		By("blocking, and taking the rule away")
		change(ctx, server, func(spec *mcpv1alpha1.MCPServerSpec) {
			spec.Access.Rules[0].Tools = []mcpv1alpha1.NamePattern{"sleep"}
		})
		expectAccess(ctx, "tool refused", func() int { return triage.send(ctx, accessEcho) }, Equal(http.StatusForbidden))
		change(ctx, server, func(spec *mcpv1alpha1.MCPServerSpec) {
			spec.Access.Blocked = []mcpv1alpha1.Subject{{Kind: mcpv1alpha1.SubjectKindServiceAccount, Namespace: namespace, Name: "triage"}}
		})
		expectAccess(ctx, "blocked", func() int { return triage.send(ctx, accessInitialize) }, Equal(http.StatusForbidden))

		By("auditing all of it, and no secret")
		lines := auditLines(ctx, onlyPod(ctx, server))
		for what, matcher := range map[string]OmegaMatcher{
			"a call":            And(HaveKeyWithValue("verb", "tools/call"), HaveKeyWithValue("annotations", HaveKeyWithValue("authorization", "allow")), HaveKeyWithValue("objectRef", HaveKeyWithValue("tool", "echo"))),
			"a forbidden call":  And(HaveKeyWithValue("annotations", HaveKeyWithValue("authorization", "deny")), HaveKeyWithValue("objectRef", HaveKeyWithValue("tool", "pid"))),
			"no token":          HaveKeyWithValue("annotations", HaveKeyWithValue("reason", "missing")),
			"wrong audience":    HaveKeyWithValue("annotations", HaveKeyWithValue("reason", "audience")),
			"blocked":           HaveKeyWithValue("annotations", HaveKeyWithValue("reason", "blocked")),
			"the beginning":     HaveKeyWithValue("verb", "session/begin"),
			"who":               HaveKeyWithValue("user", HaveKeyWithValue("username", "system:serviceaccount:"+namespace+":triage")),
			"the end of access": HaveKeyWithValue("verb", "session/end"),
		} {
			Expect(lines).To(ContainElement(matcher), what)
		}
		text, err := json.Marshal(lines)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(text)).NotTo(Or(ContainSubstring("secret argument"), ContainSubstring(triage.session), ContainSubstring(triage.token[:40])))
		Expect(identities(ctx, server)).To(Equal(before), "no pod was replaced, and no container restarted")
	})

	It("hides tools without auth", func(ctx SpecContext) {
		server := stdioServer(ctx, newNamespace(ctx))
		server.Spec.Access = &mcpv1alpha1.Access{Hidden: []mcpv1alpha1.NamePattern{"p*"}}
		start(ctx, server)
		session := open(ctx, server)
		list, err := session.ListTools(ctx, nil)
		Expect(err).NotTo(HaveOccurred())
		var names []string
		for _, tool := range list.Tools {
			names = append(names, tool.Name)
		}
		Expect(names).To(And(ContainElement("echo"), Not(ContainElement("pid"))))
		Expect(toolNames(server)).To(ContainElement("pid"), "the status is for those who may read MCPServers")
		_, err = session.tryCall(ctx, "pid", nil)
		Expect(err).To(MatchError(ContainSubstring("pid")))
		Expect(session.call(ctx, "echo", map[string]any{"text": "hello"})).To(Equal("hello"))
	})
})

// expectAccess expects something of running pods in the promised time after a change that was made just now.
func expectAccess(ctx context.Context, what string, status func() int, matcher OmegaMatcher) {
	GinkgoHelper()
	changed := time.Now()
	Eventually(status).WithContext(ctx).WithTimeout(promise.Access).WithPolling(20 * time.Millisecond).Should(matcher)
	AddReportEntry(what+" after", time.Since(changed).String())
}

// visitor sends messages with a token, and looks at the answers.
type visitor struct {
	server         *mcpv1alpha1.MCPServer
	token, session string
	header         http.Header // of the last answer
	body           string
}

func visitorOf(server *mcpv1alpha1.MCPServer, token string) *visitor {
	return &visitor{server: server, token: token}
}

// send sends a message and returns the status of the answer.
func (v *visitor) send(ctx context.Context, message string) int {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, v.server.Status.Address.URL, bytes.NewReader([]byte(message)))
	Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	if v.token != "" {
		request.Header.Set("Authorization", "Bearer "+v.token)
	}
	if v.session != "" && message != accessInitialize {
		request.Header.Set("Mcp-Session-Id", v.session)
	}
	response, err := gate.httpClient().Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	v.header, v.body = response.Header, string(body)
	if id := response.Header.Get("Mcp-Session-Id"); id != "" {
		v.session = id
	}
	return response.StatusCode
}

// tokenFor is a token of a ServiceAccount, as the API server issues it.
func tokenFor(ctx context.Context, namespace, name, audience string) string {
	GinkgoHelper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}, ExpirationSeconds: new(int64(600))}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	Expect(cluster.SubResource("token").Create(ctx, account, request)).To(Succeed())
	return request.Status.Token
}

// runAgent runs a pod as a ServiceAccount, with a token for an audience that the kubelet projects, and returns
// what the agent in it prints.
func runAgent(ctx context.Context, server *mcpv1alpha1.MCPServer, account, audience string, tools ...string) string {
	GinkgoHelper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: server.Namespace, GenerateName: "agent-"},
		Spec: restricted(corev1.PodSpec{
			ServiceAccountName: account, RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{
				Name: "agent", Image: server.Spec.Image, Command: append([]string{"/agent", server.Status.Address.URL, "/var/run/mcp/token"}, tools...),
				VolumeMounts: []corev1.VolumeMount{{Name: "token", MountPath: "/var/run/mcp", ReadOnly: true}},
			}},
			Volumes: []corev1.Volume{{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
				ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: audience, ExpirationSeconds: new(int64(600)), Path: "token"},
			}}}}}},
		}),
	}
	Expect(cluster.Create(ctx, pod)).To(Succeed())
	Eventually(func() corev1.PodPhase { return reload(ctx, pod).Status.Phase }).WithContext(ctx).WithTimeout(patience).
		Should(BeElementOf(corev1.PodSucceeded, corev1.PodFailed))
	return kubectl(ctx, pod.Namespace, "logs", pod.Name)
}

// auditLines are the lines that the adapter of a pod has written so far.
func auditLines(ctx context.Context, pod *corev1.Pod) (lines []map[string]any) {
	GinkgoHelper()
	for line := range strings.Lines(kubectl(ctx, pod.Namespace, "logs", pod.Name, "--container="+adapterContainer)) {
		if !strings.HasPrefix(line, `{"kind":"Event"`) {
			continue // the adapter's log
		}
		decoded := map[string]any{}
		Expect(json.Unmarshal([]byte(line), &decoded)).To(Succeed(), line)
		lines = append(lines, decoded)
	}
	return lines
}
