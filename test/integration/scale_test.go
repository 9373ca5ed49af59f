package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-mcp/slipway/test/hang"
)

// A manager that lacks one right says which, and ends when it is told to.
func TestManagerMayNotListPods(t *testing.T) {
	g := NewWithT(t)
	const account = "podless"
	newAccount(t, shared, systemNamespace, account)
	role := &rbacv1.ClusterRole{}
	g.Expect(shared.client.Get(t.Context(), client.ObjectKey{Name: managerRole}, role)).To(Succeed())
	podless := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: account}, Rules: role.Rules}
	for i := range podless.Rules {
		podless.Rules[i].Resources = slices.DeleteFunc(podless.Rules[i].Resources, func(name string) bool { return name == "pods" })
	}
	podless.Rules = slices.DeleteFunc(podless.Rules, func(rule rbacv1.PolicyRule) bool { return len(rule.Resources) == 0 })
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: systemNamespace, Name: account}}
	create(t, shared, podless)
	create(t, shared, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: account},
	})
	create(t, shared, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: account}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: managerRole},
	})

	manager := startManager(t, account, "")
	reason := func() string {
		_, reason, _ := manager.probe("/readyz/cache")
		return reason
	}
	g.Eventually(reason).WithTimeout(hang.Guard).Should(HaveSuffix("check that its ClusterRole may list and watch pods"))
	g.Eventually(manager.stderr.String).WithTimeout(hang.Guard).Should(ContainSubstring("pods is forbidden"), "the log says it, too")
	g.Eventually(manager.answer).WithArguments("/healthz").WithTimeout(hang.Guard).Should(Equal(http.StatusOK), "a restart would not help")
	manager.stop()
}

// A standby has everything in its cache before it gets the lease: what it takes to list
// thousands of objects would come on top of the time that the lease takes to expire.
func TestStandbyIsWarm(t *testing.T) {
	g := NewWithT(t)
	namespace := newNamespace(t, shared, "warm-")
	token := metricsToken(t, namespace)
	const election = ", leaseDuration: 2h, renewDeadline: 1h, retryPeriod: 200ms"
	t.Cleanup(func() {
		// For the tests that come after this one.
		ctx := context.WithoutCancel(t.Context())
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: leaseName}}
		err := errors.Join(shared.client.Delete(ctx, lease), shared.client.DeleteAllOf(ctx, stdioServer(namespace, ""), client.InNamespace(namespace)))
		if err != nil {
			t.Error(err)
		}
	})
	leader := startElected(t, managerAccount, election, "")
	g.Eventually(leader.ready).WithTimeout(hang.Guard).Should(Succeed())
	const servers = 300
	for i := range servers {
		create(t, shared, stdioServer(namespace, fmt.Sprintf("server-%d", i)))
	}
	deployments := func() (int, error) {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("DeploymentList"))
		err := shared.client.List(t.Context(), list, client.InNamespace(namespace))
		return len(list.Items), err
	}
	g.Eventually(deployments).WithTimeout(hang.Guard).Should(Equal(servers))
	before := openWatches(t)
	first := holder(t)

	standby := startElected(t, managerAccount, election, "")
	g.Eventually(standby.ready).WithTimeout(hang.Guard).Should(Succeed())
	g.Expect(holder(t)).To(Equal(first), "it is no standby")
	// Other tests leave servers of their own.
	g.Eventually(func(g Gomega) int { return metric(g, standby, token, "slipway_servers{") }).WithTimeout(hang.Guard).Should(BeNumerically(">=", servers))
	more := func() map[string]int {
		more := openWatches(t)
		for resource, count := range before {
			more[resource] -= count
		}
		maps.DeleteFunc(more, func(_ string, count int) bool { return count == 0 })
		return more
	}
	// Of these three kinds the manager watches its own, and those that specs refer to.
	const ownAndReferredTo = 2
	g.Eventually(more).WithTimeout(hang.Guard).Should(Equal(map[string]int{
		"mcpservers": 1, "deployments": 1, "controllerrevisions": 1, "services": 1, "poddisruptionbudgets": 1, "pods": 1,
		"secrets": ownAndReferredTo, "configmaps": ownAndReferredTo, "serviceaccounts": ownAndReferredTo,
	}))

	leader.stop()
	create(t, shared, stdioServer(namespace, "new"))
	g.Eventually(deployments).WithTimeout(hang.Guard).Should(Equal(servers+1), "the standby has not taken over")
	g.Expect(holder(t)).NotTo(Equal(first))
	g.Eventually(more).WithTimeout(hang.Guard).Should(BeEmpty(), "it watches more than it did as a standby")
	standby.stop()
}

