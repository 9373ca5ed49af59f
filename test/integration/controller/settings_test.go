package controller

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/workload"
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
// it was, so it is the operator that has told them.
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

// Pods of an operator that knew no settings have their hosts in flags. The next operator
// leaves them alone until one of these is changed, which such a pod cannot have otherwise.
func TestSettingsAfterAnUpgrade(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	old := startOperator(t, namespace, nil)
	server := newServer(namespace, "echo")
	create(t, server)
	eventually(t, server, "Ready", "True Ready", "Reconciling", "absent")
	old.stop()
	revisions := listed(t, namespace, &appsv1.ControllerRevisionList{})
	g.Expect(revisions).To(HaveLen(1))
	revision := revisions[0].(*appsv1.ControllerRevision)
	var rendered workload.Rendered
	g.Expect(json.Unmarshal(revision.Data.Raw, &rendered)).To(Succeed())
	rendered.Inputs = workload.Inputs{Spec: hashOfEarlierOperators(t, server)}
	content, err := json.Marshal(rendered)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(shared.client.Delete(t.Context(), revision)).To(Succeed())
	create(t, &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "echo-earlier", Labels: revision.Labels, OwnerReferences: revision.OwnerReferences},
		Data:       runtime.RawExtension{Raw: content}, Revision: revision.Revision,
	})
	startOperator(t, namespace, nil)

	newest := func() (name string) {
		number := int64(0)
		for _, object := range listed(t, namespace, &appsv1.ControllerRevisionList{}) {
			if r := object.(*appsv1.ControllerRevision); r.Revision > number {
				name, number = r.Name, r.Revision
			}
		}
		return name
	}
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Service.Port = new(int32(81)) })
	g.Eventually(func() string { return status(t, server).Address.URL }).WithTimeout(hang.Guard).Should(HaveSuffix(":81/mcp"))
	eventually(t, server, "Ready", "True Ready", "Reconciling", "absent") // a new template would wait for the registry first
	g.Expect(newest()).To(Equal("echo-earlier"), "the upgrade renders the pods anew")
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Adapter.AllowedHosts = []mcpv1alpha1.Host{"mcp.example.com"} })
	g.Eventually(newest).WithTimeout(hang.Guard).ShouldNot(Equal("echo-earlier"))
	eventually(t, server, "Ready", "True Ready", "Reconciling", "absent")
	after := newest()
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Adapter.AllowedHosts = nil })
	g.Eventually(func() int64 { return status(t, server).ObservedGeneration }).WithTimeout(hang.Guard).Should(BeEquivalentTo(4))
	g.Expect(newest()).To(Equal(after), "the pods take it over without being rendered anew")
}

// hashOfEarlierOperators is what an operator without settings wrote into its revisions:
// a hash of all of the spec that is about pods.
func hashOfEarlierOperators(t *testing.T, server *mcpv1alpha1.MCPServer) string {
	t.Helper()
	stored := &unstructured.Unstructured{}
	stored.SetGroupVersionKind(mcpv1alpha1.SchemeGroupVersion.WithKind("MCPServer"))
	if err := shared.client.Get(t.Context(), client.ObjectKeyFromObject(server), stored); err != nil {
		t.Fatal(err)
	}
	spec, _, err := unstructured.NestedMap(stored.Object, "spec")
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{"replicas", "suspend", "service", "probe", "adapter"} { // of adapter there is only upgrade
		delete(spec, other)
	}
	for _, name := range []string{"idleTimeout", "maxLifetime", "callTimeout", "drainTimeout"} { // as Go spells them
		session := spec["session"].(map[string]any)
		duration, err := time.ParseDuration(session[name].(string))
		if err != nil {
			t.Fatal(err)
		}
		session[name] = duration.String()
	}
	content, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.Sum256(content)
	return hex.EncodeToString(hash[:16])
}

// A ConfigMap of somebody else's is left as it is, and no pod goes by it.
func TestSettingsOfSomebodyElse(t *testing.T) {
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
