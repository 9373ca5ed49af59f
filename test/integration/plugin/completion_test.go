package plugin

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-mcp/slipway/internal/plugin"
	"github.com/slipway-mcp/slipway/test/servers"
)

// completions are what kubectl shows to a user who presses the tab key after some words. The last one may
// be empty.
func completions(t *testing.T, user string, words ...string) string {
	t.Helper()
	var out, errOut bytes.Buffer
	code := plugin.Run(t.Context(), append([]string{"--kubeconfig=" + user}, words...), plugin.Terminal{
		IOStreams: genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}, Now: time.Now, Program: "/usr/local/bin/kubectl_complete-mcp",
	})
	if code != 0 || errOut.Len() > 0 {
		t.Errorf("exit code %d: %s", code, &errOut)
	}
	lines := strings.Split(out.String(), "\n")
	return strings.Join(lines[:len(lines)-2], "\n") // without the line that tells the shell what to do
}

// addPrompts gives the server of createServers prompts and resources, too.
func addPrompts(t *testing.T, namespace string) {
	t.Helper()
	stored := &corev1.ConfigMap{}
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "tickets-catalog"}, stored); err != nil {
		t.Fatal(err)
	}
	catalog := map[string]any{}
	if err := json.Unmarshal([]byte(stored.Data["catalog.json"]), &catalog); err != nil {
		t.Fatal(err)
	}
	catalog["prompts"] = []any{map[string]any{"name": "summarize", "description": "Sums up.", "arguments": []any{map[string]any{"name": "project", "required": true}}}}
	catalog["resources"] = []any{map[string]any{"uri": "file:///guide.md", "name": "The guide"}, map[string]any{"uri": "file:///$(reboot)"}}
	encoded, err := json.Marshal(catalog)
	if err != nil {
		t.Fatal(err)
	}
	stored.Data["catalog.json"] = string(encoded)
	if err := admin.Update(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
}

func TestCompletion(t *testing.T) {
	namespace := newNamespace(t, "completion")
	createServers(t, namespace)
	addPrompts(t, namespace)
	for name, test := range map[string]struct {
		words []string
		want  string
	}{
		"a command":              {[]string{"su"}, "suspend\tStop all pods of servers and keep everything else"},
		"a server":               {[]string{"tools", "-n", namespace, ""}, "asleep\nsearch\ntickets"},
		"the beginning of one":   {[]string{"-n", namespace, "connect", "t"}, "tickets"},
		"another server":         {[]string{"top", "-n", namespace, "tickets", ""}, "asleep\nsearch"},
		"no second server":       {[]string{"logs", "-n", namespace, "tickets", ""}, ""},
		"no server of all":       {[]string{"tools", "-A", ""}, ""},
		"a tool":                 {[]string{"tools", "-n", namespace, "tickets", ""}, "close_ticket\tCloses a ticket with a comment.\nlist_tickets\tLists tickets."},
		"a tool to call":         {[]string{"call", "tickets", "-n", namespace, "cl"}, "close_ticket\tCloses a ticket with a comment."},
		"an argument":            {[]string{"call", "tickets", "close_ticket", "-n", namespace, ""}, "id=\tThe number of the ticket.\ncomment="},
		"another argument":       {[]string{"call", "tickets", "close_ticket", "id=1", "-n", namespace, ""}, "comment="},
		"no such tool":           {[]string{"call", "tickets", "absent", "-n", namespace, ""}, ""},
		"a prompt":               {[]string{"prompt", "tickets", "-n", namespace, ""}, "summarize\tSums up."},
		"an argument of one":     {[]string{"prompt", "tickets", "summarize", "-n", namespace, ""}, "project="},
		"a resource":             {[]string{"read", "tickets", "-n", namespace, ""}, "file:///guide.md\tThe guide"},
		"a server of no catalog": {[]string{"read", "asleep", "-n", namespace, ""}, ""},
		"no such server":         {[]string{"call", "absent", "-n", namespace, ""}, ""},
		"a format":               {[]string{"list", "-o", ""}, "json\nyaml\nname\nwide"},
		"a format of another":    {[]string{"call", "-o", ""}, "json\nyaml"},
		"a client":               {[]string{"connect", "tickets", "--print", ""}, "claude-code\nclaude-desktop\ncursor\nvscode"},
		"a column":               {[]string{"top", "--sort-by", ""}, "calls\nerrors\np99\nsessions\nmemory"},
		"a namespace":            {[]string{"list", "-n", "comple"}, namespace},
		"a context":              {[]string{"list", "--context", "env"}, "envtest"},
		"no such context":        {[]string{"tools", "--context", "absent", ""}, ""},
		"no such command":        {[]string{"absent", ""}, ""},
		"no such flag":           {[]string{"tools", "--absent", ""}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, completions(t, kubeconfig, test.words...)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// With few rights less can be chosen from, and nothing is said.
func TestCompletionWithFewRights(t *testing.T) {
	namespace := newNamespace(t, "completion-rights")
	createServers(t, namespace)
	for name, test := range map[string]struct {
		words []string
		want  string
	}{
		"a server":               {[]string{"tools", "-n", namespace, ""}, "asleep\nsearch\ntickets"},
		"a tool of the status":   {[]string{"tools", "-n", namespace, "tickets", ""}, "close_ticket\tCloses a ticket."},
		"arguments, not allowed": {[]string{"call", "-n", namespace, "tickets", "close_ticket", ""}, ""},
		"prompts, not allowed":   {[]string{"prompt", "-n", namespace, "tickets", ""}, ""},
		"namespaces":             {[]string{"list", "-n", ""}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, completions(t, viewer, test.words...)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The program itself, called by the name that kubectl looks for, offers nothing within a second if the API
// server, or the program that gets credentials for it, takes longer.
func TestCompletionOfASlowCluster(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() }) // nothing accepts connections
	slow := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(slow, []byte(`
apiVersion: v1
kind: Config
current-context: slow
contexts: [{name: slow, context: {cluster: slow, user: slow}}]
clusters: [{name: slow, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: slow, user: {exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: sleep, args: ["3"]}}}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "kubectl-mcp")
	if err := servers.Build(t.Context(), binary, "cmd/kubectl-mcp"); err != nil {
		t.Fatal(err)
	}
	complete := filepath.Join(filepath.Dir(binary), "kubectl_complete-mcp")
	if err := os.Symlink("kubectl-mcp", complete); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"a server that does not answer":         {"--kubeconfig=" + kubeconfig, "--server=https://" + listener.Addr().String(), "tools", ""},
		"a program that takes 3 s for a log-in": {"--kubeconfig=" + slow, "tools", ""},
		"a flag that does not exist":            {"--kubeconfig=" + slow, "tools", "--absent", ""},
	} {
		t.Run(name, func(t *testing.T) {
			best := time.Hour
			for range 3 { // the best of several: other programs use the machine, too
				var out, errOut bytes.Buffer
				command := exec.CommandContext(t.Context(), complete, args...)
				command.Stdout, command.Stderr = &out, &errOut
				begin := time.Now()
				if err := command.Run(); err != nil {
					t.Fatal(err)
				}
				best = min(best, time.Since(begin))
				if strings.Count(out.String(), "\n") != 1 || errOut.Len() > 0 {
					t.Errorf("got %q and %q", &out, &errOut)
				}
			}
			t.Logf("%s", best)
			if best > time.Second {
				t.Errorf("took %s", best)
			}
		})
	}
}
