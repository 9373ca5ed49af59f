package integration

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/test/hang"
)

// beforeNames is the last commit before names in the API changed.
const beforeNames = "f51167bd0d91eb8a20bb7cf774ff63163311703b"

// renamed are specs with the names of before, and the same with those of now. kept says whether the
// pods stay if the spec is not changed and so loses the names of before.
var renamed = map[string]struct {
	before, now map[string]any
	kept        bool
}{
	"plain": {nil, nil, true},
	"http": {
		map[string]any{"transport": map[string]any{"type": "streamable-http", "http": map[string]any{"port": int64(3000)}}},
		map[string]any{"transport": map[string]any{"type": "streamable-http", "streamableHTTP": map[string]any{"port": int64(3000)}}},
		true, // it is refused
	},
	"pinned": {
		map[string]any{"transport": map[string]any{"type": "stdio", "stdio": map[string]any{"era": "Legacy"}}},
		map[string]any{"transport": map[string]any{"type": "stdio", "sessions": "Stateful"}},
		false,
	},
	"limited": {
		map[string]any{"adapter": map[string]any{"limits": map[string]any{"bodyBytes": int64(1 << 20)}}},
		map[string]any{"adapter": map[string]any{"limits": map[string]any{"body": "1Mi"}}},
		false,
	},
	"ignoring": {
		map[string]any{"podTemplate": map[string]any{"onReferenceChange": "Ignore"}, "envFrom": refersTo("tickets")},
		map[string]any{"rollout": map[string]any{"onReferenceChange": "Ignore"}, "envFrom": refersTo("tickets")},
		false,
	},
}

func refersTo(secret string) []any {
	return []any{map[string]any{"secretRef": map[string]any{"name": secret}}}
}

// An upgrade from the old field names replaces no pod in the order that docs/upgrade.md gives. It replaces
// no pod of a server that uses none of these fields in any order.
func TestLongUpgradeOverOlderNames(t *testing.T) {
	g := NewWithT(t)
	old := checkout(t, beforeNames)
	useCRD(t, filepath.Join(old, "config", "crd", "bases", "mcp.slipway.dev_mcpservers.yaml"))
	changed, left, late := newNamespace(t, shared, "changed-"), newNamespace(t, shared, "left-"), newNamespace(t, shared, "late-")
	for _, namespace := range []string{changed, left, late} {
		create(t, shared, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tickets"}})
		for name := range renamed {
			create(t, shared, withSpec(namespace, name, renamed[name].before))
		}
	}
	token := metricsToken(t, changed)
	binary := managerBinary
	t.Cleanup(func() { managerBinary = binary })
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(t.TempDir(), "manager"), "./cmd/manager")
	build.Dir = old
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the older manager: %v\n%s", err, output)
	}
	managerBinary = build.Args[3]
	manager := startManager(t, managerAccount, "")
	before := map[string]map[string]string{}
	for _, namespace := range []string{changed, left, late} {
		g.Eventually(func() map[string]string { before[namespace] = templates(t, namespace); return before[namespace] }).
			WithTimeout(hang.Guard).Should(HaveLen(len(renamed)))
	}
	manager.stop()
	managerBinary = binary

	// The CRD comes last: the manager reads what is stored, and knows no older name. It cannot write the
	// status of a server that has a pod.
	createPod(t, late, "plain")
	manager = startManager(t, managerAccount, "namespaces: ["+late+"]\n")
	wantTemplates(t, manager, token, late, before[late], false)
	g.Eventually(manager.stderr.String).WithTimeout(hang.Guard).Should(ContainSubstring("patch status of MCPServer " + late + "/plain: "))
	g.Expect(manager.stderr.String()).To(ContainSubstring("status.instances[0].ready: Required value"))
	manager.stop()

	useCRD(t, filepath.Join(root, "config", "crd", "bases", "mcp.slipway.dev_mcpservers.yaml"))
	for name := range renamed {
		now := withSpec(changed, name, renamed[name].now)
		current := now.DeepCopy()
		g.Expect(shared.client.Get(t.Context(), client.ObjectKeyFromObject(now), current)).To(Succeed())
		now.SetResourceVersion(current.GetResourceVersion())
		keepDefaults(t, now, current)
		g.Expect(shared.client.Update(t.Context(), now)).To(Succeed())
	}
	manager = startManager(t, managerAccount, "")
	wantTemplates(t, manager, token, changed, before[changed], true)
	wantTemplates(t, manager, token, left, before[left], false)
	manager.stop()
}

