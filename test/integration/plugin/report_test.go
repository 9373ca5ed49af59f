package plugin

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/plugin/report"
	"github.com/slipway-mcp/slipway/internal/plugin/table"
)

// markers are values that must not be in a report, each of which is in one place only.
type markers []string

// next is a marker that JSON escapes.
func (m *markers) next() string {
	*m = append(*m, rand.Text()+"\"\\<"+rand.Text())
	return (*m)[len(*m)-1]
}

// createReported makes a server with all its objects, and markers in everything that holds a value.
func createReported(t *testing.T, namespace, name string) markers {
	t.Helper()
	var m markers
	labels := map[string]string{mcpv1alpha1.LabelServer: name}
	inEnv, inArgs, inSecret := m.next(), m.next(), m.next()
	server := &mcpv1alpha1.MCPServer{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: mcpv1alpha1.MCPServerSpec{
		Image: "registry.example/tickets:1", Command: []string{"node", m.next()}, Args: []string{"--token=" + inArgs, m.next()},
		Env: []corev1.EnvVar{{Name: "URL", Value: inEnv}, {Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: name + "-user"}, Key: "token",
		}}}, {Name: "REGION", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: name + "-one"}, Key: "region",
		}}}},
		EnvFrom: []corev1.EnvFromSource{
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name + "-all"}}},
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name + "-settings"}}},
		},
		Transport: mcpv1alpha1.Transport{Type: mcpv1alpha1.TransportStdio},
	}}
	applied, err := json.Marshal(server)
	if err != nil {
		t.Fatal(err)
	}
	server.Annotations = map[string]string{
		corev1.LastAppliedConfigAnnotation: string(applied), "tool.example/original": fmt.Sprintf(`{"spec":{"env":[{"name":"OLD","value":%q}]}}`, m.next()),
	}
	create(t, server)
	server.Status = mcpv1alpha1.MCPServerStatus{
		Conditions: []metav1.Condition{condition("Ready", "False", mcpv1alpha1.ReasonServerExits, fmt.Sprintf("exit code 1; standard error: %q", "bad token "+inArgs))},
		Image:      &mcpv1alpha1.ResolvedImage{Command: []string{m.next()}},
	}
	if err := admin.Status().Update(t.Context(), server); err != nil {
		t.Fatal(err)
	}
	pod := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{
			Name: mcpv1alpha1.ContainerAdapter, Image: "registry.example/adapter:1", Args: []string{m.next()}, RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
		}},
		Containers: []corev1.Container{{
			Name: mcpv1alpha1.ContainerServer, Image: "registry.example/tickets:1", Command: []string{m.next()}, Args: []string{m.next()}, Env: []corev1.EnvVar{{Name: "A", Value: m.next()}},
			LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
				Port: intstr.FromInt32(80), HTTPHeaders: []corev1.HTTPHeader{{Name: "Authorization", Value: "Bearer " + m.next()}},
			}}},
			Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{m.next()}}}},
		}},
	}}
	rendered, err := json.Marshal(map[string]any{"template": pod, "inputs": map[string]any{"spec": server.Spec}})
	if err != nil {
		t.Fatal(err)
	}
	meta := func(suffix string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace: namespace, Name: name + suffix, Labels: labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(server, mcpv1alpha1.SchemeGroupVersion.WithKind("MCPServer"))},
		}
	}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	running := &corev1.Pod{ObjectMeta: meta("-1-a"), Spec: pod.Spec}
	create(t,
		&corev1.Secret{ObjectMeta: meta("-keys"), Data: map[string][]byte{"current": []byte(m.next())}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-user"}, StringData: map[string]string{"token": inSecret}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-all"}, StringData: map[string]string{"A": m.next(), "B": m.next()}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-one"}, Data: map[string]string{"region": m.next(), "motd": "of no variable"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-settings"}, Data: map[string]string{"A": m.next(), "B": m.next()}},
		&appsv1.ControllerRevision{ObjectMeta: meta("-abc"), Data: runtime.RawExtension{Raw: rendered}, Revision: 1},
		&corev1.ConfigMap{ObjectMeta: meta("-catalog"), Data: map[string]string{"catalog.json": fmt.Sprintf(`{"tools":[{"name":"a","description":%q}]}`, inEnv)}},
		&appsv1.Deployment{ObjectMeta: meta(""), Spec: appsv1.DeploymentSpec{Selector: selector, Template: pod}},
		&appsv1.ReplicaSet{ObjectMeta: meta("-1"), Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: pod}},
		running,
	)
	running.Status = corev1.PodStatus{
		Phase:                 corev1.PodRunning,
		InitContainerStatuses: []corev1.ContainerStatus{{Name: mcpv1alpha1.ContainerAdapter, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: mcpv1alpha1.ContainerServer, RestartCount: 1,
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "no " + inSecret}},
		}},
	}
	if err := admin.Status().Update(t.Context(), running); err != nil {
		t.Fatal(err)
	}
	create(t,
		&corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-event"}, Type: "Warning", Reason: "Failed", Message: "cannot start " + inArgs, Count: 3,
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: running.Name, UID: running.UID},
		},
		&corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-gone"}, Reason: "Killing", Message: "of a pod that is gone",
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: name + "-1-b", UID: "gone"},
		},
		&corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-other"}, Reason: "Killing", Message: "of another server",
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: "other", UID: "other"},
		},
	)
	return m
}

