package controller

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/test/hang"
)

// everything is all that people can read of a namespace without reading Secrets.
func everything(t *testing.T, namespace string) string {
	t.Helper()
	var text strings.Builder
	lists := ownedLists()
	delete(lists, "Secret")
	lists["MCPServer"], lists["Pod"], lists["Event"] = &mcpv1alpha1.MCPServerList{}, &corev1.PodList{}, &eventsv1.EventList{}
	for _, list := range lists {
		for _, object := range listed(t, namespace, list) {
			encoded, err := json.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			text.Write(encoded)
			text.WriteByte('\n')
		}
	}
	return text.String()
}

// What is wrong with a server is named within the promised time, and forgotten when it
// is mended.
func TestBrokenServers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		breakIt func(*mcpv1alpha1.MCPServerSpec)
		reason  string
		message string
	}{
		"exits at once": {
			func(s *mcpv1alpha1.MCPServerSpec) { s.Command = []string{hostileServer, "exit"} },
			mcpv1alpha1.ReasonServerExits, "exit code 3",
		},
		"is not there": {
			func(s *mcpv1alpha1.MCPServerSpec) { s.Command = []string{"/no/such/program"} },
			mcpv1alpha1.ReasonServerExits, "/no/such/program",
		},
		"does not answer": {
			func(s *mcpv1alpha1.MCPServerSpec) {
				s.Command = []string{hostileServer, "silent"}
				s.Session.StartTimeout = &metav1.Duration{Duration: 2 * time.Second} // until then it is starting
			},
			mcpv1alpha1.ReasonServerSilent, "has not answered",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			namespace := newNamespace(t)
			startOperator(t, namespace, nil)
			server := newServer(namespace, "broken")
			test.breakIt(&server.Spec)
			create(t, server)
			begin := time.Now()
			eventually(t, server, "Ready", "False "+test.reason, "Available", "False "+test.reason, "Stalled", "True "+test.reason, "Reconciling", "absent")
			t.Logf("named after %.1f s", time.Since(begin).Seconds())
			g.Expect(meta.FindStatusCondition(status(t, server).Conditions, mcpv1alpha1.ConditionStalled).Message).To(ContainSubstring(test.message))

			change(t, server, func(s *mcpv1alpha1.MCPServer) {
				s.Spec.Image, s.Spec.Command = "localhost:1/echo:1", []string{echoServer}
			})
			eventually(t, server, "Ready", "True Ready", "Stalled", "absent", "Reconciling", "absent")
		})
	}
}

// An image that cannot be pulled is named at once. The kubelet tries again, so users need not act
// for a minute.
func TestImageThatCannotBePulled(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	startOperator(t, namespace, nil)
	server := newServer(namespace, "broken")
	server.Spec.Image = "localhost:1/missing:1"
	create(t, server)
	eventually(t, server, "Ready", "False ImagePullFailed", "Available", "False ImagePullFailed", "Reconciling", "True ImagePullFailed", "Stalled", "absent")
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Image = "localhost:1/echo:1" })
	eventually(t, server, "Ready", "True Ready", "Stalled", "absent", "Reconciling", "absent")
	if warnings := eventReasons(t, namespace); warnings["Warning ImagePullFailed"] > 0 {
		t.Errorf("a failure that passed has an Event: %v", warnings)
	}
}

// A server that needs long to its first answer starts, for all tools that users have, and never fails.
func TestSlowServer(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	startOperator(t, namespace, nil)
	server := newServer(namespace, "slow")
	server.Spec.Command = []string{"sh", "-c", `sleep 12; exec "` + echoServer + `"`}
	create(t, server)
	NewWithT(t).Eventually(func() string {
		now := status(t, server)
		if stalled := saidBy(now, "Stalled"); stalled != "absent" {
			t.Fatal(describe(now))
		}
		return saidBy(now, "Ready")
	}).WithTimeout(2 * hang.Guard).WithPolling(50 * time.Millisecond).Should(Equal("True Ready"))
	for reason, count := range eventReasons(t, namespace) {
		if strings.HasPrefix(reason, "Warning") {
			t.Errorf("%d Events %s", count, reason)
		}
	}
}

