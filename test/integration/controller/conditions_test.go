package controller

import (
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/test/hang"
)

// What clients meet at an instance decides on Verified, in every direction.
func TestVerified(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	address := shared.network.Address()
	var answer atomic.Int64
	answer.Store(http.StatusUnauthorized)
	server := newServer(namespace, "echo")
	standIn(t, client.ObjectKeyFromObject(server), address, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(answer.Load()))
		_, _ = w.Write([]byte(`{"what":"ever"}`))
	}), func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"ready":true}`)) })
	startOperator(t, namespace, nil)
	server.Spec.Image = "localhost:1/simulated-at-" + address + ":1"
	create(t, server)
	eventually(t, server, "Verified", "Unknown Unauthorized", "Ready", "True Ready", "Stalled", "absent")
	answer.Store(http.StatusServiceUnavailable)
	eventually(t, server, "Verified", "Unknown Full", "Ready", "True Ready")
	answer.Store(http.StatusOK) // with what is no answer
	eventually(t, server, "Verified", "False ProbeFailed", "Ready", "False ProbeFailed", "Available", "True Available")
	answer.Store(http.StatusUnauthorized)
	eventually(t, server, "Verified", "Unknown Unauthorized", "Ready", "True Ready")
	// And a real server in its place.
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Image = "localhost:1/echo:1" })
	eventually(t, server, "Verified", "True Verified", "Ready", "True Ready", "Reconciling", "absent")
}

// A manager that cannot connect to the pods takes the kubelet's word for them.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	startOperator(t, namespace, nil)
	server := newServer(namespace, "echo")
	server.Spec.Image = "localhost:1/simulated-at-" + shared.network.Address() + ":1" // where no process listens
	create(t, server)
	eventually(t, server, "Verified", "Unknown Unreachable", "Available", "True Available", "Ready", "True Ready", "Stalled", "absent")
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Image = "localhost:1/echo:1" })
	eventually(t, server, "Verified", "True Verified", "Ready", "True Ready", "Reconciling", "absent")
}

// Pods that no node takes, and pods that may not be created.
func TestPodsThatDoNotCome(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	startOperator(t, namespace, nil)
	server := newServer(namespace, "echo")
	server.Spec.Image = "localhost:1/unschedulable:1"
	create(t, server)
	eventually(t, server, "Available", "False PodsUnschedulable", "Ready", "False PodsUnschedulable", "Reconciling", "True PodsUnschedulable", "Stalled", "absent")
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Image = "localhost:1/echo:1" })
	eventually(t, server, "Ready", "True Ready", "Reconciling", "absent")

	quota := forbid(t, namespace, corev1.ResourcePods, &corev1.Pod{
		ObjectMeta: objectMeta(namespace, "none"), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "none", Image: "none"}}},
	})
	other := newServer(namespace, "other")
	create(t, other)
	eventually(t, other, "Available", "False PodsNotCreated", "Reconciling", "True PodsNotCreated", "Stalled", "absent")
	g.Expect(meta.FindStatusCondition(status(t, other).Conditions, mcpv1alpha1.ConditionAvailable).Message).To(ContainSubstring("quota"))
	g.Expect(shared.client.Delete(t.Context(), quota)).To(Succeed())
	change(t, other, func(s *mcpv1alpha1.MCPServer) { s.Spec.Args = []string{"--page", "5"} }) // rather than wait for the Deployment's next try
	eventually(t, other, "Ready", "True Ready")
}

// forbid has a quota of none of a resource, of which object is one, and waits until the
// API server keeps to it. No controller fills in the status here.
func forbid(t *testing.T, namespace string, name corev1.ResourceName, object client.Object) *corev1.ResourceQuota {
	t.Helper()
	g := NewWithT(t)
	none := corev1.ResourceList{name: resource.MustParse("0")}
	quota := &corev1.ResourceQuota{ObjectMeta: objectMeta(namespace, "none"), Spec: corev1.ResourceQuotaSpec{Hard: none}}
	create(t, quota)
	quota.Status = corev1.ResourceQuotaStatus{Hard: none, Used: none}
	g.Expect(shared.client.Status().Update(t.Context(), quota)).To(Succeed())
	g.Eventually(func() error {
		return shared.client.Create(t.Context(), object.DeepCopyObject().(client.Object), client.DryRunAll)
	}).WithTimeout(hang.Guard).Should(MatchError(ContainSubstring("exceeded quota")))
	return quota
}

// Instances that offer different catalogs work, and the status reports the difference.
func TestInstancesDisagree(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	startOperator(t, namespace, nil)
	server := newServer(namespace, "echo")
	server.Spec.Replicas = new(int32(2))
	// Its launcher, which is another process in each pod, decides how many tools it has:
	// one if it is the first.
	first := filepath.Join(t.TempDir(), "first")
	server.Spec.Command = []string{"sh", "-c", `ln -s "$PPID" ` + first + ` 2>/dev/null; tools=2; [ "$(readlink ` + first + `)" = "$PPID" ] && tools=1