// cleanReported removes what newNamespace does not.
func cleanReported(t *testing.T, namespace string) {
	t.Helper()
	t.Cleanup(func() {
		for _, kind := range []client.Object{&corev1.Secret{}, &appsv1.ControllerRevision{}, &appsv1.Deployment{}, &appsv1.ReplicaSet{}, &corev1.Pod{}, &corev1.Event{}} {
			if err := admin.DeleteAllOf(context.WithoutCancel(t.Context()), kind, client.InNamespace(namespace), client.GracePeriodSeconds(0)); err != nil {
				t.Error(err)
			}
		}
	})
}

// files are the files of an archive, without its directory.
func files(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	reader, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, file := range reader.File {
		opened, err := file.Open()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(opened)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(file.Name, "/")
		found[name] = string(content)
	}
	return found
}

// No byte of a report has a value, in whatever form.
func TestReportHasNoValues(t *testing.T) {
	namespace := newNamespace(t, "report")
	cleanReported(t, namespace)
	planted := createReported(t, namespace, "tickets")
	foreign := createReported(t, namespace, "search") // which the report is not about
	leaked := strings.Join(planted, "\n") + "\n" + strings.Join(forms(planted), "\n") + "\nof no variable\nbye\n"
	opened := map[string]int{}
	var archive bytes.Buffer
	summary, err := report.Write(t.Context(), &archive, "mcp-report", time.Now(), report.Source{
		API: admin, Version: func() (string, error) { return "v1.36.0", nil },
		OpenLog: func(_ context.Context, log report.Log) (io.ReadCloser, error) {
			opened[fmt.Sprintf("%s %s %t", log.Pod.Name, log.Container, log.Previous)]++
			return io.NopCloser(strings.NewReader("of " + log.Container + "\n" + leaked)), nil
		},
		OpenMetrics: func(context.Context, types.NamespacedName) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader("metric 1\n" + leaked)), nil
		},
	}, []types.NamespacedName{{Namespace: namespace, Name: "tickets"}}, report.Watcher{
		Begin: func(types.NamespacedName, int, int) {}, Missing: func(line string) { t.Errorf("missing: %s", line) },
	})
	if err != nil {
		t.Fatal(err)
	}
	found := files(t, archive.Bytes())
	if summary.Servers != 1 || summary.Files != len(found) {
		t.Errorf("summary %+v of %d files", summary, len(found))
	}
	for name, content := range found {
		for i, form := range slices.Concat(planted, foreign, forms(planted), forms(foreign)) {
			if strings.Contains(content, form) {
				t.Errorf("%s has marker %d, %q", name, i, form)
			}
		}
	}
	const directory = "servers/report/tickets/"
	for name, want := range map[string]string{
		directory + "mcpserver-tickets.yaml":                              "image: registry.example/tickets:1",
		directory + "secret-tickets-keys.yaml":                            "current: <removed, 55 bytes>",
		directory + "secret-tickets-user.yaml":                            "token: <removed, 55 bytes>",
		directory + "controllerrevision-tickets-abc.yaml":                 "mcp-server",
		directory + "configmap-tickets-catalog.yaml":                      `"description":"<removed, `,
		directory + "deployment-tickets.yaml":                             "name: Authorization",
		directory + "replicaset-tickets-1.yaml":                           "name: Authorization",
		directory + "pods/tickets-1-a.yaml":                               "message: no <removed, 55 bytes>",
		directory + "pods/tickets-1-a/mcp-server.log":                     "of mcp-server\n<removed, ",
		directory + "pods/tickets-1-a/mcp-server.previous.log":            "\nof no variable\nbye\n",
		directory + "pods/tickets-1-a/mcp-adapter.log":                    "of mcp-adapter\n",
		directory + "pods/tickets-1-a/metrics.txt":                        "metric 1\n",
		directory + "events.yaml":                                         "cannot start <removed, 55 bytes>",
		"manager/default/slipway-manager/deployment-slipway-manager.yaml": "image: registry.example/manager",
		"versions.yaml":                 "kubernetes: v1.36.0",
		"nodes.yaml":                    "[]",
		"missing.txt":                   "Nothing is missing.\n",
		"customresourcedefinition.yaml": "kind: CustomResourceDefinition",
	} {
		if !strings.Contains(found[name], want) {
			t.Errorf("%s lacks %q:\n%.2000s", name, want, found[name])
		}
	}
	for name := range found {
		if strings.Contains(name, "search") || strings.Contains(name, "mcp-adapter.previous") || strings.Contains(name, "configmap-tickets-one") || strings.Contains(name, "configmap-tickets-settings") {
			t.Errorf("there is %s", name)
		}
	}
	if events := found[directory+"events.yaml"]; !strings.Contains(events, "of a pod that is gone") || strings.Contains(events, "of another server") {
		t.Errorf("events:\n%s", events)
	}
	if len(opened) != 3 {
		t.Errorf("opened logs %v", opened)
	}
}

