package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/slipway-mcp/slipway/internal/plugin"
	"github.com/slipway-mcp/slipway/internal/plugin/table"
)

// adapterOf stands in for an adapter to which clients make two calls between any two looks. One takes less
// than 0.1 s, and the other takes less than 0.3 s and fails.
func adapterOf(sessions int) http.HandlerFunc {
	var scrapes atomic.Int64
	return func(w http.ResponseWriter, request *http.Request) {
		if request.URL.Path != "/metrics" {
			http.NotFound(w, request)
			return
		}
		calls := scrapes.Add(1)
		var page strings.Builder
		fmt.Fprintf(&page, "# TYPE slipway_adapter_sessions gauge\nslipway_adapter_sessions %d\n", sessions)
		fmt.Fprint(&page, "# TYPE slipway_adapter_sessions_limit gauge\nslipway_adapter_sessions_limit 64\n")
		fmt.Fprintf(&page, "# TYPE slipway_adapter_budget_used_bytes gauge\nslipway_adapter_budget_used_bytes %d\n", sessions<<19)
		fmt.Fprint(&page, "# TYPE slipway_adapter_server_memory_bytes gauge\nslipway_adapter_server_memory_bytes 33554432\n"+
			"# TYPE slipway_adapter_server_memory_limit_bytes gauge\nslipway_adapter_server_memory_limit_bytes 268435456\n# TYPE mcp_server_operation_duration_seconds histogram\n")
		for failure, fast := range map[string]int64{"": calls, "tool_error": 0} {
			const name = "mcp_server_operation_duration_seconds"
			labels := fmt.Sprintf(`mcp_method_name="tools/call",mcp_protocol_version="2025-11-25",error_type=%q`, failure)
			fmt.Fprintf(&page, "%[1]s_bucket{%[2]s,le=\"0.1\"} %[3]d\n%[1]s_bucket{%[2]s,le=\"0.3\"} %[4]d\n%[1]s_bucket{%[2]s,le=\"+Inf\"} %[4]d\n%[1]s_count{%[2]s} %[4]d\n", name, labels, fast, calls)
		}
		_, _ = w.Write([]byte(page.String()))
	}
}

// silent never answers.
func silent(_ http.ResponseWriter, request *http.Request) { <-request.Context().Done() }

// rates are the figures of a table that depend on the clock.
var rates = regexp.MustCompile(`(\d/\d  +)\d+\.\d +`)

