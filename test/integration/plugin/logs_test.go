package plugin

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/slipway-mcp/slipway/internal/plugin"
	"github.com/slipway-mcp/slipway/internal/plugin/table"
)

// Without the right to watch pods, logs -f follows those of now, and says which right is missing.
func TestFollowWithFewRights(t *testing.T) {
	namespace := newNamespace(t, "follow-few")
	createServers(t, namespace)
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "lister"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"mcp.slipway.dev"}, Resources: []string{"mcpservers"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}},
	}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "lister"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "lister"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "lister"}},
	}
	create(t, role, binding)
	t.Cleanup(func() {
		if err := admin.Delete(context.WithoutCancel(t.Context()), role); err != nil {
			t.Error(err)
		}
		if err := admin.Delete(context.WithoutCancel(t.Context()), binding); err != nil {
			t.Error(err)
		}
	})
	want := result{4, "", "You may not watch pods, so you do not see the logs of pods that start later. The right is: watch pods.\nerror: MCPServer tickets has no pods\n"}
	if got := kubectlMCP(t, kubeconfig, table.Screen{}, "-n", namespace, "--as", "lister", "logs", "tickets", "-f"); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// logs -f of a server without pods waits for some, and ends on Ctrl+C without an error.
func TestFollowBeforeThereArePods(t *testing.T) {
	namespace := newNamespace(t, "follow-none")
	createServers(t, namespace)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	told, errOut := io.Pipe()
	var out bytes.Buffer
	code := make(chan int, 1)
	go func() {
		code <- plugin.Run(ctx, []string{"--kubeconfig=" + kubeconfig, "--cache-dir=" + filepath.Join(dir, "cache"), "-n", namespace, "logs", "asleep", "-f"},
			plugin.Terminal{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: errOut}, Now: time.Now})
		_ = errOut.Close()
	}()
	first := make([]byte, len("There are no pods yet.\n"))
	if _, err := io.ReadFull(told, first); err != nil || string(first) != "There are no pods yet.\n" {
		t.Errorf("it says %q, %v", first, err)
	}
	interrupt()
	rest, err := io.ReadAll(told)
	if got := <-code; got != 0 || err != nil || len(rest) > 0 || out.Len() > 0 {
		t.Errorf("exit code %d, output %q, and then %q, %v", got, out.String(), rest, err)
	}
}
