package doctor

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/reason"
)

// shortestToken is the lifetime of the shortest ServiceAccount token that API servers issue.
const shortestToken = 10 * time.Minute

// access looks at whether callers can use the server, and only those who may.
func access(server *mcpv1alpha1.MCPServer, add func(Level, string, string)) {
	if meta.FindStatusCondition(server.Status.Conditions, mcpv1alpha1.ConditionReady) == nil {
		return // it is stopped, or the manager has not reconciled it
	}
	enforcement(server, add)
	if server.Spec.Auth == nil {
		return
	}
	if names := withoutKeys(server); len(names) > 0 && !isTold(server, mcpv1alpha1.ReasonIssuerUnavailable) {
		add(Warn, "the manager has no keys of "+strings.Join(names, ", ")+", so adapters answer 401 to their tokens", "Check spec.auth.issuers, and that the manager can reach them.")
	}
	if kubernetes := server.Spec.Auth.Kubernetes; kubernetes != nil && kubernetes.MaxLifetime != nil && kubernetes.MaxLifetime.Duration < shortestToken {
		add(Warn, fmt.Sprintf("spec.auth.kubernetes.maxLifetime is %s, and no ServiceAccount token is valid for less than %s, so all of them get 401", kubernetes.MaxLifetime.Duration, shortestToken),
			"Set it to 10m or more.")
	}
}

// enforcement looks at whether the pods do what the spec says.
func enforcement(server *mcpv1alpha1.MCPServer, add func(Level, string, string)) {
	enforced := meta.FindStatusCondition(server.Status.Conditions, mcpv1alpha1.ConditionAccessEnforced)
	switch {
	case enforced == nil && server.Spec.Auth != nil:
		add(Fail, "the manager does not say that the pods enforce spec.auth", "If this lasts, the manager is older than spec.auth: upgrade it.")
	case enforced == nil || is(enforced, metav1.ConditionTrue) || isTold(server, enforced.Reason):
	default:
		level := Warn
		if is(enforced, metav1.ConditionFalse) {
			level = Fail
		}
		what, advice := reason.Split(enforced.Reason, told(enforced))
		add(level, "not every pod enforces spec.auth and spec.access: "+what, advice)
	}
}

// isTold reports whether Ready or Stalled have a reason, so that it is among the findings.
func isTold(server *mcpv1alpha1.MCPServer, reason string) bool {
	ready := meta.FindStatusCondition(server.Status.Conditions, mcpv1alpha1.ConditionReady)
	stalled := meta.FindStatusCondition(server.Status.Conditions, mcpv1alpha1.ConditionStalled)
	return ready != nil && ready.Status != metav1.ConditionTrue && ready.Reason == reason || is(stalled, metav1.ConditionTrue) && stalled.Reason == reason
}

// withoutKeys returns the issuers whose keys the manager does not have.
func withoutKeys(server *mcpv1alpha1.MCPServer) []string {
	var names []string
	if server.Status.Access == nil {
		return nil
	}
	for _, issuer := range server.Status.Access.Issuers {
		if issuer.Keys == 0 {
			names = append(names, issuer.Name)
		}
	}
	return names
}

// required says what callers need; empty if they need nothing, or nothing runs.
func required(server *mcpv1alpha1.MCPServer) string {
	auth := server.Spec.Auth
	if auth == nil || meta.FindStatusCondition(server.Status.Conditions, mcpv1alpha1.ConditionReady) == nil {
		return ""
	}
	if auth.Mode == mcpv1alpha1.AuthModeServer {
		return "auth.mode is Server: the server checks tokens itself, and each 401 or 403 is its own"
	}
	words := "auth.mode is Required: who has no valid token for this server gets 401, and who may not do something by spec.access gets 403"
	if is(meta.FindStatusCondition(server.Status.Conditions, mcpv1alpha1.ConditionAccessEnforced), metav1.ConditionTrue) {
		words += "; every pod enforces this"
	}
	return words
}