// What top prints, in every format. Pods of one server are added up.
func TestTop(t *testing.T) {
	namespace := newNamespace(t, "top")
	createServers(t, namespace)
	kubelet := startKubelet(t, "top-node")
	kubelet.addPod(t, namespace, "tickets", "tickets-1", adapterOf(3))
	kubelet.addPod(t, namespace, "tickets", "tickets-2", adapterOf(4))
	kubelet.addPod(t, namespace, "search", "search-1", adapterOf(9))
	for name, test := range map[string]struct {
		args   []string
		screen table.Screen
	}{
		"top.txt":      {args: []string{"top"}},
		"top-80.txt":   {args: []string{"top", "--sort-by", "sessions"}, screen: table.Screen{Width: 80}},
		"top-wide.txt": {args: []string{"top", "tickets", "asleep", "tickets", "-o", "wide"}},
		"top-name.txt": {args: []string{"top", "--sort-by", "memory", "-o", "name"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := kubectlMCP(t, kubeconfig, test.screen, append(test.args, "-n", namespace, "--interval", "300ms")...)
			if got.code != 0 {
				t.Fatalf("exit code %d: %s", got.code, got.errOut)
			}
			golden(t, name, rates.ReplaceAllString(got.out, "${1}N.N      ")+got.errOut)
		})
	}
	t.Run("JSON", func(t *testing.T) {
		got := kubectlMCP(t, kubeconfig, table.Screen{}, "top", "tickets", "-n", namespace, "--interval", "300ms", "-o", "json")
		var printed struct{ Items []map[string]any }
		if err := json.Unmarshal([]byte(got.out), &printed); err != nil || len(printed.Items) != 1 {
			t.Fatalf("%v: %+v", err, got)
		}
		item := printed.Items[0]
		if rate, ok := item["callsPerSecond"].(float64); !ok || rate <= 0 || rate > 4/0.3 {
			t.Errorf("%v calls/s", item["callsPerSecond"])
		}
		delete(item, "callsPerSecond")
		want := map[string]any{
			"namespace": namespace, "name": "tickets", "pods": 2.0, "answered": 2.0, "errorRatio": 0.5, "p99Seconds": 0.1 + 0.2*0.98,
			"sessions": 7.0, "sessionsLimit": 128.0, "bufferedBytes": 7.0 * (1 << 19), "memoryBytes": 64.0 * (1 << 20), "memoryLimitBytes": 512.0 * (1 << 20),
		}
		if diff := cmp.Diff(want, item, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// A pod that does not answer, or not with metrics, does not keep others from being shown.
func TestTopOfPodsThatDoNotAnswer(t *testing.T) {
	namespace := newNamespace(t, "top-silent")
	createServers(t, namespace)
	kubelet := startKubelet(t, "top-silent-node")
	kubelet.addPod(t, namespace, "search", "search-1", silent)
	kubelet.addPod(t, namespace, "asleep", "asleep-1", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("up 1\x1b[2J\n")) })
	kubelet.addPod(t, namespace, "asleep", "asleep-2", nil)
	got := kubectlMCP(t, kubeconfig, table.Screen{}, "top", "-n", namespace, "--interval", "300ms")
	if got.code != 4 {
		t.Errorf("exit code %d if no pod answers", got.code)
	}
	kubelet.addPod(t, namespace, "tickets", "tickets-1", adapterOf(3))
	got = kubectlMCP(t, kubeconfig, table.Screen{}, "top", "-n", namespace, "--interval", "300ms")
	if got.code != 0 {
		t.Errorf("exit code %d", got.code)
	}
	golden(t, "top-silent.txt", rates.ReplaceAllString(got.out, "${1}N.N      ")+got.errOut)
}

// top says what is wrong, and what to do.
func TestTopFailures(t *testing.T) {
	namespace := newNamespace(t, "top-failures")
	createServers(t, namespace)
	startKubelet(t, "top-failures-node").addPod(t, namespace, "tickets", "tickets-1", adapterOf(3))
	lister := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "lister"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"mcp.slipway.dev"}, Resources: []string{"mcpservers"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "lister"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "lister"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "lister"}},
	}
	create(t, lister, binding)
	t.Cleanup(func() { remove(t, binding); remove(t, lister) })
	for name, test := range map[string]struct {
		args []string
		want result
	}{
		"may not list pods": {[]string{"--as", "viewer"}, result{3, "", "error: list pods of MCPServers: pods is forbidden: User \"viewer\" cannot list resource \"pods\" in API group \"\" in the namespace \"top-failures\"\n" +
			"Ask for the right that is missing: view has those to read, edit has those to call servers and to stop them.\n"}},
		"may not connect":  {[]string{"--as", "lister"}, result{3, "", "error: you may not create pods/portforward in namespace top-failures\nAsk for the role edit there, which has it.\n"}},
		"no such column":   {[]string{"--sort-by", "age"}, result{1, "", "error: servers cannot be sorted by \"age\"\nUse calls, errors, p99, sessions or memory.\n"}},
		"no such format":   {[]string{"-o", "xml"}, result{1, "", "error: unknown output format \"xml\"\nUse -o json or yaml or name or wide.\n"}},
		"no such server":   {[]string{"absent"}, result{4, "", "error: get MCPServer absent: mcpservers.mcp.slipway.dev \"absent\" not found\nTo see all servers, run: kubectl mcp list -A\n"}},
		"too short a time": {[]string{"--interval", "1ms"}, result{1, "", "error: the interval must be at least 100ms\nUse --interval 2s.\n"}},
		"a name and -A":    {[]string{"tickets", "-A"}, result{1, "", "error: a server has one namespace, so -A and a name exclude each other\nUse -n NAMESPACE with the name of a server.\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := kubectlMCP(t, kubeconfig, table.Screen{}, append([]string{"top", "-n", namespace}, test.args...)...)
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(result{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTopOfNothing(t *testing.T) {
	namespace := newNamespace(t, "top-nothing")
	got := kubectlMCP(t, kubeconfig, table.Screen{}, "top", "-n", namespace)
	if want := (result{0, "", "There are no MCPServers in namespace top-nothing. Try -A, for all namespaces.\n"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := kubectlMCP(t, kubeconfig, table.Screen{}, "top", "-n", namespace, "-o", "json"); got.out != "{\n  \"items\": []\n}\n" {
		t.Errorf("got %+v", got)
	}
}

// threeTables ends a command when it has begun its third table.
type threeTables struct {
	all bytes.Buffer
	end context.CancelFunc
}

func (w *threeTables) Write(p []byte) (int, error) {
	n, err := w.all.Write(p)
	if strings.Count(w.all.String(), "CALLS/S") == 3 {
		w.end()
	}
	return n, err
}

// With --watch the plugin redraws the table on a terminal, and prints it again elsewhere, until Ctrl+C.
func TestTopWatches(t *testing.T) {
	namespace := newNamespace(t, "top-watch")
	createServers(t, namespace)
	startKubelet(t, "top-watch-node").addPod(t, namespace, "tickets", "tickets-1", adapterOf(3))
	for name, test := range map[string]struct {
		screen table.Screen
		clears int
	}{
		"a terminal": {table.Screen{IsTerminal: true, Width: 80}, 3},
		"a pipe":     {table.Screen{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out, errOut := &threeTables{end: cancel}, &bytes.Buffer{}
			code := plugin.Run(ctx, []string{"--kubeconfig=" + kubeconfig, "--cache-dir=" + filepath.Join(dir, "cache"), "-n", namespace, "top", "tickets", "--watch", "--interval", "200ms"},
				plugin.Terminal{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: errOut}, Screen: test.screen, Now: time.Now})
			if code != 0 || errOut.Len() > 0 {
				t.Errorf("exit code %d: %s", code, errOut)
			}
			if got := strings.Count(out.all.String(), "\x1b[2J"); got != test.clears {
				t.Errorf("the screen was cleared %d times, want %d:\n%q", got, test.clears, out.all.String())
			}
			if got := rates.FindAllString(out.all.String(), -1); len(got) != 3 {
				t.Errorf("not every table has a rate:\n%s", out.all.String())
			}
		})
	}
}