// A rollout that does not come up does not touch the working pods, and the status reports it.
func TestBrokenRollout(t *testing.T) {
	t.Parallel()
	namespace, server := readyServer(t)
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Image = "localhost:1/missing:2" })
	eventually(t, server, "Ready", "True Ready", "Available", "True Available", "Stalled", "True ImagePullFailed", "Reconciling", "absent")
	// A recreated pod of the old template is the newest pod, but not of the newest template.
	old := readyInstances(t, server)
	for _, name := range old {
		if err := shared.client.Delete(t.Context(), &corev1.Pod{ObjectMeta: objectMeta(namespace, name)}); err != nil {
			t.Fatal(err)
		}
	}
	NewWithT(t).Eventually(func() []string { return readyInstances(t, server) }).WithTimeout(hang.Guard).Should(And(HaveLen(1), Not(Equal(old))))
	eventually(t, server, "Ready", "True Ready", "Available", "True Available", "Stalled", "True ImagePullFailed", "Reconciling", "absent")
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Image = "localhost:1/echo:3" })
	eventually(t, server, "Ready", "True Ready", "Stalled", "absent", "Reconciling", "absent")
}

// readyInstances are the pods that the status says are ready.
func readyInstances(t *testing.T, server *mcpv1alpha1.MCPServer) []string {
	t.Helper()
	var names []string
	for _, instance := range status(t, server).Instances {
		if instance.State == mcpv1alpha1.InstanceReady {
			names = append(names, instance.Pod)
		}
	}
	return names
}

// refusedVolumes are volumes that the schema of MCPServers allows, and that of pods does not.
var refusedVolumes = []corev1.Volume{{Name: "no_where", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}

// If the API server refuses the pod template, the status has its words.
func TestInvalidSpec(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	startOperator(t, namespace, nil)
	server := newServer(namespace, "echo")
	server.Spec.Volumes = refusedVolumes
	create(t, server)
	eventually(t, server, "Ready", "False InvalidSpec", "Accepted", "False InvalidSpec", "Stalled", "True InvalidSpec")
	if got := meta.FindStatusCondition(status(t, server).Conditions, mcpv1alpha1.ConditionAccepted).Message; !strings.Contains(got, "no_where") {
		t.Errorf("the message does not say what is wrong: %s", got)
	}
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Volumes = nil })
	eventually(t, server, "Ready", "True Ready")
}

// Servers that hang, flood or lie harm only themselves.
func TestHostileServers(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	operator := startOperator(t, namespace, nil)
	good := newServer(namespace, "good")
	create(t, good)
	for name, command := range map[string][]string{
		"silent": {"silent"}, "flood": {"flood"}, "broken-json": {"broken-json"}, "wrong-ids": {"wrong-ids"}, "pages": {"pages"},
		"many": {"tools", "100000"}, "large": {"description", "50000000"}, "flapping": {"flapping"},
	} {
		server := newServer(namespace, name)
		server.Spec.Command = append([]string{hostileServer}, command...)
		if name == "silent" {
			server.Spec.Session.StartTimeout = &metav1.Duration{Duration: 2 * time.Second} // until then it is starting
		}
		create(t, server)
	}
	eventually(t, good, "Ready", "True Ready")
	// Until the manager knows them, and has asked around many times more, the good one
	// stays good; and it is still looked after.
	want := map[string]string{
		"silent": "False ServerSilent", "many": "True Ready", "large": "True Ready", "pages": "True Ready", "flood": "True Ready",
	}
	enough := operator.asked(t) + 40
	g.Eventually(func() bool {
		if now := status(t, good); saidBy(now, "Ready") != "True Ready" {
			t.Fatal(describe(now))
		}
		known := map[string]string{}
		for name := range want {
			known[name] = says(t, newServer(namespace, name), "Ready")
		}
		return maps.Equal(known, want) && operator.asked(t) >= enough
	}).WithTimeout(hang.Guard).WithPolling(100*time.Millisecond).Should(BeTrue(), func() string { return everything(t, namespace) })
	change(t, good, func(s *mcpv1alpha1.MCPServer) { s.Spec.Command = []string{hostileServer, "tools", "5"} })
	g.Eventually(func() int32 { return status(t, good).Catalog.Counts.Tools }).WithTimeout(hang.Guard).Should(BeEquivalentTo(5))
	many := status(t, newServer(namespace, "many"))
	g.Expect(many.Catalog).To(Or(BeNil(), HaveField("Truncated", true)))
}

