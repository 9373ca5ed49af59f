// Package plugin runs kubectl mcp against a real API server. No manager runs: the tests write the
// status that a manager would write.
package plugin

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/plugin"
	"github.com/slipway-mcp/slipway/internal/plugin/table"
	"github.com/slipway-mcp/slipway/test/hang"
)

var update = flag.Bool("update", false, "write the golden files")

const root = "../../.."

var (
	admin      client.Client
	dir        string
	kubeconfig string // of an administrator
	viewer     string // of a user with the right to read MCPServers, and no other
)

func TestMain(m *testing.M) {
	if command := os.Getenv(measureVariable); command != "" {
		os.Exit(measured(command, os.Args[1:]))
	}
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		return 1, errors.New("KUBEBUILDER_ASSETS is not set: run `make test-integration`, which finds or builds an API server")
	}
	env := &envtest.Environment{
		CRDDirectoryPaths: []string{filepath.Join(root, "config", "crd", "bases")}, ErrorIfCRDPathMissing: true, ControlPlaneStartTimeout: hang.Guard,
	}
	defer func() { err = errors.Join(err, env.Stop()) }()
	config, err := env.Start()
	if err != nil {
		return 1, fmt.Errorf("start API server: %w", err)
	}
	if err := mcpv1alpha1.AddToScheme(clientgoscheme.Scheme); err != nil {
		return 1, err
	}
	if admin, err = client.New(config, client.Options{}); err != nil {
		return 1, fmt.Errorf("create client: %w", err)
	}
	if dir, err = os.MkdirTemp("", "slipway-plugin-test"); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	kubeconfig, viewer = filepath.Join(dir, "admin"), filepath.Join(dir, "viewer")
	if err := os.WriteFile(kubeconfig, env.KubeConfig, 0o600); err != nil {
		return 1, err
	}
	if err := errors.Join(addViewer(env), addManager()); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// addViewer adds a user with the right to read MCPServers, and no other.
func addViewer(env *envtest.Environment) error {
	user, err := env.AddUser(envtest.User{Name: "viewer"}, nil)
	if err != nil {
		return fmt.Errorf("add user: %w", err)
	}
	content, err := user.KubeConfig()
	if err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return errors.Join(
		os.WriteFile(viewer, content, 0o600),
		admin.Create(context.Background(), &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: "viewer"},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"mcp.slipway.dev"}, Resources: []string{"mcpservers"}, Verbs: []string{"get", "list"}}},
		}),
		admin.Create(context.Background(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "viewer"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "viewer"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "viewer"}},
		}),
	)
}

// addManager makes what doctor looks for: a manager that is ready. Nothing runs.
func addManager() error {
	labels := map[string]string{"app.kubernetes.io/name": "slipway", "app.kubernetes.io/component": "manager"}
	manager := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "slipway-manager", Labels: labels},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Image: "registry.example/manager"}}},
		}},
	}
	if err := admin.Create(context.Background(), manager); err != nil {
		return fmt.Errorf("create manager: %w", err)
	}
	manager.Status = appsv1.DeploymentStatus{Replicas: 1, ReadyReplicas: 1}
	return admin.Status().Update(context.Background(), manager)
}

// result is what a command did.
type result struct {
	code        int
	out, errOut string
}

// kubectlMCP runs a command as a user.
func kubectlMCP(t *testing.T, user string, screen table.Screen, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	code := plugin.Run(t.Context(), append([]string{"--kubeconfig=" + user, "--cache-dir=" + filepath.Join(dir, "cache")}, args...),
		plugin.Terminal{
			IOStreams: genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}, Screen: screen,
			Now: func() time.Time { return time.Now().Add(3*24*time.Hour + time.Hour) }, // so that every server has the same age
		})
	return result{code, out.String(), errOut.String()}
}

// golden compares what a command wrote with a file. What differs from run to run is replaced.
func golden(t *testing.T, name, got string, replace ...string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	got = strings.NewReplacer(append(replace, program, "/path/of/kubectl-mcp", dir, "/path/of/kubeconfigs")...).Replace(got)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; -update writes what it got):\n%s", file, diff)
	}
}

// newNamespace makes a namespace, or empties it: no controller deletes namespaces here, and the name is
// in golden files.
func newNamespace(t *testing.T, name string) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := client.IgnoreAlreadyExists(admin.Create(t.Context(), namespace)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, kind := range []client.Object{&mcpv1alpha1.MCPServer{}, &corev1.ConfigMap{}} {
			if err := admin.DeleteAllOf(context.WithoutCancel(t.Context()), kind, client.InNamespace(name)); err != nil {
				t.Error(err)
			}
		}
	})
	return name
}
