package doctor

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/reason"
)

// healthy is a server with which nothing is wrong.
func healthy() *mcpv1alpha1.MCPServer {
	server := &mcpv1alpha1.MCPServer{}
	server.Namespace, server.Name = "support", "tickets"
	server.Spec.Image = "registry.example/tickets@sha256:ab"
	server.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
	server.Status = mcpv1alpha1.MCPServerStatus{
		Conditions: []metav1.Condition{
			{Type: mcpv1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: mcpv1alpha1.ReasonReady},
			{Type: mcpv1alpha1.ConditionVerified, Status: metav1.ConditionTrue, Reason: mcpv1alpha1.ReasonVerified},
		},
		Replicas: 1, ReadyReplicas: 1,
		Catalog:  &mcpv1alpha1.Catalog{Counts: mcpv1alpha1.CatalogCounts{Tools: 14}, Tools: []mcpv1alpha1.CatalogEntry{{Name: "close_ticket"}}},
		Template: &mcpv1alpha1.TemplateStatus{AdapterVersion: "v0.1.0"},
	}
	return server
}

const needsToken = "auth.mode is Required: who has no valid token for this server gets 401, and who may not do something by spec.access gets 403"

// protect gives a server auth.
func protect(server *mcpv1alpha1.MCPServer, status metav1.ConditionStatus, why string) {
	server.Spec.Auth = &mcpv1alpha1.Auth{Mode: mcpv1alpha1.AuthModeRequired, Kubernetes: &mcpv1alpha1.KubernetesAuth{}}
	server.Status.Conditions = append(server.Status.Conditions, metav1.Condition{Type: mcpv1alpha1.ConditionAccessEnforced, Status: status, Reason: why})
}