// eventReasons counts the Events of MCPServers by type and reason.
func eventReasons(t *testing.T, namespace string) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for _, object := range listed(t, namespace, &eventsv1.EventList{}) {
		if event := object.(*eventsv1.Event); event.Regarding.Kind == "MCPServer" {
			counts[event.Type+" "+event.Reason]++
		}
	}
	return counts
}

// Events tell of changes, once.
func TestEvents(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace, server := readyServer(t)
	reasons := func() map[string]int {
		counts := eventReasons(t, namespace)
		delete(counts, "Warning ServerSilent") // a server that starts slowly, because the machine is busy
		return counts
	}
	g.Eventually(reasons).WithTimeout(hang.Guard).Should(Equal(map[string]int{"Normal Ready": 1}))
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Command = []string{hostileServer, "tools", "3"} })
	g.Eventually(reasons).WithTimeout(hang.Guard).Should(HaveKeyWithValue("Normal CatalogChanged", 1))
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Replicas = new(int32(2)) })
	g.Eventually(func() int32 { return status(t, server).ReadyReplicas }).WithTimeout(hang.Guard).Should(BeEquivalentTo(2))
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Suspend = true })
	g.Eventually(reasons).WithTimeout(hang.Guard).Should(HaveKeyWithValue("Normal Suspended", 1))
	g.Expect(reasons()).NotTo(HaveKey(HavePrefix("Warning ")), "a second replica is nothing to warn of")
}

// While the API server refuses the template, nothing that runs is changed, and a user can
// still stop the server.
func TestSuspendOfAnInvalidServer(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace, server := readyServer(t)
	before := podNames(t, namespace)
	change(t, server, func(s *mcpv1alpha1.MCPServer) {
		s.Spec.Volumes = refusedVolumes
		s.Spec.Service.Port = new(int32(81))
	})
	eventually(t, server, "Accepted", "False InvalidSpec", "Stalled", "True InvalidSpec", "Available", "True Available")
	service := &corev1.Service{}
	g.Expect(shared.client.Get(t.Context(), client.ObjectKeyFromObject(server), service)).To(Succeed())
	g.Expect(service.Spec.Ports[0].Port).NotTo(BeEquivalentTo(81), "the Service of a refused spec was changed")
	g.Expect(podNames(t, namespace)).To(Equal(before))

	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Suspend = true })
	g.Eventually(podNames).WithArguments(t, namespace).WithTimeout(hang.Guard).Should(BeEmpty(), "the server does not stop")
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Suspend, s.Spec.Volumes = false, nil })
	eventually(t, server, "Ready", "True Ready", "Stalled", "absent")
	g.Expect(shared.client.Get(t.Context(), client.ObjectKeyFromObject(server), service)).To(Succeed())
	g.Expect(service.Spec.Ports[0].Port).To(BeEquivalentTo(81))
}

// deny has a policy for a namespace, until its binding is deleted or the test is over. The API server
// learns of it a moment later.
func deny(t *testing.T, namespace string, what admissionv1.Rule, unless admissionv1.Validation) *admissionv1.ValidatingAdmissionPolicyBinding {
	t.Helper()
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: new(admissionv1.Fail),
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update}, Rule: what,
				}}},
			},
			Validations: []admissionv1.Validation{unless},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: namespace, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
	create(t, policy, binding)
	t.Cleanup(func() {
		_ = shared.client.Delete(context.WithoutCancel(t.Context()), binding)
		_ = shared.client.Delete(context.WithoutCancel(t.Context()), policy)
	})
	return binding
}

