package controller

import (
	"fmt"
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/test/hang"
)

// settingsOf are those that the ConfigMap of the server has; zero if there is none.
func settingsOf(t *testing.T, server client.Object) adapterapi.Settings {
	t.Helper()
	config := &corev1.ConfigMap{}
	name := types.NamespacedName{Namespace: server.GetNamespace(), Name: server.GetName() + "-adapter"}
	if err := shared.client.Get(t.Context(), name, config); err != nil {
		return adapterapi.Settings{}
	}
	settings, err := adapterapi.DecodeSettings([]byte(config.Data[adapterapi.SettingsFile]))
	if err != nil {
		return adapterapi.Settings{}
	}
	return settings
}

// refused says whether the adapter of the only pod refuses the host or the origin.
func refused(t *testing.T, namespace, host, origin string) bool {
	t.Helper()
	pods := listed(t, namespace, &corev1.PodList{})
	if len(pods) != 1 {
		t.Fatalf("%d pods", len(pods))
	}
	url := fmt.Sprintf("http://%s:%d/mcp", pods[0].(*corev1.Pod).Status.PodIP, mcpv1alpha1.AdapterPort)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Host = host
	if origin != "" {
		request.Header.Set("Origin", origin)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	return response.StatusCode == http.StatusForbidden
}

// Hosts, origins and verbosity change in the pods that run. The volume of those stays as
// it was, so it is the manager that has told them.
func TestSettingsChangeInRunningPods(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace, server := readyServer(t)
	pods, template := podNames(t, namespace), templateOf(t, server)
	g.Expect(settingsOf(t, server)).To(And(
		HaveField("Generation", BeEquivalentTo(1)), HaveField("AllowedHosts", ConsistOf("echo", "echo."+namespace, "echo."+namespace+".svc", "echo."+namespace+".svc.cluster.local"))))
	const host, page = "mcp.example.com", "https://chat.example.com"
	g.Expect(refused(t, namespace, "echo", "")).To(BeFalse())
	g.Expect(refused(t, namespace, host, "")).To(BeTrue())
	g.Expect(refused(t, namespace, "echo", page)).To(BeTrue())

	change(t, server, func(s *mcpv1alpha1.MCPServer) {
		s.Spec.Adapter.AllowedHosts, s.Spec.Adapter.AllowedOrigins = []mcpv1alpha1.Host{host}, []mcpv1alpha1.Origin{page}
		s.Spec.Adapter.Verbosity = new(int32(1))
	})
	g.Eventually(refused).WithArguments(t, namespace, host, page).WithTimeout(hang.Guard).Should(BeFalse())
	g.Eventually(settingsOf).WithArguments(t, server).WithTimeout(hang.Guard).Should(And(
		HaveField("Generation", BeEquivalentTo(2)), HaveField("AllowedHosts", ContainElement(host)),
		HaveField("AllowedOrigins", ConsistOf(page)), HaveField("Verbosity", 1)))

	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Adapter.AllowedHosts, s.Spec.Adapter.AllowedOrigins = nil, nil })
	g.Eventually(refused).WithArguments(t, namespace, host, "").WithTimeout(hang.Guard).Should(BeTrue())
	g.Expect(refused(t, namespace, "echo", page)).To(BeTrue())
	g.Eventually(func() int64 { return status(t, server).ObservedGeneration }).WithTimeout(hang.Guard).Should(BeEquivalentTo(3))
	eventually(t, server, "Ready", "True Ready", "Reconciling", "absent")
	g.Expect(podNames(t, namespace)).To(Equal(pods), "pods were replaced")
	g.Expect(templateOf(t, server)).To(Equal(template))
}

// A pod that starts later finds in its volume what holds.
func TestSettingsAreHealed(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	_, server := readyServer(t)
	want := settingsOf(t, server)
	config := &corev1.ConfigMap{}
	name := types.NamespacedName{Namespace: server.Namespace, Name: "echo-adapter"}
	g.Expect(shared.client.Get(t.Context(), name, config)).To(Succeed())
	change(t, config, func(c *corev1.ConfigMap) { c.Data[adapterapi.SettingsFile] = "{}" })
	g.Eventually(settingsOf).WithArguments(t, server).WithTimeout(hang.Guard).Should(Equal(want))
	g.Expect(shared.client.Delete(t.Context(), config)).To(Succeed())
	g.Eventually(settingsOf).WithArguments(t, server).WithTimeout(hang.Guard).Should(Equal(want))
}

// The manager does not touch a ConfigMap of another owner, and no pod uses it.
func TestSettingsOfAnotherWriter(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	startOperator(t, namespace, nil)
	foreign := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "echo-adapter"},
		Data:       map[string]string{adapterapi.SettingsFile: `{"version":1,"generation":1,"allowedHosts":["*"]}`},
	}
	create(t, foreign)
	server := newServer(namespace, "echo")
	create(t, server)
	eventually(t, server, "Ready", "False NameConflict", "Stalled", "True NameConflict")
	after := &corev1.ConfigMap{}
	g.Expect(shared.client.Get(t.Context(), client.ObjectKeyFromObject(foreign), after)).To(Succeed())
	g.Expect(after.ResourceVersion).To(Equal(foreign.ResourceVersion))
	g.Expect(podNames(t, namespace)).To(BeEmpty())
}