// openWatches counts the watches that the API server serves, by resource.
func openWatches(t *testing.T) map[string]int {
	t.Helper()
	clients, err := kubernetes.NewForConfig(shared.env.Config)
	if err != nil {
		t.Fatal(err)
	}
	content, err := clients.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	watches := map[string]int{}
	for _, found := range watchMetric.FindAllStringSubmatch(string(content), -1) {
		var count float64
		if _, err := fmt.Sscan(found[2], &count); err != nil {
			t.Fatal(err)
		}
		watches[found[1]] += int(count)
	}
	return watches
}

var watchMetric = regexp.MustCompile(`(?m)^apiserver_longrunning_requests\{.*resource="([a-z]+)",.*verb="WATCH",.*\} (\S+)$`)

// Everything that the manager writes for MCPServers is under one name in managedFields, and that name is
// not the one of its program, which many operators share.
func TestFieldManager(t *testing.T) {
	g := NewWithT(t)
	namespace := newNamespace(t, shared, "owner-")
	manager := startManager(t, managerAccount, "")
	server := stdioServer(namespace, "echo")
	create(t, shared, server)
	g.Eventually(func() (string, error) {
		err := shared.client.Get(t.Context(), client.ObjectKeyFromObject(server), server)
		return fmt.Sprint(server.Object["status"]), err
	}).WithTimeout(hang.Guard).Should(ContainSubstring("Ready"))
	managers := func(g Gomega) map[string][]string {
		found := map[string][]string{}
		note := func(kind string, object metav1.Object) {
			for _, entry := range object.GetManagedFields() {
				if name := entry.Manager; !strings.HasPrefix(name, "integration.test") && !slices.Contains(found[kind], name) {
					found[kind] = append(found[kind], name)
				}
			}
		}
		for _, kind := range []string{"mcp.slipway.dev/v1alpha1 MCPServer", "apps/v1 Deployment", "apps/v1 ControllerRevision", "v1 Service", "v1 Secret", "v1 ConfigMap"} {
			version, name, _ := strings.Cut(kind, " ")
			list := &unstructured.UnstructuredList{}
			list.SetAPIVersion(version)
			list.SetKind(name + "List")
			g.Expect(shared.client.List(t.Context(), list, client.InNamespace(namespace))).To(Succeed())
			for i := range list.Items {
				note(name, &list.Items[i])
			}
		}
		return found
	}
	ours := []string{"slipway"}
	g.Eventually(managers).WithTimeout(hang.Guard).Should(Equal(map[string][]string{
		"MCPServer": ours, "Deployment": ours, "ControllerRevision": ours, "Service": ours, "Secret": ours, "ConfigMap": ours,
	}))
	manager.stop()
}

// The manager's heap ends at 65 % of what its container may have, in place of with an
// OOM kill.
func TestManagerKnowsItsMemoryLimit(t *testing.T) {
	g := NewWithT(t)
	container := deployment(t, installer).Spec.Template.Spec.Containers[0]
	g.Expect(container.Env).To(ContainElement(corev1.EnvVar{
		Name: "SLIPWAY_MEMORY_LIMIT", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.memory"}},
	}))
	limit := container.Resources.Limits.Memory().Value()
	t.Setenv("SLIPWAY_MEMORY_LIMIT", strconv.FormatInt(limit, 10))
	token := metricsToken(t, newNamespace(t, shared, "memory-"))
	manager := startManager(t, managerAccount, "")
	g.Eventually(manager.ready).WithTimeout(hang.Guard).Should(Succeed())
	g.Eventually(func(g Gomega) int { return metric(g, manager, token, "go_gc_gomemlimit_bytes ") }).WithTimeout(hang.Guard).
		Should(BeNumerically("~", float64(limit)*0.65, 100))
	manager.stop()
}

// metricsToken is the token of an account that may read metrics.
func metricsToken(t *testing.T, namespace string) string {
	t.Helper()
	token := newAccount(t, shared, namespace, "prometheus")
	create(t, shared, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "metrics-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: metricsReader},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "prometheus"}},
	})
	return token
}

// stdioServer is a server whose pods never run, because there is no kubelet here.
func stdioServer(namespace, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "mcp.slipway.dev/v1alpha1", "kind": "MCPServer",
		"metadata": map[string]any{"namespace": namespace, "name": name},
		"spec": map[string]any{
			"image": "localhost:1/echo", "command": []any{"/echo"}, "transport": map[string]any{"type": "stdio"},
		},
	}}
}
