//go:build e2e

package e2e

import (
	"context"
	"errors"
	"net/http"
	"os/exec"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

const (
	takesToBeMissed = 2 * time.Minute // Kubernetes gives a node up after 40 to 50 seconds.
	takesToReturn   = 3 * time.Minute
)

var _ = Describe("On two nodes", Label("nodes"), func() {
	// home has the gate and, on kind, the control plane. Only the other node is ever lost.
	var home, away string

	BeforeEach(func(ctx SpecContext) { home, away = twoNodes(ctx) })

	DescribeTable("a server has a pod on each, and clients of both nodes reach both", func(ctx SpecContext, place func(*mcpv1alpha1.MCPServer)) {
		server := stdioServer(ctx, newNamespace(ctx))
		place(server)
		start(ctx, server)
		awaitReplicas(ctx, server, 2)
		placed := podsByNode(ctx, server)
		Expect(placed).To(And(HaveLen(2), HaveKey(home), HaveKey(away)))
		Expect(instanceNames(server)).To(ConsistOf(placed[home].Name, placed[away].Name))
		for _, node := range []string{home, away} {
			for _, guest := range guestsOn(ctx, node, server) {
				Expect(guest.session.call(ctx, "count", nil)).To(Equal("1"))
				Expect(guest.session.call(ctx, "count", nil)).To(Equal("2"))
			}
		}
	},
		Entry("by anti-affinity", apart),
		Entry("by a topology spread constraint, which counts the server's own pods", spread),
	)

	It("a drain takes one pod of two, and waits for another to be ready before it takes the last", func(ctx SpecContext) {
		server := stdioServer(ctx, newNamespace(ctx), "/everything-server")
		server.Name = "drained"
		apart(server) // so that no other node takes the pod that a drain evicts
		start(ctx, server)
		awaitReplicas(ctx, server, 2)
		placed := podsByNode(ctx, server)
		last := placed[home]
		clients := gate.askAllTheTime(ctx, server)
		staying := guestsOn(ctx, away, server)[last.Name].at(&last).askAllTheTime(ctx, server)
		unready := watchReady(ctx, server)

		By("draining the first node")
		Eventually(drain(ctx, away, podsOf(server))).WithContext(ctx).WithTimeout(takesToEnd).Should(gexec.Exit(0))
		awaitStatus(ctx, server, patience, And(
			HaveField("Status.ReadyReplicas", BeEquivalentTo(1)),
			HaveField("Status.Instances", ConsistOf(
				And(HaveField("Pod", last.Name), HaveField("State", mcpv1alpha1.InstanceReady), HaveField("Verification", mcpv1alpha1.InstanceVerified)),
				And(HaveField("Pod", Not(Equal(placed[away].Name))), HaveField("State", mcpv1alpha1.InstanceNotReady), HaveField("Message", ContainSubstring("no node takes it"))))),
			HaveField("Status.Conditions", ContainElements(
				And(HaveField("Type", mcpv1alpha1.ConditionReady), HaveField("Status", metav1.ConditionTrue)),
				And(HaveField("Type", mcpv1alpha1.ConditionReconciling), HaveField("Reason", mcpv1alpha1.ReasonPodsUnschedulable), HaveField("Message", ContainSubstring("1 of 2 pods ready"))))),
		))

		By("asking for the eviction of the last pod")
		err := cluster.PolicyV1().Evictions(server.Namespace).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: last.Name, Namespace: last.Namespace}})
		var refusal *apierrors.StatusError
		Expect(errors.As(err, &refusal)).To(BeTrue(), "the eviction was not refused: %v", err)
		Expect(refusal.ErrStatus.Code).To(BeEquivalentTo(http.StatusTooManyRequests))
		Expect(refusal.ErrStatus.Details.Causes).To(ContainElement(And(
			HaveField("Type", policyv1.DisruptionBudgetCause), HaveField("Message", ContainSubstring("The disruption budget "+server.Name+" needs 1 healthy pods and has 1")))))

		By("draining the second node")
		drained := drain(ctx, home, podsOf(server))
		Eventually(drained.Err).WithContext(ctx).WithTimeout(patience).Should(gbytes.Say("would violate the pod's disruption budget"))
		Expect(reload(ctx, &last).DeletionTimestamp).To(BeNil())
		staying.stop()
		Expect(staying.lost).To(BeEmpty())
		Expect(staying.sessions).To(Equal(1), "sessions of the pod that stays")
		Expect(staying.kept).To(BeNumerically(">", 20))

		By("giving the first node back, for which the drain waits")
		Expect(drained).NotTo(gexec.Exit())
		uncordon(ctx, away)
		Eventually(drained).WithContext(ctx).WithTimeout(takesToEnd).Should(gexec.Exit(0))
		Expect(podsByNode(ctx, server)).To(HaveKey(away))
		uncordon(ctx, home)
		awaitReplicas(ctx, server, 2)
		Expect(podsByNode(ctx, server)).To(And(HaveLen(2), HaveKey(home), HaveKey(away)))
		Expect(unready()).To(BeEmpty())
		clients.stop()
		Expect(clients.lost).To(BeEmpty())
		Expect(clients.single).To(BeNumerically(">", 20))
	})

	It("a drain moves a single pod, which has no budget, and calls in flight finish", func(ctx SpecContext) {
		server := stdioServer(ctx, newNamespace(ctx))
		server.Name = "single"
		server.Spec.Session.DrainTimeout = &metav1.Duration{Duration: 40 * time.Second} // longer than the call
		start(ctx, server)
		awaitReplicas(ctx, server, 1)
		pod := onlyPod(ctx, server)
		err := cluster.Get(ctx, client.ObjectKeyFromObject(server), &policyv1.PodDisruptionBudget{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "a budget of one pod keeps its node from being drained: %v", err)
		session := open(ctx, server)
		ended := session.sleep(ctx, 25*time.Second) // The other node may have to pull the image.

		begin := time.Now()
		drained := drain(ctx, pod.Spec.NodeName, podsOf(server))
		awaitStatus(ctx, server, patience, HaveField("Status.Instances", ContainElement(And(
			HaveField("Pod", pod.Name), HaveField("State", mcpv1alpha1.InstanceDraining)))))
		awaitReplacement(ctx, server, pod)
		AddReportEntry("from the drain to a server that is Ready on the other node", time.Since(begin).Round(time.Millisecond).String())
		Expect(onlyPod(ctx, server).Spec.NodeName).NotTo(Equal(pod.Spec.NodeName))
		Expect(ended).NotTo(Receive(), "the call had ended before its pod moved: nothing is proven")
		// For a moment, one connection may lead to the old pod and the next to the new one.
		Eventually(func() error { return tryOnce(ctx, server) }).WithContext(ctx).Should(Succeed())
		Eventually(drained).WithContext(ctx).WithTimeout(takesToEnd).Should(gexec.Exit(0))
		var end outcome
		Expect(ended).To(Receive(&end), "the drain ended before the call")
		Expect(end.err).NotTo(HaveOccurred())
		Expect(end.text).To(Equal("slept"))
		expectUnknown(ctx, server, session)
		awaitReplicas(ctx, server, 1)
	})

	It("a drain moves the manager, and servers serve on and are looked after again", func(ctx SpecContext) {
		server := stdioServer(ctx, newNamespace(ctx), "/everything-server")
		spread(server)
		start(ctx, server)
		awaitReplicas(ctx, server, 2)
		before := identities(ctx, server)
		clients := gate.askAllTheTime(ctx, server)
		manager := awaitManagers(ctx, 1)[0]

		begin := time.Now()
		drained := drain(ctx, manager.Spec.NodeName, "app.kubernetes.io/component=manager")
		Eventually(drained).WithContext(ctx).WithTimeout(takesToRollOut).Should(gexec.Exit(0))
		AddReportEntry("the drain took", time.Since(begin).Round(time.Millisecond).String())
		second := stdioServer(ctx, server.Namespace)
		second.Name = "second"
		Expect(cluster.Create(ctx, second)).To(Succeed())
		// No time is promised: the other node has to start a manager first.
		awaitStatus(ctx, second, takesToRollOut, HaveField("Status.ObservedGeneration", Equal(second.Generation)))
		AddReportEntry("from the drain to a reconciled server", time.Since(begin).Round(time.Millisecond).String())
		Expect(awaitManagers(ctx, 1)[0].Spec.NodeName).NotTo(Equal(manager.Spec.NodeName))
		awaitReady(ctx, second)
		Expect(identities(ctx, server)).To(Equal(before))
		clients.stop()
		Expect(clients.lost).To(BeEmpty())
		Expect(clients.sessions).To(Equal(1))
		Expect(clients.kept).To(BeNumerically(">", 20))

		uncordon(ctx, manager.Spec.NodeName)
		change(ctx, server, func(spec *mcpv1alpha1.MCPServerSpec) { spec.Env = []corev1.EnvVar{{Name: "EDITION", Value: "second"}} })
		awaitReplicas(ctx, server, 2)
		// Pods that have ended may still be there.
		Eventually(identities).WithContext(ctx).WithArguments(server).Should(And(HaveLen(2), Not(ContainElement(BeElementOf(before)))))
	})

	It("a server serves on without a node that is lost, and uses it again when it is back", Label("slow"), func(ctx SpecContext) {
		const tolerated = 15 // seconds
		leave(ctx, away)
		server := stdioServer(ctx, newNamespace(ctx), "/everything-server")
		spread(server)
		for _, taint := range []string{corev1.TaintNodeUnreachable, corev1.TaintNodeNotReady} {
			server.Spec.PodTemplate.Tolerations = append(server.Spec.PodTemplate.Tolerations, corev1.Toleration{
				Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(tolerated)),
			})
		}
		start(ctx, server)
		awaitReplicas(ctx, server, 2)
		placed := podsByNode(ctx, server)
		stays, lost := placed[home], placed[away]
		guests := guestsOn(ctx, home, server)
		session := guests[lost.Name].session
		clients := guests[stays.Name].at(&stays).askAllTheTime(ctx, server)
		unready := watchReady(ctx, server)

		loseNode(ctx, away)
		begin := time.Now()
		By("telling of the lost pod")
		awaitStatus(ctx, server, takesToBeMissed, And(
			HaveField("Status.ReadyReplicas", BeEquivalentTo(1)),
			HaveField("Status.Instances", ContainElements(
				And(HaveField("Pod", stays.Name), HaveField("State", mcpv1alpha1.InstanceReady), HaveField("Verification", mcpv1alpha1.InstanceVerified)),
				And(HaveField("Pod", lost.Name), HaveField("State", mcpv1alpha1.InstanceNotReady)))),
			HaveField("Status.Conditions", ContainElements(
				And(HaveField("Type", mcpv1alpha1.ConditionReady), HaveField("Status", metav1.ConditionTrue)),
				And(HaveField("Type", mcpv1alpha1.ConditionReconciling), HaveField("Message", ContainSubstring("1 of 2 pods ready"))))),
		))
		AddReportEntry("from the loss to a status that tells of it", time.Since(begin).Round(time.Millisecond).String())
		Eventually(endpoints).WithContext(ctx).WithArguments(server).Should(ConsistOf(stays.Name))
		Eventually(guests[lost.Name].statusOf).WithContext(ctx).WithArguments(server, session).Should(Equal(http.StatusNotFound))

		By("replacing the lost pod")
		awaitStatus(ctx, server, takesToBeMissed, And(
			HaveField("Status.ReadyReplicas", BeEquivalentTo(2)),
			HaveField("Status.Instances", And(HaveLen(3), ContainElement(And(HaveField("Pod", lost.Name), HaveField("State", mcpv1alpha1.InstanceDraining)))))))
		Expect(pods(ctx, server)).To(And(HaveLen(2), HaveEach(HaveField("Spec.NodeName", home))))
		clients.stop()
		Expect(clients.lost).To(BeEmpty())
		Expect(clients.sessions).To(Equal(1), "sessions of the pod that stays")
		Expect(clients.kept).To(BeNumerically(">", 20))
		Expect(unready()).To(BeEmpty())

		By("starting the node again")
		returnNode(ctx, away)
		Eventually(func() []corev1.Pod { return allPods(ctx, server) }).WithContext(ctx).WithTimeout(takesToEnd).
			ShouldNot(ContainElement(HaveField("UID", lost.UID)))
		awaitReplicas(ctx, server, 2)
		expectUnknown(ctx, server, session)
		Expect(cluster.Delete(ctx, &stays)).To(Succeed()) // Two pods on one node are too many, so the next one goes to the other.
		Eventually(func() map[string]corev1.Pod { return podsByNode(ctx, server) }).WithContext(ctx).WithTimeout(takesToEnd).
			Should(And(HaveLen(2), HaveKey(home), HaveKey(away)))
		awaitStatus(ctx, server, takesToEnd, WithTransform(instanceNames, ConsistOf(podNames(pods(ctx, server)))))
		awaitReplicas(ctx, server, 2)
		Expect(guestsOn(ctx, away, server)).To(HaveLen(2))
	})
})

