package controller

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/workload"
	"github.com/slipway-mcp/slipway/test/hang"
)

// Servers that have to wait for others are created in their turn. A server that is deleted while it
// waits does not block the others.
func TestServersWaitToBeCreated(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	var servers []client.Object
	for i := range 12 {
		servers = append(servers, newServer(namespace, fmt.Sprintf("server-%d", i)))
	}
	create(t, servers...)
	startOperator(t, namespace, func(o *operatorOptions) { o.workers = 2 }) // so it creates one at a time
	g.Expect(shared.client.Delete(t.Context(), servers[6])).To(Succeed())
	for i, server := range servers {
		if i == 6 {
			continue
		}
		g.Eventually(func() error {
			return shared.client.Get(t.Context(), client.ObjectKeyFromObject(server), &appsv1.Deployment{})
		}).WithTimeout(hang.Guard).Should(Succeed(), "Deployment of %s", server.GetName())
	}
}

// From one small manifest to a URL that works, and a status that says what is there.
func TestCreateToReady(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	startOperator(t, namespace, nil)
	server := newServer(namespace, "echo")
	create(t, server)
	eventually(t, server, "Ready", "True Ready", "Accepted", "True Accepted", "Available", "True Available",
		"Verified", "True Verified", "Reconciling", "absent", "Stalled", "absent")

	got := status(t, server)
	g.Expect(got.Address.URL).To(Equal("http://echo." + namespace + ".svc/mcp"))
	g.Expect(got.ServerInfo.Name).NotTo(BeEmpty())
	g.Expect(got.ServerInfo.ProtocolVersion).To(Equal("2025-11-25"))
	g.Expect(got.Catalog.Counts.Tools).To(BeNumerically(">", 3))
	g.Expect(got.Catalog.Tools).To(HaveLen(int(got.Catalog.Counts.Tools)))
	g.Expect(got.Catalog.Tools).To(ContainElement(HaveField("Name", "echo")))
	g.Expect(got.Replicas).To(BeEquivalentTo(1))
	g.Expect(got.ReadyReplicas).To(BeEquivalentTo(1))
	g.Expect(got.Instances).To(HaveLen(1))
	g.Expect(got.Instances[0].Verification).To(Equal(mcpv1alpha1.InstanceVerified))
	g.Expect(got.Instances[0].CatalogDigest).To(Equal(got.Catalog.Digest))
	g.Expect(got.Image.Command).To(Equal([]string{echoServer}))
	g.Expect(got.Template.Outdated).To(BeFalse())
	g.Expect(got.ObservedGeneration).To(BeEquivalentTo(1))

	catalog := &corev1.ConfigMap{}
	g.Eventually(func() error {
		return shared.client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "echo-catalog"}, catalog)
	}).WithTimeout(hang.Guard).Should(Succeed())
	var stored struct {
		Digest string
		Tools  []struct{ Name string }
	}
	g.Expect(json.Unmarshal([]byte(catalog.Data["catalog.json"]), &stored)).To(Succeed())
	g.Expect(stored.Digest).To(Equal(got.Catalog.Digest))
	g.Expect(stored.Tools).To(HaveLen(len(got.Catalog.Tools)))
}

// A server may have one object of each row of the table, and everything is gone with the server.
func TestDeletionLeavesNothing(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	startOperator(t, namespace, nil)
	server := newServer(namespace, "echo")
	server.Spec.Replicas = new(int32(2)) // with a PodDisruptionBudget
	create(t, server)
	eventually(t, server, "Ready", "True Ready")
	want := []any{HavePrefix("ControllerRevision echo-")}
	for _, owned := range workload.AllOwned() {
		if owned.Name != nil && !owned.IsOptional {
			want = append(want, owned.Kind.Kind+" "+owned.Name(server))
		}
	}
	NewWithT(t).Eventually(owned).WithArguments(t, namespace).WithTimeout(hang.Guard).Should(ConsistOf(want...))
	if err := shared.client.Delete(t.Context(), server); err != nil {
		t.Fatal(err)
	}
	NewWithT(t).Eventually(owned).WithArguments(t, namespace).WithTimeout(hang.Guard).Should(BeEmpty())
	NewWithT(t).Eventually(podNames).WithArguments(t, namespace).WithTimeout(hang.Guard).Should(BeEmpty())
}

// owned lists what is there of the kinds that a server owns.
func owned(t *testing.T, namespace string) []string {
	t.Helper()
	var all []string
	for kind, list := range ownedLists() {
		for _, object := range listed(t, namespace, list) {
			if metav1.GetControllerOf(object) != nil {
				all = append(all, kind+" "+object.GetName())
			}
		}
	}
	return all
}

// ownedLists are empty lists of all kinds that a server owns, by kind.
func ownedLists() map[string]client.ObjectList {
	lists := map[string]client.ObjectList{}
	for _, owned := range workload.AllOwned() {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(owned.Kind.GroupVersion().WithKind(owned.Kind.Kind + "List"))
		lists[owned.Kind.Kind] = list
	}
	return lists
}

func podNames(t *testing.T, namespace string) []string {
	t.Helper()
	var names []string
	for _, pod := range listed(t, namespace, &corev1.PodList{}) {
		names = append(names, pod.GetName())
	}
	return names
}

