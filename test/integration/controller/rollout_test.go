package controller

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/workload"
	"github.com/slipway-mcp/slipway/test/hang"
)

// Servers that refer to one Secret are rolled out one after another when it changes, also
// by a manager that takes over meanwhile. A change of a spec does not wait.
func TestRolloutsTakeTurns(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	one := func(o *operatorOptions) { o.maxRollouts = 1 }
	operator := startOperator(t, namespace, one)
	tickets := ticketsSecret(namespace, map[string]string{"token": "one"})
	create(t, tickets)
	// Processes that start while the file is there do not answer until it is gone.
	flag := t.TempDir() + "/broken"
	var servers []*mcpv1alpha1.MCPServer
	for _, name := range []string{"a", "b", "c"} {
		server := withToken(newServer(namespace, name))
		server.Spec.Command = []string{"sh", "-c", "while [ -e " + flag + " ]; do sleep 0.1; done; exec " + echoServer}
		servers = append(servers, server)
		create(t, server)
	}
	before := map[string]string{}
	references := func(server *mcpv1alpha1.MCPServer) string {
		return templateOf(t, server).Annotations[mcpv1alpha1.AnnotationReferences]
	}
	for _, server := range servers {
		eventually(t, server, "Ready", "True Ready", "Reconciling", "absent")
		before[server.Name] = references(server)
	}
	rolled := func() (names []string) {
		for _, server := range servers {
			if references(server) != before[server.Name] {
				names = append(names, server.Name)
			}
		}
		return names
	}
	queued := func() (waiting []*mcpv1alpha1.MCPServer) {
		return slices.DeleteFunc(slices.Clone(servers), func(s *mcpv1alpha1.MCPServer) bool { return says(t, s, "Reconciling") != "True RolloutQueued" })
	}

	breakFile(t, flag)
	change(t, tickets, func(s *corev1.Secret) { s.StringData = map[string]string{"token": "two"} })
	g.Eventually(queued).WithTimeout(hang.Guard).Should(HaveLen(2))
	g.Eventually(rolled).WithTimeout(hang.Guard).Should(HaveLen(1))
	first := rolled()
	for _, server := range queued() {
		eventually(t, server, "Ready", "True Ready", "Accepted", "True Accepted")
		message := meta.FindStatusCondition(status(t, server).Conditions, mcpv1alpha1.ConditionReconciling).Message
		g.Expect(message).To(Equal("waiting for its turn to be rolled out: 1 other server is being rolled out"))
	}

	operator.stop()
	startOperator(t, namespace, one)
	for _, server := range servers { // the new manager has to look at each of them
		change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Service.Port = new(int32(81)) })
		g.Eventually(func() int64 { return status(t, server).ObservedGeneration }).WithTimeout(hang.Guard).Should(BeEquivalentTo(2))
	}
	g.Expect(rolled()).To(Equal(first), "the new manager does not know of the rollout")
	waiting := queued()
	g.Expect(waiting).To(HaveLen(2))

	change(t, waiting[0], func(s *mcpv1alpha1.MCPServer) {
		s.Spec.Env = append(s.Spec.Env, corev1.EnvVar{Name: "MORE", Value: "1"})
	})
	g.Eventually(rolled).WithTimeout(hang.Guard).Should(ConsistOf(first[0], waiting[0].Name), "a change of the spec waits")
	g.Expect(says(t, waiting[1], "Reconciling")).To(Equal("True RolloutQueued"))

	mendFile(t, flag)
	g.Eventually(rolled).WithTimeout(hang.Guard).Should(ConsistOf("a", "b", "c"))
	for _, server := range servers {
		eventually(t, server, "Ready", "True Ready", "Reconciling", "absent")
	}
}

// A change of the strategy replaces no pod, and holds for the next rollout: with Recreate no pod
// starts while another one is there.
func TestRolloutStrategy(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	startOperator(t, namespace, nil)
	server := newServer(namespace, "echo")
	create(t, server)
	eventually(t, server, "Ready", "True Ready", "Reconciling", "absent")
	pod := status(t, server).Instances[0].Pod
	strategy := func() appsv1.DeploymentStrategy {
		deployment := &appsv1.Deployment{}
		g.Expect(shared.client.Get(t.Context(), client.ObjectKeyFromObject(server), deployment)).To(Succeed())
		return deployment.Spec.Strategy
	}
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Rollout.Strategy = mcpv1alpha1.RolloutRecreate })
	g.Eventually(strategy).WithTimeout(hang.Guard).Should(Equal(appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}))
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Rollout.Strategy = mcpv1alpha1.RolloutRollingUpdate })
	g.Eventually(strategy).WithTimeout(hang.Guard).Should(HaveField("RollingUpdate.MaxUnavailable", HaveValue(Equal(intstr.FromInt32(0)))))
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Rollout.Strategy = mcpv1alpha1.RolloutRecreate })
	g.Eventually(strategy).WithTimeout(hang.Guard).Should(HaveField("Type", appsv1.RecreateDeploymentStrategyType))
	eventually(t, server, "Ready", "True Ready", "Accepted", "True Accepted", "Reconciling", "absent")
	g.Expect(status(t, server).Instances).To(HaveExactElements(HaveField("Pod", pod)), "the strategy alone has replaced the pod")

	// From the change on, no pod of the new template may be created before the old one is gone.
	changed := time.Now()
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Args = append(s.Spec.Args, "--again") })
	var pods corev1.PodList
	g.Eventually(func(g Gomega) {
		g.Expect(shared.client.List(t.Context(), &pods, client.InNamespace(namespace))).To(Succeed())
		g.Expect(len(pods.Items)).To(BeNumerically("<=", 1), "two pods at a time, %s after the change", time.Since(changed))
		g.Expect(pods.Items).To(HaveExactElements(HaveField("Name", Not(Equal(pod)))))
	}).WithTimeout(hang.Guard).WithPolling(10 * time.Millisecond).Should(Succeed())
	eventually(t, server, "Ready", "True Ready", "Reconciling", "absent")
}