// apart gives a server two pods that never share a node.
func apart(server *mcpv1alpha1.MCPServer) {
	server.Spec.Replicas = new(int32(2))
	server.Spec.PodTemplate = &mcpv1alpha1.PodTemplate{Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey:   corev1.LabelHostname,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{mcpv1alpha1.LabelServer: server.Name}},
		}},
	}}}
}

// spread gives a server two pods on different nodes, as long as two nodes take pods.
func spread(server *mcpv1alpha1.MCPServer) {
	server.Spec.Replicas = new(int32(2))
	server.Spec.PodTemplate = &mcpv1alpha1.PodTemplate{TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule, NodeTaintsPolicy: new(corev1.NodeInclusionPolicyHonor),
	}}}
}

// podsByNode are the server's pods that have a node and are not going away.
func podsByNode(ctx context.Context, server *mcpv1alpha1.MCPServer) map[string]corev1.Pod {
	GinkgoHelper()
	placed := map[string]corev1.Pod{}
	for _, pod := range pods(ctx, server) {
		if pod.Spec.NodeName != "" {
			placed[pod.Spec.NodeName] = pod
		}
	}
	return placed
}

// endpoints are the names of the pods that the Service leads to.
func endpoints(ctx context.Context, server *mcpv1alpha1.MCPServer) ([]string, error) {
	var list discoveryv1.EndpointSliceList
	err := cluster.List(ctx, &list, client.InNamespace(server.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: server.Name})
	var names []string
	for i := range list.Items {
		for _, endpoint := range list.Items[i].Endpoints {
			if *endpoint.Conditions.Ready {
				names = append(names, endpoint.TargetRef.Name)
			}
		}
	}
	return names, err
}