// `kubectl scale` and an autoscaler act on the MCPServer and are never overruled.
func TestScale(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace, server := readyServer(t)
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 3}}
	if err := shared.client.SubResource("scale").Update(t.Context(), server, client.WithSubResourceBody(scale)); err != nil {
		t.Fatal(err)
	}
	g.Eventually(func() int32 { return status(t, server).ReadyReplicas }).WithTimeout(hang.Guard).Should(BeEquivalentTo(3))
	g.Expect(status(t, server).Selector).To(Equal(mcpv1alpha1.LabelServer + "=echo"))
	g.Eventually(owned).WithArguments(t, namespace).WithTimeout(hang.Guard).Should(ContainElement("PodDisruptionBudget echo"))

	hpa := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "echo"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "mcp.slipway.dev/v1alpha1", Kind: "MCPServer", Name: "echo"},
			MinReplicas:    new(int32(4)), MaxReplicas: 5,
		},
	}
	create(t, hpa)
	g.Eventually(func() int32 { return status(t, server).ReadyReplicas }).WithTimeout(hang.Guard).Should(BeEquivalentTo(4), "the autoscaler's minimum")
	current := &mcpv1alpha1.MCPServer{}
	g.Expect(shared.client.Get(t.Context(), client.ObjectKeyFromObject(server), current)).To(Succeed())
	g.Expect(*current.Spec.Replicas).To(BeEquivalentTo(4))
	g.Expect(shared.client.Delete(t.Context(), hpa)).To(Succeed())

	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Replicas = new(int32(0)) })
	eventually(t, server, "Ready", "absent", "Available", "False ScaledToZero", "Verified", "Unknown ScaledToZero",
		"Reconciling", "absent", "Stalled", "absent")
	g.Eventually(podNames).WithArguments(t, namespace).WithTimeout(hang.Guard).Should(BeEmpty())
	g.Eventually(owned).WithArguments(t, namespace).WithTimeout(hang.Guard).ShouldNot(ContainElement("PodDisruptionBudget echo"))
}

func TestSuspend(t *testing.T) {
	t.Parallel()
	namespace, server := readyServer(t)
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Suspend = true })
	eventually(t, server, "Ready", "absent", "Available", "False Suspended", "Verified", "Unknown Suspended",
		"Reconciling", "absent", "Stalled", "absent")
	NewWithT(t).Eventually(podNames).WithArguments(t, namespace).WithTimeout(hang.Guard).Should(BeEmpty())
	if got := status(t, server); len(got.Catalog.Tools) == 0 {
		t.Error("what the server offers is forgotten")
	}
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Suspend = false })
	eventually(t, server, "Ready", "True Ready")
}

// What others change of an owned object is changed back.
func TestEditedObjectsAreHealed(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace, _ := readyServer(t)
	name := types.NamespacedName{Namespace: namespace, Name: "echo"}

	service := &corev1.Service{}
	g.Expect(shared.client.Get(t.Context(), name, service)).To(Succeed())
	change(t, service, func(s *corev1.Service) { s.Spec.Ports[0].Port = 81 })
	g.Eventually(func() int32 {
		g.Expect(shared.client.Get(t.Context(), name, service)).To(Succeed())
		return service.Spec.Ports[0].Port
	}).WithTimeout(hang.Guard).Should(BeEquivalentTo(80))

	deployment := &appsv1.Deployment{}
	g.Expect(shared.client.Get(t.Context(), name, deployment)).To(Succeed())
	image := deployment.Spec.Template.Spec.Containers[0].Image
	change(t, deployment, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "another/image:1" })
	g.Eventually(func() string {
		g.Expect(shared.client.Get(t.Context(), name, deployment)).To(Succeed())
		return deployment.Spec.Template.Spec.Containers[0].Image
	}).WithTimeout(hang.Guard).Should(Equal(image))

	g.Expect(shared.client.Delete(t.Context(), service)).To(Succeed())
	g.Eventually(func() error { return shared.client.Get(t.Context(), name, service) }).WithTimeout(hang.Guard).Should(Succeed())
}

// The manager does not touch an object of another owner.
func TestNameConflict(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	startOperator(t, namespace, nil)
	foreign := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "echo"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 9999}}},
	}
	create(t, foreign)
	server := newServer(namespace, "echo")
	create(t, server)
	eventually(t, server, "Ready", "False NameConflict", "Accepted", "False NameConflict", "Stalled", "True NameConflict", "Reconciling", "absent")
	g.Expect(status(t, server).Address).To(BeNil(), "clients would send their tokens to a Service of another owner")
	after := &corev1.Service{}
	g.Expect(shared.client.Get(t.Context(), client.ObjectKeyFromObject(foreign), after)).To(Succeed())
	g.Expect(after.ResourceVersion).To(Equal(foreign.ResourceVersion))
	g.Expect(shared.client.Delete(t.Context(), foreign)).To(Succeed())
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Annotations = map[string]string{mcpv1alpha1.AnnotationRefresh: "1"} })
	eventually(t, server, "Ready", "True Ready")
}

// Two servers of one name in two namespaces have nothing to do with each other; the
// longest name that there may be works.
func TestNames(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("n", 63)
	one, two := newNamespace(t), newNamespace(t)
	startOperator(t, one, nil)
	startOperator(t, two, nil)
	first, second := newServer(one, name), newServer(two, name)
	second.Spec.Command = []string{hostileServer, "tools", "7"}
	create(t, first, second)
	eventually(t, first, "Ready", "True Ready")
	eventually(t, second, "Ready", "True Ready")
	if a, b := status(t, first), status(t, second); b.Catalog.Counts.Tools != 7 || a.Catalog.Counts.Tools == 7 || a.Catalog.Digest == b.Catalog.Digest {
		t.Errorf("the first offers %d tools and the second %d", a.Catalog.Counts.Tools, b.Catalog.Counts.Tools)
	}
}

// listed are the objects of a namespace.
func listed(t *testing.T, namespace string, list client.ObjectList) []client.Object {
	t.Helper()
	if err := shared.client.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	var objects []client.Object
	if err := eachItem(list, func(object client.Object) { objects = append(objects, object) }); err != nil {
		t.Fatal(err)
	}
	return objects
}