// forms are what programs make of values before they write them.
func forms(values []string) []string {
	var made []string
	for _, value := range values {
		quoted, err := json.Marshal(value)
		if err != nil {
			panic(err) // which does not happen to a text
		}
		made = append(made, base64.StdEncoding.EncodeToString([]byte(value)), base64.URLEncoding.EncodeToString([]byte(value)), string(quoted), fmt.Sprintf("%q", value))
	}
	return made
}

// The command writes a file that only the caller can read, does not overwrite one, and goes on without rights.
func TestReport(t *testing.T) {
	namespace := newNamespace(t, "report-command")
	cleanReported(t, namespace)
	planted := createReported(t, namespace, "tickets")
	place, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir()) // which is where the command writes
	viewed := ""
	check := func(t *testing.T, name string) map[string]string {
		t.Helper()
		archive, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		found := files(t, archive)
		for name, content := range found {
			for _, value := range slices.Concat(planted, forms(planted)) {
				if strings.Contains(content, value) {
					t.Errorf("%s has %q", name, value)
				}
			}
		}
		return found
	}
	t.Run("by an administrator", func(t *testing.T) {
		got := kubectlMCP(t, kubeconfig, table.Screen{}, "report", "-n", namespace, "tickets", "--output-file", "all.zip")
		if got.code != 0 || !strings.HasPrefix(got.out, "Wrote all.zip: 1 server, ") || !strings.HasSuffix(got.out, " Read it before you share it.\n") || strings.Count(got.out, "\n") != 1 {
			t.Errorf("got %+v", got)
		}
		if info, err := os.Stat("all.zip"); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
		if found := check(t, "all.zip"); !strings.Contains(found["missing.txt"], "servers/report-command/tickets/pods/tickets-1-a/metrics.txt: ") { // no kubelet runs
			t.Errorf("missing:\n%s", found["missing.txt"])
		}
		again := kubectlMCP(t, kubeconfig, table.Screen{}, "report", "-n", namespace, "--output-file", "all.zip")
		if want := (result{1, "", "error: file all.zip exists, and is not overwritten\nName another file with --output-file.\n"}); again != want {
			t.Errorf("got %+v, want %+v", again, want)
		}
	})
	t.Run("by a viewer", func(t *testing.T) {
		got := kubectlMCP(t, viewer, table.Screen{}, "report", "-n", namespace)
		if got.code != 0 || strings.Count(got.out, "\n") != 1 {
			t.Fatalf("got %+v", got)
		}
		written, err := filepath.Glob("mcp-report-*.zip")
		if err != nil || len(written) != 1 {
			t.Fatalf("%v, %v", written, err)
		}
		found := check(t, written[0])
		viewed = fmt.Sprintf("%s\n\n%s", strings.Join(slices.Sorted(maps.Keys(found)), "\n"), found["missing.txt"])
		for line := range strings.Lines(found["missing.txt"]) {
			if !strings.Contains(got.errOut, "missing: "+line) {
				t.Errorf("%q is not told: %s", line, got.errOut)
			}
		}
	})
	t.Run("to standard output", func(t *testing.T) {
		got := kubectlMCP(t, viewer, table.Screen{}, "report", "-n", namespace, "--output-file", "-")
		if found := files(t, []byte(got.out)); got.code != 0 || found["missing.txt"] == "" || !strings.HasSuffix(got.errOut, " Read it before you share it.\n") {
			t.Errorf("exit code %d: %s", got.code, got.errOut)
		}
	})
	t.Run("without servers", func(t *testing.T) {
		if got := kubectlMCP(t, kubeconfig, table.Screen{}, "report", "-n", "kube-public", "--output-file", "none.zip"); got.code != 0 || check(t, "none.zip")["versions.yaml"] == "" {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("golden", func(t *testing.T) {
		t.Chdir(place)
		golden(t, "report-viewer.txt", viewed)
	})
	for name, test := range map[string]struct {
		screen table.Screen
		args   []string
		code   int
		want   string
	}{
		"a terminal":     {table.Screen{IsTerminal: true}, []string{"--output-file", "-"}, 1, "error: a zip file cannot be shown on a terminal\nRedirect it: kubectl mcp report --output-file - > report.zip\n"},
		"no such server": {table.Screen{}, []string{"absent"}, 4, "error: get MCPServer absent: mcpservers.mcp.slipway.dev \"absent\" not found\nTo see all servers, run: kubectl mcp list -A\n"},
		"a name and -A":  {table.Screen{}, []string{"tickets", "-A"}, 1, "error: a server has one namespace, so -A and a name exclude each other\nUse -n NAMESPACE with the name of a server.\n"},
		"no directory":   {table.Screen{}, []string{"--output-file", "absent/report.zip"}, 1, "error: open absent/report.zip: no such file or directory\nName another file with --output-file.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got := kubectlMCP(t, kubeconfig, test.screen, append([]string{"report", "-n", namespace}, test.args...)...)
			if want := (result{test.code, "", test.want}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// A report that cannot be finished leaves no file.
func TestReportThatFails(t *testing.T) {
	namespace := newNamespace(t, "report-fails")
	cleanReported(t, namespace)
	createReported(t, namespace, "tickets")
	source := report.Source{
		API: admin, Version: func() (string, error) { return "", errors.New("no version") },
		OpenLog: func(context.Context, report.Log) (io.ReadCloser, error) { return nil, errors.New("no log") },
		OpenMetrics: func(context.Context, types.NamespacedName) (io.ReadCloser, error) {
			return nil, errors.New("no metrics")
		},
	}
	var missing []string
	watcher := report.Watcher{Begin: func(types.NamespacedName, int, int) {}, Missing: func(line string) { missing = append(missing, line) }}
	servers := []types.NamespacedName{{Namespace: namespace, Name: "tickets"}, {Namespace: namespace, Name: "gone"}}
	var archive bytes.Buffer
	if _, err := report.Write(t.Context(), &archive, "mcp-report", time.Now(), source, servers, watcher); err != nil {
		t.Fatal(err)
	}
	golden(t, "report-missing.txt", files(t, archive.Bytes())["missing.txt"])
	if len(missing) != 6 {
		t.Errorf("missing %q", missing)
	}
	if _, err := report.Write(t.Context(), brokenFile{}, "mcp-report", time.Now(), source, servers, watcher); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("got error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := report.Write(ctx, io.Discard, "mcp-report", time.Now(), source, servers, watcher); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v", err)
	}
}

type brokenFile struct{}

func (brokenFile) Write([]byte) (int, error) { return 0, errors.New("disk full") }
