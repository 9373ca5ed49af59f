package plugin

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/plugin/table"
	"github.com/slipway-mcp/slipway/internal/reason"
)

// hostileName is that of a tool which tries to steer the terminal.
const hostileName = "wipe\x1b[2J\u202eevil"

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(time.Unix(1, 0))}
}

// createServers makes one server that works, one that does not and one that is stopped.
func createServers(t *testing.T, namespace string) {
	t.Helper()
	for name, status := range map[string]mcpv1alpha1.MCPServerStatus{
		"tickets": {
			Conditions:       []metav1.Condition{condition("Ready", "True", "Ready", "3 tools; 1 of 1 pod ready")},
			ProtocolVersions: []string{"2026-07-28", "2025-11-25", "2024-11-05"},
			Sessions:         new(int32(7)), Replicas: 1, ReadyReplicas: 1,
			Address:  &mcpv1alpha1.Address{URL: "http://tickets." + namespace + ".svc/mcp"},
			Template: &mcpv1alpha1.TemplateStatus{AdapterVersion: "v0.1.0", Outdated: true},
			Catalog: &mcpv1alpha1.Catalog{
				Digest: "sha256:ab", Counts: mcpv1alpha1.CatalogCounts{Tools: 3}, ConfigMapName: "tickets-catalog",
				Tools: []mcpv1alpha1.CatalogEntry{{Name: "close_ticket", Description: "Closes a ticket."}},
			},
		},
		"search": {
			Conditions: []metav1.Condition{
				condition("Ready", "False", mcpv1alpha1.ReasonServerExits, `exit code 1; standard error: "SEARCH_TOKEN is not set"; `+string(reason.CorrectServer)),
				condition("Stalled", "True", mcpv1alpha1.ReasonServerExits, "it ends by itself; "+string(reason.CorrectServer)),
			},
		},
		"asleep": {Conditions: []metav1.Condition{condition("Available", "False", mcpv1alpha1.ReasonSuspended, "stopped")}},
	} {
		server := &mcpv1alpha1.MCPServer{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: mcpv1alpha1.MCPServerSpec{
			Image: "registry.example/team/" + name + "@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", Transport: mcpv1alpha1.Transport{Type: "stdio"},
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}},
		}}
		create(t, server)
		server.Status = status
		server.Status.ObservedGeneration = server.Generation
		if err := admin.Status().Update(t.Context(), server); err != nil {
			t.Fatal(err)
		}
	}
	catalog, err := json.Marshal(map[string]any{"tools": []any{
		map[string]any{
			"name": "close_ticket", "description": "Closes a ticket with a comment. It cannot be opened again.",
			"annotations": map[string]any{"destructiveHint": true},
			"inputSchema": map[string]any{"type": "object", "required": []string{"id"}, "properties": map[string]any{
				"id": map[string]any{"type": "integer", "description": "The number of the ticket."}, "comment": map[string]any{"type": []string{"string", "null"}},
			}},
		},
		map[string]any{"name": "list_tickets", "description": "Lists tickets.", "annotations": map[string]any{"readOnlyHint": true}, "inputSchema": map[string]any{"type": "object"}},
		map[string]any{"name": hostileName, "description": "Red \x1b[31m\r\n\u2066text" + strings.Repeat("x", 1<<10), "inputSchema": map[string]any{"type": "object"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tickets-catalog"}, Data: map[string]string{"catalog.json": string(catalog)}})
}

func create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := admin.Create(t.Context(), object); err != nil {
			t.Fatalf("create %T %s: %v", object, object.GetName(), err)
		}
	}
}

// What the commands that read print, in every format, as wide as it is and 80 columns wide.
func TestReading(t *testing.T) {
	namespace := newNamespace(t, "support")
	createServers(t, namespace)
	for name, test := range map[string]struct {
		args   []string
		user   string
		screen table.Screen
	}{
		"list.txt":            {args: []string{"list"}},
		"list-80.txt":         {args: []string{"list"}, screen: table.Screen{Width: 80}},
		"list-wide.txt":       {args: []string{"list", "-A", "-o", "wide"}},
		"list-name.txt":       {args: []string{"list", "-o", "name"}},
		"tools.txt":           {args: []string{"tools"}},
		"tools-80.txt":        {args: []string{"tools", "-A"}, screen: table.Screen{Width: 80}},
		"tools-json.txt":      {args: []string{"tools", "tickets", "-o", "json"}},
		"tools-yaml.txt":      {args: []string{"tools", "tickets", "close_ticket", "-o", "yaml"}},
		"tools-name.txt":      {args: []string{"tools", "-o", "name"}},
		"tools-search.txt":    {args: []string{"tools", "-A", "--search", "close ticket"}},
		"tools-none.txt":      {args: []string{"tools", "--search", "weather"}},
		"tool.txt":            {args: []string{"tools", "tickets", "close_ticket"}},
		"tool-schema.txt":     {args: []string{"tools", "tickets", "close_ticket", "--schema"}},
		"tools-of-viewer.txt": {args: []string{"tools"}, user: viewer},
		"doctor-ok.txt":       {args: []string{"doctor", "asleep"}},
		"doctor-viewer.txt":   {args: []string{"doctor", "asleep"}, user: viewer},
		"doctor-json.txt":     {args: []string{"doctor", "asleep", "-o", "json"}},
		"connect-code.txt":    {args: []string{"connect", "tickets", "--print", "claude-code"}},
		"connect-desktop.txt": {args: []string{"connect", "tickets", "--print", "claude-desktop"}},
		"connect-vscode.txt":  {args: []string{"connect", "tickets", "--print", "vscode", "--context", "envtest"}},
		"import.txt":          {args: []string{"import", "-f", "testdata/desktop.json"}},
	} {
		t.Run(name, func(t *testing.T) {
			user := kubeconfig
			if test.user != "" {
				user = test.user
			}
			got := kubectlMCP(t, user, test.screen, append(test.args, "-n", namespace)...)
			if got.code != 0 {
				t.Fatalf("exit code %d: %s", got.code, got.errOut)
			}
			golden(t, name, got.out+got.errOut, kubernetesVersion(t), "VERSION")
			for line := range strings.Lines(got.out) {
				if width := utf8.RuneCountInString(strings.TrimRight(line, "\n")); test.screen.Width > 0 && width > test.screen.Width {
					t.Errorf("%d characters: %q", width, line)
				}
			}
			if strings.ContainsAny(got.out+got.errOut, "\x1b\r\u202e\u2066\a") {
				t.Errorf("a character reaches the terminal that steers it: %q", got.out)
			}
		})
	}
	t.Run("objects", func(t *testing.T) {
		got := kubectlMCP(t, kubeconfig, table.Screen{}, "list", "-n", namespace, "-o", "json")
		var list mcpv1alpha1.MCPServerList
		if err := json.Unmarshal([]byte(got.out), &list); err != nil || len(list.Items) != 3 || list.Kind != "MCPServerList" {
			t.Errorf("%v, %d items of %s: %s", err, len(list.Items), list.Kind, got.out)
		}
	})
}

// Every exit code, with one sentence and a next step.
func TestFailures(t *testing.T) {
	namespace := newNamespace(t, "failures")
	createServers(t, namespace)
	for name, test := range map[string]struct {
		user string
		args []string
		code int
		want string
	}{
		"no such command": {kubeconfig, []string{"lst"}, 1, "error: unknown command \"lst\" for \"kubectl mcp\"\n\nDid you mean this?\n\tlist\n\n"},
		"no such flag":    {kubeconfig, []string{"list", "--all"}, 1, "error: unknown flag: --all\nSee kubectl mcp list --help\n"},
		"no such format":  {kubeconfig, []string{"list", "-o", "xml"}, 1, "error: unknown output format \"xml\"\nUse -o json, yaml, name or wide.\n"},
		"no name":         {kubeconfig, []string{"suspend"}, 1, "error: name at least one server, as in kubectl mcp suspend tickets\nSee kubectl mcp suspend --help\n"},
		"a name and -A":   {kubeconfig, []string{"tools", "tickets", "-A"}, 1, "error: a server has one namespace, so -A and a name exclude each other\nUse -n NAMESPACE with the name of a server.\n"},
		"no rights": {
			viewer, []string{"suspend", "tickets"}, 3,
			"error: change MCPServer failures/tickets: mcpservers.mcp.slipway.dev \"tickets\" is forbidden: User \"viewer\" cannot patch resource \"mcpservers\" in API group \"mcp.slipway.dev\" in the namespace \"failures\"\n" +
				"Ask for the right that is missing: view has those to read, edit has those to call servers and to stop them.\n",
		},
		"no such server": {
			kubeconfig, []string{"tools", "absent"}, 4,
			"error: get MCPServer absent: mcpservers.mcp.slipway.dev \"absent\" not found\nTo see all servers, run: kubectl mcp list -A\n",
		},
		"no cluster":    {kubeconfig, []string{"list", "--server=https://127.0.0.1:1"}, 4, "error: "},
		"not asked for": {kubeconfig, []string{"call", "tickets"}, 1, "error: name a server and a tool, as in kubectl mcp call tickets close_ticket id=4711\nSee kubectl mcp call --help\n"},
		"wrong arguments": {
			kubeconfig, []string{"call", "tickets", "close_ticket", "id=many", "more"}, 1,
			"error: argument id: \"many\" is no integer\n\"more\" is no argument: write it as name=value\nSee its arguments: kubectl mcp tools -n failures tickets close_ticket\n",
		},
		"may not see pods": {
			viewer, []string{"call", "tickets", "close_ticket"}, 3,
			"error: list pods of MCPServer tickets: pods is forbidden: User \"viewer\" cannot list resource \"pods\" in API group \"\" in the namespace \"failures\"\n" +
				"Ask for the right that is missing: view has those to read, edit has those to call servers and to stop them.\n",
		},
		"no pod": {
			kubeconfig, []string{"call", "tickets", "close_ticket", "id=1"}, 4,
			"error: no pod of MCPServer tickets is ready\nSee why: kubectl mcp doctor -n failures tickets\n",
		},
		"no log":  {kubeconfig, []string{"logs", "asleep"}, 4, "error: MCPServer asleep has no pods\n"},
		"unknown": {kubeconfig, []string{"connect", "tickets", "--print", "emacs"}, 1, "error: client \"emacs\" is not known\nUse one of: claude-code, claude-desktop, cursor, vscode\n"},
		"not carried over": {
			kubeconfig, []string{"import", "--strict", "-f", "testdata/desktop.json"}, 1,
			"not carried over: local command: the server is not carried over: the program foo exists only on your machine: build an image with it, and write an MCPServer with that image\n" +
				"error: 1 values are not carried over\nLeave out --strict to print the rest.\n",
		},
		"no file":      {kubeconfig, []string{"import"}, 1, "error: name a file, as in kubectl mcp import -f claude_desktop_config.json\nSee kubectl mcp import --help\n"},
		"no such file": {kubeconfig, []string{"import", "-f", "absent.json"}, 1, "error: open absent.json: no such file or directory\n"},
		"no such tool": {kubeconfig, []string{"tools", "tickets", "open_ticket"}, 5, "error: server tickets has no tool \"open_ticket\"\nSee its tools: kubectl mcp tools -n failures tickets\n"},
		"as JSON": {
			kubeconfig, []string{"tools", "tickets", "open_ticket", "-o", "json"}, 5,
			`{"error":"server tickets has no tool \"open_ticket\"","next":"See its tools: kubectl mcp tools -n failures tickets","code":5}` + "\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := kubectlMCP(t, test.user, table.Screen{}, append(test.args, "-n", namespace)...)
			if got.code != test.code || got.out != "" {
				t.Errorf("exit code %d, want %d; output %q", got.code, test.code, got.out)
			}
			if test.code == 4 && name == "no cluster" {
				if !strings.HasPrefix(got.errOut, test.want) || !strings.HasSuffix(got.errOut, "Check that kubectl get mcpservers works.\n") {
					t.Errorf("got %q", got.errOut)
				}
				return
			}
			if diff := cmp.Diff(test.want, got.errOut); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestEmpty(t *testing.T) {
	namespace := newNamespace(t, "empty")
	got := kubectlMCP(t, kubeconfig, table.Screen{}, "list", "-n", namespace)
	if want := (result{0, "", "There are no MCPServers in namespace empty. Try -A, for all namespaces.\n"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// doctor fails if a server does, and says what to do.
func TestDoctor(t *testing.T) {
	namespace := newNamespace(t, "doctor")
	createServers(t, namespace)
	got := kubectlMCP(t, kubeconfig, table.Screen{}, "doctor", "-n", namespace)
	golden(t, "doctor.txt", got.out+got.errOut, kubernetesVersion(t), "VERSION")
	if got.code != 4 {
		t.Errorf("exit code %d", got.code)
	}
}

func kubernetesVersion(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kube-apiserver"), "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(strings.TrimPrefix(string(out), "Kubernetes "))
}

// refresh, suspend and resume change what they say, and nothing else.
func TestChanging(t *testing.T) {
	namespace := newNamespace(t, "changing")
	createServers(t, namespace)
	server := func() *mcpv1alpha1.MCPServer {
		server := &mcpv1alpha1.MCPServer{}
		if err := admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "tickets"}, server); err != nil {
			t.Fatal(err)
		}
		return server
	}
	before := server()
	for verb, done := range map[string]string{"suspend": "suspended", "refresh": "refreshed"} {
		got := kubectlMCP(t, kubeconfig, table.Screen{}, verb, "tickets", "asleep", "-n", namespace)
		want := result{0, "mcpserver.mcp.slipway.dev/tickets " + done + "\nmcpserver.mcp.slipway.dev/asleep " + done + "\n", ""}
		if got != want {
			t.Errorf("%s: got %+v, want %+v", verb, got, want)
		}
	}
	changed := server()
	if !changed.Spec.Suspend || changed.Annotations[mcpv1alpha1.AnnotationRefresh] == "" {
		t.Errorf("suspend %t, annotations %v", changed.Spec.Suspend, changed.Annotations)
	}
	if got := kubectlMCP(t, kubeconfig, table.Screen{}, "resume", "tickets", "-n", namespace); got.code != 0 {
		t.Errorf("resume: %+v", got)
	}
	if diff := cmp.Diff(before.Spec, server().Spec); diff != "" {
		t.Errorf("spec (-before +after):\n%s", diff)
	}
}
