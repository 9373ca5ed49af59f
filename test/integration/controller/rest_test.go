package controller

import (
	"maps"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/promise"
	"github.com/slipway-mcp/slipway/internal/workload"
)

// versions are the resource versions of everything in a namespace.
func versions(t *testing.T, namespace string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for kind, list := range map[string]client.ObjectList{
		"MCPServer": &mcpv1alpha1.MCPServerList{}, "Deployment": &appsv1.DeploymentList{}, "ControllerRevision": &appsv1.ControllerRevisionList{},
		"Service": &corev1.ServiceList{}, "ServiceAccount": &corev1.ServiceAccountList{}, "ConfigMap": &corev1.ConfigMapList{},
		"Secret": &corev1.SecretList{}, "PodDisruptionBudget": &policyv1.PodDisruptionBudgetList{}, "Event": &eventsv1.EventList{},
	} {
		for _, object := range listed(t, namespace, list) {
			all[kind+" "+object.GetName()] = object.GetResourceVersion()
		}
	}
	return all
}

// Nothing changes, so nothing is written, with probes every second.
func TestAtRestNothingIsWritten(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	startOperator(t, namespace, nil)
	two := newServer(namespace, "two")
	two.Spec.Replicas = new(int32(2))
	broken := newServer(namespace, "broken")
	broken.Spec.Command = []string{hostileServer, "exit"}
	suspended := newServer(namespace, "suspended")
	suspended.Spec.Suspend = true
	create(t, two, broken, suspended)
	eventually(t, two, "Ready", "True Ready", "Reconciling", "absent")
	g.Eventually(func() int32 { return status(t, two).ReadyReplicas }).WithTimeout(soon).Should(BeEquivalentTo(2))
	eventually(t, broken, "Stalled", "True ServerExits")
	eventually(t, suspended, "Ready", "False Suspended")
	// What the first probes have found out is written by now or soon.
	var before map[string]string
	g.Eventually(func() bool {
		last := before
		before = versions(t, namespace)
		return maps.Equal(last, before)
	}).WithTimeout(soon).WithPolling(5 * time.Second).Should(BeTrue())
	g.Consistently(func() map[string]string { return versions(t, namespace) }).WithTimeout(promise.Rest).WithPolling(5 * time.Second).Should(Equal(before))
}

// A new operator, whose builders really render something else, restarts nothing: not
// until the user changes something or asks for it.
func TestUpgradeRestartsNothing(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	old := startOperator(t, namespace, nil)
	waiting, rolling := newServer(namespace, "waiting"), newServer(namespace, "rolling")
	rolling.Spec.Adapter.Upgrade = mcpv1alpha1.AdapterUpgradeRolling
	create(t, waiting, rolling)
	eventually(t, waiting, "Ready", "True Ready")
	eventually(t, rolling, "Ready", "True Ready")
	before := templateOf(t, waiting)
	pods := podNames(t, namespace)
	old.stop()

	startOperator(t, namespace, func(o *operatorOptions) {
		o.adapter = workload.Adapter{Image: "registry.example/slipway/sidecar:next", PullPolicy: corev1.PullAlways, Version: "v0.0.1-test"}
	})
	g.Eventually(func() bool { return status(t, waiting).Adapter.Outdated }).WithTimeout(soon).Should(BeTrue())
	g.Eventually(func() string { return templateOf(t, rolling).Annotations[mcpv1alpha1.AnnotationAdapterVersion] }).WithTimeout(soon).Should(Equal("v0.0.1-test"))
	eventually(t, rolling, "Ready", "True Ready", "Reconciling", "absent")
	g.Eventually(func() *mcpv1alpha1.AdapterStatus { return status(t, rolling).Adapter }).WithTimeout(soon).
		Should(Equal(&mcpv1alpha1.AdapterStatus{Version: "v0.0.1-test"}))
	g.Expect(status(t, waiting).Adapter).To(Equal(&mcpv1alpha1.AdapterStatus{Version: "v0.0.0-test", Outdated: true}))
	g.Expect(templateOf(t, waiting)).To(Equal(before))
	left := podNames(t, namespace)
	restarted := slices.DeleteFunc([]string{pods[1]}, func(name string) bool { return slices.Contains(left, name) })
	if len(restarted) != promise.UpgradeRestarts {
		t.Errorf("the upgrade restarted %v; the promise is %d pods", restarted, promise.UpgradeRestarts)
	}

	change(t, waiting, func(s *mcpv1alpha1.MCPServer) {
		s.Annotations = map[string]string{mcpv1alpha1.AnnotationRefresh: "now"}
	})
	g.Eventually(func() string { return templateOf(t, waiting).Annotations[mcpv1alpha1.AnnotationAdapterVersion] }).WithTimeout(soon).Should(Equal("v0.0.1-test"))
	g.Eventually(func() bool { return status(t, waiting).Adapter.Outdated }).WithTimeout(soon).Should(BeFalse())
}

// A server that breaks is known to be broken within the promised time, and one that is
// mended works again.
func TestServerBreaksLater(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	startOperator(t, namespace, nil)
	server := newServer(namespace, "echo")
	// A server that stops to answer when a file is there.
	flag := t.TempDir() + "/broken"
	server.Spec.Command = []string{"sh", "-c", "[ -e " + flag + " ] && exec sleep 1000; exec " + echoServer}
	create(t, server)
	eventually(t, server, "Ready", "True Ready")
	breakFile(t, flag)
	killEcho(t, namespace)
	begin := time.Now()
	eventually(t, server, "Ready", "False ServerSilent")
	if took := time.Since(begin); took > promise.Broken {
		t.Errorf("it took %s to say that the server is broken; the promise is %s", took, promise.Broken)
	}
	mendFile(t, flag)
	killEcho(t, namespace) // the one that hangs, and would for a minute
	eventually(t, server, "Ready", "True Ready")
}