func TestServer(t *testing.T) {
	set := func(server *mcpv1alpha1.MCPServer, conditions ...metav1.Condition) {
		server.Status.Conditions = conditions
	}
	for name, test := range map[string]struct {
		change func(*mcpv1alpha1.MCPServer)
		want   []string // level, text and fix
	}{
		"nothing is wrong": {func(*mcpv1alpha1.MCPServer) {}, []string{"ok Ready, 14 tools, 1 of 1 pods"}},
		"stopped": {func(s *mcpv1alpha1.MCPServer) {
			set(s, metav1.Condition{Type: mcpv1alpha1.ConditionAvailable, Status: metav1.ConditionFalse, Reason: mcpv1alpha1.ReasonSuspended})
		}, []string{"ok is stopped, as its spec says; to start it, run: kubectl mcp resume -n support tickets"}},
		"no manager": {func(s *mcpv1alpha1.MCPServer) { set(s) }, []string{
			"fail it has no status: the manager has not reconciled it | Check that the manager runs and watches this namespace: kubectl -n slipway-system get pods",
		}},
		"stalled": {func(s *mcpv1alpha1.MCPServer) {
			set(s, metav1.Condition{Type: mcpv1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: mcpv1alpha1.ReasonServerExits, Message: "exit code 1"},
				metav1.Condition{Type: mcpv1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: mcpv1alpha1.ReasonServerExits, Message: "exit code 1; resolve the error in its output, which often points to spec.env, spec.envFrom or spec.args; see kubectl logs -n ns a"})
		}, []string{
			"fail ServerExits: exit code 1; see kubectl logs -n ns a | Resolve the error in its output, which often points to spec.env, spec.envFrom or spec.args.",
		}},
		"stalled, and serves": {func(s *mcpv1alpha1.MCPServer) {
			s.Status.Conditions = append(s.Status.Conditions, metav1.Condition{Type: mcpv1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: mcpv1alpha1.ReasonReferenceNotFound, Message: "Secret x does not exist"})
		}, []string{"warn ReferenceNotFound: Secret x does not exist | Create the missing object or key, or mark the reference optional."}},
		"broken, and tried again": {func(s *mcpv1alpha1.MCPServer) {
			set(s, metav1.Condition{Type: mcpv1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: mcpv1alpha1.ReasonImagePullFailed, Message: "no such image; correct spec.image"},
				metav1.Condition{Type: mcpv1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: mcpv1alpha1.ReasonImagePullFailed})
		}, []string{"fail ImagePullFailed: no such image | Correct spec.image."}},
		"Ready, and its processes end": {func(s *mcpv1alpha1.MCPServer) {
			s.Status.Conditions[0].Message = "14 tools; 1 of 1 pod ready; 9 of 10 processes ended by themselves in 5 minutes: out of memory; raise spec.resources.limits.memory"
		}, []string{"warn 9 of 10 processes ended by themselves in 5 minutes: out of memory | Raise spec.resources.limits.memory. It is 1Gi, for all processes of a pod together: one for each session, and two more."}},
		"starting": {func(s *mcpv1alpha1.MCPServer) {
			set(s, metav1.Condition{Type: mcpv1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: mcpv1alpha1.ReasonPodsStarting, Message: "pulling the image for 3s"},
				metav1.Condition{Type: mcpv1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: mcpv1alpha1.ReasonPodsStarting})
		}, []string{"warn PodsStarting: pulling the image for 3s | Wait. If it takes too long, run kubectl describe pod."}},
		"unreachable": {func(s *mcpv1alpha1.MCPServer) {
			s.Status.Conditions[1] = metav1.Condition{Type: mcpv1alpha1.ConditionVerified, Status: metav1.ConditionUnknown, Reason: mcpv1alpha1.ReasonUnreachable, Message: "connection refused"}
		}, []string{"warn Unreachable: connection refused | If a NetworkPolicy is the cause, allow the manager's namespace to reach ports 16270 and 16271. See install.md, Network."}},
		"a tag": {func(s *mcpv1alpha1.MCPServer) { s.Spec.Image, s.Spec.Command = "tickets:1", []string{"x"} }, []string{
			"warn the image has a tag that can move, or none, so pods may run different programs: tickets:1 | Name the image by its digest.",
		}},
		"a tag that is pinned": {func(s *mcpv1alpha1.MCPServer) { s.Spec.Image = "tickets:1" }, []string{"ok Ready, 14 tools, 1 of 1 pods"}},
		"no memory limit": {func(s *mcpv1alpha1.MCPServer) { s.Spec.Resources = corev1.ResourceRequirements{} }, []string{
			"warn the server has no memory limit, so it can take all memory of its node | Set spec.resources.limits.memory.",
		}},
		"a default limit": {func(s *mcpv1alpha1.MCPServer) {
			s.Spec.Resources, s.Status.Template.Defaults = corev1.ResourceRequirements{}, []string{"spec.resources"}
		}, []string{"ok Ready, 14 tools, 1 of 1 pods"}},
		"outdated, replicas, open": {func(s *mcpv1alpha1.MCPServer) {
			s.Status.Template.Outdated, s.Spec.Replicas, s.Spec.Service.Type = true, new(int32(2)), corev1.ServiceTypeLoadBalancer
		}, []string{
			"warn the manager would render the pods differently now; they have adapter v0.1.0 | Replace them when it suits you: kubectl mcp refresh -n support tickets",
			"warn its Service is of type LoadBalancer, and no client is authenticated | Set spec.auth, put a gateway with authentication in front, or restrict who reaches it by a NetworkPolicy.",
		}},
		"auth": {func(s *mcpv1alpha1.MCPServer) { protect(s, metav1.ConditionTrue, mcpv1alpha1.ReasonAccessEnforced) }, []string{
			"ok Ready, 14 tools, 1 of 1 pods", "ok " + needsToken + "; every pod enforces this",
		}},
		"auth, and open": {func(s *mcpv1alpha1.MCPServer) {
			protect(s, metav1.ConditionTrue, mcpv1alpha1.ReasonAccessEnforced)
			s.Spec.Service.Type = corev1.ServiceTypeLoadBalancer
		}, []string{"ok Ready, 14 tools, 1 of 1 pods", "ok " + needsToken + "; every pod enforces this"}},
		"auth of the server": {func(s *mcpv1alpha1.MCPServer) {
			protect(s, metav1.ConditionTrue, mcpv1alpha1.ReasonAccessEnforced)
			s.Spec.Auth = &mcpv1alpha1.Auth{Mode: mcpv1alpha1.AuthModeServer}
		}, []string{"ok Ready, 14 tools, 1 of 1 pods", "ok auth.mode is Server: the server checks tokens itself, and each 401 or 403 is its own"}},
		"auth that is not everywhere yet": {func(s *mcpv1alpha1.MCPServer) {
			protect(s, metav1.ConditionUnknown, mcpv1alpha1.ReasonAccessPending)
		}, []string{"warn not every pod enforces spec.auth and spec.access: AccessPending | Wait. If it lasts, read the message of Verified: it says why the manager cannot reach a pod.", "ok " + needsToken}},
		"auth that is not enforced, and Ready says so": {func(s *mcpv1alpha1.MCPServer) {
			protect(s, metav1.ConditionFalse, mcpv1alpha1.ReasonAccessNotEnforced)
			s.Status.Conditions[0] = metav1.Condition{Type: mcpv1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: mcpv1alpha1.ReasonAccessNotEnforced, Message: "too old: a; " + string(reason.ReplacePods)}
		}, []string{"fail AccessNotEnforced: too old: a | Replace the pods with kubectl mcp refresh, or with a new value of the annotation mcp.slipway.dev/refresh.", "ok " + needsToken}},
		"auth that is not enforced": {func(s *mcpv1alpha1.MCPServer) {
			protect(s, metav1.ConditionFalse, mcpv1alpha1.ReasonAccessNotEnforced)
			s.Status.Conditions[len(s.Status.Conditions)-1].Message = "too large; " + string(reason.ShrinkAccess)
		}, []string{"fail not every pod enforces spec.auth and spec.access: AccessNotEnforced: too large | Use fewer or shorter rules in spec.access, or fewer issuers in spec.auth.", "ok " + needsToken}},
		"auth that the manager does not know": {func(s *mcpv1alpha1.MCPServer) { s.Spec.Auth = &mcpv1alpha1.Auth{} }, []string{
			"fail the manager does not say that the pods enforce spec.auth | If this lasts, the manager is older than spec.auth: upgrade it.", "ok " + needsToken,
		}},
		"auth of a stopped server": {func(s *mcpv1alpha1.MCPServer) {
			s.Spec.Auth = &mcpv1alpha1.Auth{}
			set(s, metav1.Condition{Type: mcpv1alpha1.ConditionAvailable, Status: metav1.ConditionFalse, Reason: mcpv1alpha1.ReasonSuspended})
		}, []string{"ok is stopped, as its spec says; to start it, run: kubectl mcp resume -n support tickets"}},
		"an issuer without keys, and short tokens": {func(s *mcpv1alpha1.MCPServer) {
			protect(s, metav1.ConditionTrue, mcpv1alpha1.ReasonAccessEnforced)
			s.Spec.Auth.Kubernetes = &mcpv1alpha1.KubernetesAuth{MaxLifetime: &metav1.Duration{Duration: 5 * time.Minute}}
			s.Status.Access = &mcpv1alpha1.AccessStatus{Issuers: []mcpv1alpha1.IssuerStatus{{Name: "corp"}, {Name: "kubernetes", Keys: 1}}}
		}, []string{
			"warn the manager has no keys of corp, so adapters answer 401 to their tokens | Check spec.auth.issuers, and that the manager can reach them.",
			"warn spec.auth.kubernetes.maxLifetime is 5m0s, and no ServiceAccount token is valid for less than 10m0s, so all of them get 401 | Set it to 10m or more.",
			"ok " + needsToken + "; every pod enforces this",
		}},
		"an issuer without keys, and Stalled says so": {func(s *mcpv1alpha1.MCPServer) {
			protect(s, metav1.ConditionTrue, mcpv1alpha1.ReasonAccessEnforced)
			s.Status.Access = &mcpv1alpha1.AccessStatus{Issuers: []mcpv1alpha1.IssuerStatus{{Name: "corp"}}}
			s.Status.Conditions = append(s.Status.Conditions, metav1.Condition{Type: mcpv1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: mcpv1alpha1.ReasonIssuerUnavailable, Message: "corp: refused"})
		}, []string{"warn IssuerUnavailable: corp: refused | Check url and caBundle in spec.auth.issuers, and that the manager can reach the issuer.", "ok " + needsToken + "; every pod enforces this"}},
		"a long name": {func(s *mcpv1alpha1.MCPServer) {
			s.Status.Catalog.Tools = append(s.Status.Catalog.Tools, mcpv1alpha1.CatalogEntry{Name: strings.Repeat("x", 35)}, mcpv1alpha1.CatalogEntry{Name: strings.Repeat("y", 34)})
		}, []string{"warn the names of 1 tools have more than 34 characters, so some clients cannot use them: " + strings.Repeat("x", 35) + " | Give them shorter names in the server."}},
		"a spec that was not seen": {func(s *mcpv1alpha1.MCPServer) { s.Generation = 2 }, []string{
			"warn the manager has not seen the newest spec yet | Wait. If it takes long, look at the manager's log.",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			server := healthy()
			test.change(server)
			var got []string
			for _, finding := range Server(server) {
				line := string(finding.Level) + " " + finding.Text
				if finding.Fix != "" {
					line += " | " + finding.Fix
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