// keepDefaults keeps the default that the older API has stored and this one has no more, as kubectl apply does.
func keepDefaults(t *testing.T, now, current *unstructured.Unstructured) {
	t.Helper()
	stored, has, err := unstructured.NestedString(current.Object, "spec", "session", "drainTimeout")
	if err != nil || !has {
		t.Fatalf("no drainTimeout is stored: %v", err)
	}
	if err := unstructured.SetNestedField(now.Object, stored, "spec", "session", "drainTimeout"); err != nil {
		t.Fatal(err)
	}
}

// wantTemplates requires that the pods of a namespace's servers are as they were once the manager has
// nothing more to do: all of them, or those that are kept.
func wantTemplates(t *testing.T, manager *running, token, namespace string, before map[string]string, all bool) {
	t.Helper()
	g := NewWithT(t)
	g.Eventually(manager.ready).WithTimeout(hang.Guard).Should(Succeed())
	g.Eventually(func(g Gomega) {
		g.Expect(metric(g, manager, token, `controller_runtime_reconcile_total{controller="mcpserver"`)).To(BeNumerically(">=", len(renamed)))
		g.Expect(metric(g, manager, token, `workqueue_depth{controller="mcpserver"`)).To(BeZero())
		g.Expect(metric(g, manager, token, `controller_runtime_active_workers{controller="mcpserver"`)).To(BeZero())
		for name, template := range templates(t, namespace) {
			stays := Equal(before[name])
			if !all && !renamed[name].kept {
				stays = Not(stays)
			}
			g.Expect(template).To(stays, "template of %s/%s", namespace, name)
		}
		g.Expect(accepted(t, namespace, "http")).To(Equal(all))
	}).WithTimeout(hang.Guard).Should(Succeed())
}

// createPod makes a pod of a server, as the ReplicaSet of its Deployment would: nothing makes pods here.
func createPod(t *testing.T, namespace, name string) {
	t.Helper()
	server := stdioServer(namespace, name)
	if err := shared.client.Get(t.Context(), client.ObjectKeyFromObject(server), server); err != nil {
		t.Fatal(err)
	}
	create(t, shared, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels:          map[string]string{mcpv1alpha1.LabelServer: name, mcpv1alpha1.LabelManagedBy: mcpv1alpha1.ManagedBy},
			Annotations:     map[string]string{mcpv1alpha1.AnnotationServerUID: string(server.GetUID())},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name, UID: "1", Controller: new(true)}},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: mcpv1alpha1.ContainerServer, Image: "registry.example/echo"}}},
	})
}

// accepted says whether a server is.
func accepted(t *testing.T, namespace, name string) bool {
	t.Helper()
	server := stdioServer(namespace, name)
	if err := shared.client.Get(t.Context(), client.ObjectKeyFromObject(server), server); err != nil {
		t.Fatal(err)
	}
	conditions, _, err := unstructured.NestedSlice(server.Object, "status", "conditions")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(conditions, func(condition any) bool {
		of := condition.(map[string]any)
		return of["type"] == mcpv1alpha1.ConditionAccepted && of["status"] == string(metav1.ConditionTrue)
	})
}

// templates are the names of the pod templates of all Deployments of a namespace.
func templates(t *testing.T, namespace string) map[string]string {
	t.Helper()
	var deployments appsv1.DeploymentList
	if err := shared.client.List(t.Context(), &deployments, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for i := range deployments.Items {
		names[deployments.Items[i].Name] = deployments.Items[i].Spec.Template.Annotations[mcpv1alpha1.AnnotationTemplate]
	}
	return names
}

func withSpec(namespace, name string, more map[string]any) *unstructured.Unstructured {
	server := stdioServer(namespace, name)
	maps.Copy(server.Object["spec"].(map[string]any), more)
	return server
}

// checkout is a copy of the repository as it was at a commit.
func checkout(t *testing.T, commit string) string {
	t.Helper()
	if err := exec.CommandContext(t.Context(), "git", "-C", root, "cat-file", "-e", commit).Run(); err != nil {
		t.Skipf("this clone has no commit %s: %v", commit, err)
	}
	dir := t.TempDir()
	archive := exec.CommandContext(t.Context(), "sh", "-c", `git -C "$1" archive "$2" | tar -x -C "$3"`, "sh", root, commit, dir)
	if output, err := archive.CombinedOutput(); err != nil {
		t.Fatalf("check out %s: %v\n%s", commit, err, output)
	}
	return dir
}

// useCRD has the API server use the CRD of a file until the test is over.
func useCRD(t *testing.T, file string) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(content, &crd.Object); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, o := range installer {
			if isCRD(o) {
				if err := shared.install(context.WithoutCancel(t.Context()), []object{o}); err != nil {
					t.Error(err)
				}
			}
		}
	})
	if err := shared.install(t.Context(), []object{crd}); err != nil {
		t.Fatal(err)
	}
}
