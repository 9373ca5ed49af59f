package plugin

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/plugin/table"
)

// What can be wrong before a pod is asked. The end-to-end suite has sessions of real clients.
func TestSessionsFailures(t *testing.T) {
	namespace := newNamespace(t, "sessions")
	createServers(t, namespace)
	for name, content := range map[string]string{"tickets": adapterapi.NewKey().Sessions().Encode(), "search": "no key", "asleep": "of another owner"} {
		server := &mcpv1alpha1.MCPServer{}
		if err := admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, server); err != nil {
			t.Fatal(err)
		}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-sessions"}, StringData: map[string]string{adapterapi.SessionsKeyEntry: content}}
		if name != "asleep" {
			secret.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(server, mcpv1alpha1.SchemeGroupVersion.WithKind("MCPServer"))}
		}
		create(t, secret)
		t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), secret) })
	}
	early := &mcpv1alpha1.MCPServer{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "early"}, Spec: mcpv1alpha1.MCPServerSpec{
		Image: "registry.example/early", Transport: mcpv1alpha1.Transport{Type: "stdio"},
	}}
	create(t, early)
	for name, test := range map[string]struct {
		user string
		args []string
		code int
		want string
	}{
		"no server":    {kubeconfig, nil, 1, "error: name a server, as in kubectl mcp sessions tickets\nSee kubectl mcp sessions --help\n"},
		"nothing ends": {kubeconfig, []string{"end", "tickets"}, 1, "error: name a server and a session, as in kubectl mcp sessions end tickets x2abc/12\nSee kubectl mcp sessions end --help\n"},
		"no format":    {kubeconfig, []string{"tickets", "-o", "xml"}, 1, "error: unknown output format \"xml\"\nUse -o json or yaml or name or wide.\n"},
		"no right": {
			viewer, []string{"tickets"}, 3,
			"error: you may not get Secret tickets-sessions in namespace sessions\n" +
				"Ask for the right to get this Secret. It holds a key that lists and ends sessions, and opens nothing else.\n",
		},
		"no such server": {kubeconfig, []string{"absent"}, 4, "error: get MCPServer absent: mcpservers.mcp.slipway.dev \"absent\" not found\nTo see all servers, run: kubectl mcp list -A\n"},
		"no key yet": {
			kubeconfig, []string{"early"}, 4,
			"error: MCPServer early has no Secret early-sessions\nThe manager creates it when it has accepted the server. See why it has not: kubectl mcp doctor -n sessions early\n",
		},
		"not its key": {
			kubeconfig, []string{"asleep"}, 4,
			"error: Secret asleep-sessions does not belong to MCPServer asleep, so it is not the key for its sessions\nGive one of the two another name.\n",
		},
		"not a key": {
			kubeconfig, []string{"search"}, 1,
			"error: read Secret search-sessions: read the key for sessions: a key has 32 bytes in hexadecimal\nDelete the Secret. The manager creates it again.\n",
		},
		"no pod":         {kubeconfig, []string{"tickets"}, 4, "error: no pod of MCPServer tickets is ready\nSee why: kubectl mcp doctor -n sessions tickets\n"},
		"no pod to end":  {kubeconfig, []string{"end", "tickets", "1"}, 4, "error: no pod of MCPServer tickets is ready\nSee why: kubectl mcp doctor -n sessions tickets\n"},
		"no pod in JSON": {kubeconfig, []string{"tickets", "-o", "json"}, 4, `{"error":"no pod of MCPServer tickets is ready","next":"See why: kubectl mcp doctor -n sessions tickets","code":4}` + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got := kubectlMCP(t, test.user, table.Screen{}, append([]string{"sessions", "-n", namespace}, test.args...)...)
			if diff := cmp.Diff(result{test.code, "", test.want}, got, cmp.AllowUnexported(result{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
