// Package doctor looks at an MCPServer and says what is wrong with it, what may go wrong, and what to
// do. It asks neither the cluster nor a server.
package doctor

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/reason"
)

// Level says how bad a finding is.
type Level string

// The levels.
const (
	OK   Level = "ok"
	Warn Level = "warn" // it works, and may not later or not for all clients
	Fail Level = "fail" // it does not work
)

// Finding is one thing that was looked at.
type Finding struct {
	Level Level  `json:"level"`
	About string `json:"about"` // a server as NAMESPACE/NAME, or a part of the cluster
	Text  string `json:"text"`
	Fix   string `json:"fix,omitempty"`
}

// longName is what clients leave of their limit of 64 characters for the name of a tool: they put
// about 30 in front of it.
const longName = 34

// Server looks at a server. Its findings are what is not right; a server that is right has one that says
// so.
func Server(server *mcpv1alpha1.MCPServer) []Finding {
	var all []Finding
	about := server.Namespace + "/" + server.Name
	add := func(level Level, text, fix string) { all = append(all, Finding{level, about, text, fix}) }
	conditions(server, add)
	if len(server.Status.Conditions) > 0 && server.Generation != server.Status.ObservedGeneration {
		add(Warn, "the manager has not seen the newest spec yet", "Wait. If it takes long, look at the manager's log.")
	}
	access(server, add)
	workload(server, add)
	if tools := longTools(server); len(tools) > 0 {
		add(Warn, fmt.Sprintf("the names of %d tools have more than %d characters, so some clients cannot use them: %s", len(tools), longName, strings.Join(tools, ", ")),
			"Give them shorter names in the server.")
	}
	if len(all) == 0 {
		add(OK, summary(server), "")
	}
	if words := required(server); words != "" {
		add(OK, words, "")
	}
	return all
}

// conditions looks at what the manager says.
func conditions(server *mcpv1alpha1.MCPServer, add func(Level, string, string)) {
	tell := func(level Level, condition *metav1.Condition) {
		what, advice := reason.Split(condition.Reason, told(condition))
		add(level, what, advice+memoryNow(server, advice))
	}
	find := func(kind string) *metav1.Condition { return meta.FindStatusCondition(server.Status.Conditions, kind) }
	ready, stalled, reconciling := find(mcpv1alpha1.ConditionReady), find(mcpv1alpha1.ConditionStalled), find(mcpv1alpha1.ConditionReconciling)
	switch {
	case len(server.Status.Conditions) == 0:
		add(Fail, "it has no status: the manager has not reconciled it", "Check that the manager runs and watches this namespace: kubectl -n slipway-system get pods")
		return
	case is(stalled, metav1.ConditionTrue):
		level := Fail
		if is(ready, metav1.ConditionTrue) {
			level = Warn // what runs goes on
		}
		tell(level, stalled)
	case is(ready, metav1.ConditionFalse), is(ready, metav1.ConditionUnknown):
		level := Fail
		if is(reconciling, metav1.ConditionTrue) && slices.Contains(onTheWay, ready.Reason) {
			level = Warn
		}
		tell(level, ready)
	case ready == nil:
		add(OK, "is stopped, as its spec says; to start it, run: kubectl mcp resume -n "+server.Namespace+" "+server.Name, "")
	case reason.Crashes(ready.Message) != "":
		what, advice := reason.Split("", reason.Crashes(ready.Message))
		add(Warn, what, advice+memoryNow(server, advice))
	}
	if verified := find(mcpv1alpha1.ConditionVerified); verified != nil && is(ready, metav1.ConditionTrue) {
		if reason.Advice(mcpv1alpha1.ConditionVerified, verified.Reason) != "" {
			tell(Warn, verified)
		}
	}
}

// onTheWay are the reasons of servers that need only time.
var onTheWay = []string{mcpv1alpha1.ReasonPodsStarting, mcpv1alpha1.ReasonProgressing, mcpv1alpha1.ReasonProbePending, mcpv1alpha1.ReasonRolloutQueued}

// memoryNow says how much memory a server has that needs more. All its processes share it.
func memoryNow(server *mcpv1alpha1.MCPServer, advice string) string {
	limit := server.Spec.Resources.Limits.Memory()
	if advice != reason.MoreMemory.Sentence() || limit.IsZero() {
		return ""
	}
	return fmt.Sprintf(" It is %s, for all processes of a pod together: one for each session, and two more.", limit)
}

// is says whether a condition is there and has a status.
func is(condition *metav1.Condition, status metav1.ConditionStatus) bool {
	return condition != nil && condition.Status == status
}

// told is a condition in words.
func told(condition *metav1.Condition) string {
	if condition.Message == "" {
		return condition.Reason
	}
	return condition.Reason + ": " + condition.Message
}

// workload looks at what may go wrong later.
func workload(server *mcpv1alpha1.MCPServer, add func(Level, string, string)) {
	spec := &server.Spec
	if isMutable(spec.Image) && len(spec.Command) > 0 {
		add(Warn, "the image has a tag that can move, or none, so pods may run different programs: "+spec.Image, "Name the image by its digest.")
	}
	if spec.Resources.Limits.Memory().IsZero() && !contains(server, "spec.resources") {
		add(Warn, "the server has no memory limit, so it can take all memory of its node", "Set spec.resources.limits.memory.")
	}
	if template := server.Status.Template; template != nil && template.Outdated {
		add(Warn, "the manager would render the pods differently now; they have adapter "+template.AdapterVersion, "Replace them when it suits you: kubectl mcp refresh -n "+server.Namespace+" "+server.Name)
	}
	if kind := spec.Service.Type; spec.Auth == nil && (kind == corev1.ServiceTypeLoadBalancer || kind == corev1.ServiceTypeNodePort) {
		add(Warn, "its Service is of type "+string(kind)+", and no client is authenticated", "Set spec.auth, put a gateway with authentication in front, or restrict who reaches it by a NetworkPolicy.")
	}
}

// contains says whether the manager's configuration fills a field.
func contains(server *mcpv1alpha1.MCPServer, field string) bool {
	if server.Status.Template == nil {
		return false
	}
	return slices.Contains(server.Status.Template.Defaults, field)
}

// isMutable says whether an image reference can mean another image tomorrow.
func isMutable(image string) bool { return !strings.Contains(image, "@") }

// longTools are the tools whose names are too long for some clients.
func longTools(server *mcpv1alpha1.MCPServer) []string {
	var names []string
	if server.Status.Catalog == nil {
		return nil
	}
	for _, tool := range server.Status.Catalog.Tools {
		if utf8.RuneCountInString(tool.Name) > longName {
			names = append(names, tool.Name)
		}
	}
	return names
}

// summary says in one line that a server is right.
func summary(server *mcpv1alpha1.MCPServer) string {
	if meta.FindStatusCondition(server.Status.Conditions, mcpv1alpha1.ConditionReady) == nil {
		return "is stopped"
	}
	tools := int32(0)
	if server.Status.Catalog != nil {
		tools = server.Status.Catalog.Counts.Tools
	}
	return fmt.Sprintf("Ready, %d tools, %d of %d pods", tools, server.Status.ReadyReplicas, server.Status.Replicas)
}