// The manager's configuration says when adapters are upgraded, unless the spec does; and
// that takes turns.
func TestDefaultUpgrade(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	adapter := func(version string) workload.Adapter {
		return workload.Adapter{Image: adapterImage, PullPolicy: corev1.PullIfNotPresent, Version: version}
	}
	old := startOperator(t, namespace, func(o *operatorOptions) { o.adapter = adapter("v0.1.0") })
	servers := map[mcpv1alpha1.RolloutPolicy]*mcpv1alpha1.MCPServer{}
	for _, upgrade := range []mcpv1alpha1.RolloutPolicy{"", mcpv1alpha1.RolloutIgnore, mcpv1alpha1.RolloutRestart} {
		server := newServer(namespace, "echo"+strings.ToLower(string(upgrade)))
		server.Spec.Rollout.OnOperatorUpgrade = upgrade
		servers[upgrade] = server
		create(t, server)
	}
	for _, server := range servers {
		eventually(t, server, "Ready", "True Ready", "Reconciling", "absent")
	}
	old.stop()
	startOperator(t, namespace, func(o *operatorOptions) {
		o.adapter, o.upgrade, o.maxRollouts = adapter("v0.4.0"), mcpv1alpha1.RolloutRestart, 1
	})
	for upgrade, server := range servers {
		want := mcpv1alpha1.TemplateStatus{AdapterVersion: "v0.4.0"}
		if upgrade == mcpv1alpha1.RolloutIgnore {
			want = mcpv1alpha1.TemplateStatus{AdapterVersion: "v0.1.0", Outdated: true}
		}
		g.Eventually(func() *mcpv1alpha1.TemplateStatus { return status(t, server).Template }).WithTimeout(hang.Guard).Should(Equal(&want))
		eventually(t, server, "Ready", "True Ready", "Reconciling", "absent")
	}
	g.Eventually(eventReasons).WithArguments(t, namespace).WithTimeout(hang.Guard).Should(HaveKeyWithValue("Warning AdapterOld", 1))
}

// After a downgrade, the format of the revisions alone restarts nothing, and what the user
// changes from then on is noticed.
func TestRevisionOfANewerOperator(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	newer := startOperator(t, namespace, nil)
	server := newServer(namespace, "echo")
	create(t, server)
	eventually(t, server, "Ready", "True Ready", "Reconciling", "absent")
	newer.stop()
	template, pods := templateOf(t, server), podNames(t, namespace)
	revision := listed(t, namespace, &appsv1.ControllerRevisionList{})[0].(*appsv1.ControllerRevision)
	var rendered map[string]any
	g.Expect(json.Unmarshal(revision.Data.Raw, &rendered)).To(Succeed())
	rendered["inputs"] = map[string]any{"format": 99, "content": map[string]any{"form": "of the future"}, "hash": "other"}
	content, err := json.Marshal(rendered)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(shared.client.Delete(t.Context(), revision)).To(Succeed())
	meta := objectMeta(namespace, "echo-newer")
	meta.Labels, meta.OwnerReferences = revision.Labels, revision.OwnerReferences
	create(t, &appsv1.ControllerRevision{ObjectMeta: meta, Data: runtime.RawExtension{Raw: content}, Revision: revision.Revision})

	// This one would render something else.
	startOperator(t, namespace, func(o *operatorOptions) {
		o.adapter.Image, o.adapter.Version = "registry.example/slipway/adapter:old", "v0.0.0-old"
	})
	g.Eventually(func() bool { return status(t, server).Template.Outdated }).WithTimeout(hang.Guard).Should(BeTrue())
	g.Expect(listed(t, namespace, &appsv1.ControllerRevisionList{})).To(HaveLen(2), "what the template is rendered from is noted")
	g.Expect(templateOf(t, server)).To(Equal(template))
	g.Expect(podNames(t, namespace)).To(Equal(pods))
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Args = []string{"--page", "3"} })
	g.Eventually(func() []string { return templateOf(t, server).Spec.Containers[0].Command }).WithTimeout(hang.Guard).Should(ContainElement("--page"))
}