// A server whose key for sessions cannot be stored still works, and the manager reports it once.
func TestSessionsSecretThatIsRefused(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	deny(t, namespace, admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"*"}, Resources: []string{"secrets"}},
		admissionv1.Validation{Expression: "!object.metadata.name.endsWith('-sessions')", Message: "no sessions here"})
	probe := &corev1.Secret{ObjectMeta: objectMeta(namespace, "probe-sessions")}
	g.Eventually(func() error {
		return shared.client.Create(t.Context(), probe.DeepCopy(), client.DryRunAll)
	}).WithTimeout(hang.Guard).Should(MatchError(ContainSubstring("no sessions here")))
	startOperator(t, namespace, nil)
	server := newServer(namespace, "echo")
	create(t, server)
	eventually(t, server, "Ready", "True Ready", "Stalled", "absent", "Reconciling", "absent")
	g.Eventually(eventReasons).WithArguments(t, namespace).WithTimeout(hang.Guard).Should(HaveKeyWithValue("Warning SessionsConflict", 1))
	g.Expect(status(t, server).Catalog.ConfigMapName).NotTo(BeEmpty())
}

// A server whose catalog cannot be stored serves, and its status says what is wrong.
func TestCatalogThatCannotBeStored(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	binding := deny(t, namespace, admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"*"}, Resources: []string{"configmaps"}},
		admissionv1.Validation{Expression: "!object.metadata.name.endsWith('-catalog')", Message: "no catalogs here"})
	probe := &corev1.ConfigMap{ObjectMeta: objectMeta(namespace, "probe-catalog")}
	g.Eventually(func() error {
		return shared.client.Create(t.Context(), probe.DeepCopy(), client.DryRunAll)
	}).WithTimeout(hang.Guard).Should(MatchError(ContainSubstring("no catalogs here")))

	startOperator(t, namespace, nil)
	server := newServer(namespace, "echo")
	create(t, server)
	eventually(t, server, "Ready", "True Ready", "Accepted", "False InvalidSpec", "Stalled", "True InvalidSpec")
	g.Expect(shared.client.Delete(t.Context(), binding)).To(Succeed())
	eventually(t, server, "Ready", "True Ready", "Accepted", "True Accepted", "Stalled", "absent", "Reconciling", "absent")
	g.Eventually(func() error {
		return shared.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "echo-catalog"}, &corev1.ConfigMap{})
	}).WithTimeout(hang.Guard).Should(Succeed())
}

// A policy may refuse what the spec leads to. No event says when the policy is gone, so the
// controller tries again.
func TestPolicyThatIsLifted(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	binding := deny(t, namespace, admissionv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"*"}, Resources: []string{"deployments"}},
		admissionv1.Validation{Expression: "false", Message: "no Deployments on Sundays"})
	// The API server learns of the policy a moment later.
	probe := &appsv1.Deployment{ObjectMeta: objectMeta(namespace, "probe"), Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "probe"}},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "probe"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "probe", Image: "probe"}}},
		},
	}}
	g.Eventually(func() error {
		return shared.client.Create(t.Context(), probe.DeepCopy(), client.DryRunAll)
	}).WithTimeout(hang.Guard).Should(MatchError(ContainSubstring("on Sundays")))

	startOperator(t, namespace, nil)
	server := newServer(namespace, "echo")
	create(t, server)
	eventually(t, server, "Accepted", "False InvalidSpec", "Stalled", "True InvalidSpec")
	g.Expect(meta.FindStatusCondition(status(t, server).Conditions, mcpv1alpha1.ConditionAccepted).Message).To(ContainSubstring("on Sundays"))
	g.Expect(shared.client.Delete(t.Context(), binding)).To(Succeed())
	eventually(t, server, "Ready", "True Ready", "Stalled", "absent")
}