// podsOf selects the pods of a server whose name no other server has.
func podsOf(server *mcpv1alpha1.MCPServer) string { return mcpv1alpha1.LabelServer + "=" + server.Name }

// drain starts to drain a node as its owner would, of some pods or, without a selector, of all. The
// node takes pods again when the spec is over.
func drain(ctx context.Context, node, selector string) *gexec.Session {
	GinkgoHelper()
	DeferCleanup(uncordon, node)
	command := exec.CommandContext(ctx, "kubectl", "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force",
		"--timeout="+takesToEnd.String(), "--pod-selector="+selector)
	session, err := gexec.Start(command, GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	return session
}

func uncordon(ctx context.Context, node string) {
	GinkgoHelper()
	run(ctx, "kubectl", "uncordon", node)
}

// leave moves everything from a node that does not belong there: the manager and the cluster's DNS, too.
func leave(ctx context.Context, node string) {
	GinkgoHelper()
	Eventually(drain(ctx, node, "")).WithContext(ctx).WithTimeout(takesToEnd).Should(gexec.Exit(0))
	awaitManagers(ctx, 1)
	kubectl(ctx, "kube-system", "rollout", "status", "deployment/coredns", "--timeout="+takesToRollOut.String())
	uncordon(ctx, node)
}

// loseNode takes a node away without a word, as a power cut would. The node is back when the spec is over.
func loseNode(ctx context.Context, node string) {
	GinkgoHelper()
	DeferCleanup(returnNode, node)
	run(ctx, cluster.tool, "stop-node", node)
}

// returnNode starts a node, and waits until pods can run there.
func returnNode(ctx context.Context, node string) {
	GinkgoHelper()
	run(ctx, cluster.tool, "start-node", node)
	started := time.Now()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: node}}
	Eventually(func() bool { // The node may look Ready because Kubernetes has not missed it yet.
		return reload(ctx, lease).Spec.RenewTime.After(started)
	}).WithContext(ctx).WithTimeout(takesToReturn).Should(BeTrue(), "the kubelet of node %s is not back", node)
	Eventually(schedulableNodes).WithContext(ctx).WithTimeout(takesToReturn).Should(ContainElement(HaveField("Name", node)))
}