exec "` + hostileServer + `" tools "$tools"`}
	create(t, server)
	eventually(t, server, "Verified", "True InstancesDisagree", "Ready", "True Ready")
	digests := map[string]bool{}
	for _, instance := range status(t, server).Instances {
		digests[instance.CatalogDigest] = true
	}
	g.Expect(digests).To(HaveLen(2))
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Replicas = new(int32(1)) })
	eventually(t, server, "Verified", "True Verified")
}

// An image that names no program, and a server that lists too much.
func TestUnusualServers(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	images := startRegistry(t)
	images.push(t, "", "")
	startOperator(t, namespace, nil)
	empty := newServer(namespace, "empty")
	empty.Spec.Image, empty.Spec.Command = images.image(), nil
	many := newServer(namespace, "many")
	many.Spec.Command = []string{hostileServer, "tools", "100000"}
	create(t, empty, many)
	eventually(t, empty, "Accepted", "False CommandUnknown", "Stalled", "True CommandUnknown", "Ready", "False CommandUnknown")
	eventually(t, many, "Verified", "True CatalogTooLarge", "Ready", "True Ready")
	change(t, empty, func(s *mcpv1alpha1.MCPServer) { s.Spec.Command = []string{echoServer} })
	eventually(t, empty, "Ready", "True Ready", "Accepted", "True Accepted", "Stalled", "absent")
	change(t, many, func(s *mcpv1alpha1.MCPServer) { s.Spec.Command = []string{hostileServer, "tools", "3"} })
	eventually(t, many, "Verified", "True Verified", "Ready", "True Ready")
}

// A pod that runs and is not ready, for no reason that is known.
func TestPodsNotReady(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	startOperator(t, namespace, nil)
	server := newServer(namespace, "echo")
	server.Spec.Image = "localhost:1/unready:1"
	create(t, server)
	eventually(t, server, "Available", "False PodsNotReady", "Ready", "False PodsNotReady", "Reconciling", "True PodsNotReady", "Stalled", "absent")
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Image = "localhost:1/echo:1" })
	eventually(t, server, "Available", "True Available", "Ready", "True Ready", "Reconciling", "absent")
}

// What the API server does not let the manager do is tried again.
func TestRetrying(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	quota := forbid(t, namespace, corev1.ResourceServices, &corev1.Service{
		ObjectMeta: objectMeta(namespace, "none"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	})
	startOperator(t, namespace, nil)
	server := newServer(namespace, "echo")
	create(t, server)
	eventually(t, server, "Ready", "False Retrying", "Reconciling", "True Retrying", "Stalled", "absent")
	g.Expect(meta.FindStatusCondition(status(t, server).Conditions, mcpv1alpha1.ConditionReconciling).Message).To(ContainSubstring("quota"))
	g.Expect(shared.client.Delete(t.Context(), quota)).To(Succeed())
	eventually(t, server, "Ready", "True Ready", "Reconciling", "absent")
}
