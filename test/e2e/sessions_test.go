//go:build e2e

package e2e

import (
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/promise"
)

const (
	adapterContainer = mcpv1alpha1.ContainerAdapter
	serverContainer  = mcpv1alpha1.ContainerServer
)

var _ = Describe("Sessions", Label("sessions"), func() {
	It("have a process each and share nothing", func(ctx SpecContext) {
		server := start(ctx, stdioServer(ctx, newNamespace(ctx)))
		one, two := open(ctx, server), open(ctx, server)
		Expect(one.call(ctx, "count", nil)).To(Equal("1"))
		Expect(one.call(ctx, "count", nil)).To(Equal("2"))
		Expect(two.call(ctx, "count", nil)).To(Equal("1"))
		Expect(one.call(ctx, "pid", nil)).NotTo(Equal(two.call(ctx, "pid", nil)))
		Expect(one.ID()).NotTo(Equal(two.ID()))
	})

	It("end alone and in the promised time when their process is killed in a call", func(ctx SpecContext) {
		server := start(ctx, stdioServer(ctx, newNamespace(ctx)))
		victim, bystander := open(ctx, server), open(ctx, server)
		Expect(bystander.call(ctx, "count", nil)).To(Equal("1"))
		pid := victim.call(ctx, "pid", nil)
		ended := victim.sleep(ctx, 10*time.Minute)
		killed := kubectl(ctx, server.Namespace, "exec", onlyPod(ctx, server).Name, "--container="+serverContainer, "--", "/echo", "--kill", pid)
		var end outcome
		Eventually(ended).WithContext(ctx).Should(Receive(&end))
		Expect(end.err).To(MatchError(ContainSubstring("killed")))
		nanoseconds, err := strconv.ParseInt(killed, 10, 64)
		Expect(err).NotTo(HaveOccurred())
		told := end.at.Sub(time.Unix(0, nanoseconds))
		AddReportEntry("told after", told.String())
		Expect(told).To(BeNumerically("<=", promise.Death))
		Expect(bystander.call(ctx, "count", nil)).To(Equal("2"))
		Expect(restarts(onlyPod(ctx, server))).To(HaveEach(BeZero()))
	})

	It("say why when their process exits", func(ctx SpecContext) {
		server := start(ctx, stdioServer(ctx, newNamespace(ctx)))
		_, err := open(ctx, server).tryCall(ctx, "exit", map[string]any{"n": 3})
		Expect(err).To(MatchError(And(ContainSubstring("exit code 3"), ContainSubstring("told to exit"))))
		Expect(open(ctx, server).call(ctx, "count", nil)).To(Equal("1"))
	})

	It("end when the adapter is killed, and others can be opened after it is back", func(ctx SpecContext) {
		server := start(ctx, stdioServer(ctx, newNamespace(ctx)))
		session := open(ctx, server)
		pod := onlyPod(ctx, server)
		ended := session.sleep(ctx, 10*time.Minute)
		cluster.kill(ctx, pod, adapterContainer)
		awaitRestart(ctx, pod, adapterContainer)
		awaitReady(ctx, server)
		Eventually(func() error { return tryOnce(ctx, server) }).WithContext(ctx).Should(Succeed())
		// The call's stream is gone, and the client asks for the rest where nobody knows it.
		var end outcome
		Eventually(ended).WithContext(ctx).Should(Receive(&end))
		Expect(end.err).To(HaveOccurred())
		_, err := session.tryCall(ctx, "count", nil)
		Expect(err).To(HaveOccurred())
		Expect(onlyPod(ctx, server).UID).To(Equal(pod.UID))
		Expect(restarts(reload(ctx, pod))).To(Equal(map[string]int32{adapterContainer: 1, serverContainer: 0}))
	})

	It("end at once when the server's container is killed, and others can be opened after it is back", func(ctx SpecContext) {
		server := start(ctx, stdioServer(ctx, newNamespace(ctx)))
		session := open(ctx, server)
		pod := onlyPod(ctx, server)
		ended := session.sleep(ctx, 10*time.Minute)
		cluster.kill(ctx, pod, serverContainer)
		var end outcome
		Eventually(ended).WithContext(ctx).Should(Receive(&end))
		Expect(end.err).To(MatchError(ContainSubstring("its container ended")))
		awaitRestart(ctx, pod, serverContainer)
		Eventually(func() error { return tryOnce(ctx, server) }).WithContext(ctx).Should(Succeed())
		Expect(restarts(reload(ctx, pod))).To(Equal(map[string]int32{adapterContainer: 0, serverContainer: 1}))
	})

	It("may finish their calls when the pod is deleted", func(ctx SpecContext) {
		server := stdioServer(ctx, newNamespace(ctx))
		server.Spec.Session.DrainTimeout = &metav1.Duration{Duration: 20 * time.Second}
		start(ctx, server)
		session := open(ctx, server)
		pod := onlyPod(ctx, server)
		ended := session.sleep(ctx, 5*time.Second)
		begin := time.Now()
		Expect(cluster.Delete(ctx, pod)).To(Succeed())
		var end outcome
		Eventually(ended).WithContext(ctx).Should(Receive(&end))
		Expect(end.err).NotTo(HaveOccurred())
		Expect(end.text).To(Equal("slept"))
		kubectl(ctx, pod.Namespace, "wait", "--for=delete", "pod/"+pod.Name, "--timeout=30s")
		Expect(time.Since(begin)).To(BeNumerically("<", 20*time.Second), "the drain ends with the last call")
		awaitReady(ctx, server)
		Eventually(func() error { return tryOnce(ctx, server) }).WithContext(ctx).Should(Succeed())
	})

	It("end when the pod is killed, and others can be opened in another pod", func(ctx SpecContext) {
		server := start(ctx, stdioServer(ctx, newNamespace(ctx)))
		session := open(ctx, server)
		pod := onlyPod(ctx, server)
		Expect(cluster.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
		Eventually(func() string { _, err := session.tryCall(ctx, "count", nil); return errorText(err) }).
			WithContext(ctx).Should(ContainSubstring("session"), "the client is told that there is no such session")
		awaitReady(ctx, server)
		Eventually(func() error { return tryOnce(ctx, server) }).WithContext(ctx).Should(Succeed())
		Expect(onlyPod(ctx, server).UID).NotTo(Equal(pod.UID))
	})

	It("are as many as the limit allows, while the server stays Ready", func(ctx SpecContext) {
		server := stdioServer(ctx, newNamespace(ctx))
		server.Spec.Session.MaxPerPod = new(int32(2))
		start(ctx, server)
		first, _ := open(ctx, server), open(ctx, server)
		_, err := tryOpen(ctx, server)
		Expect(err).To(MatchError(Or(ContainSubstring("503"), ContainSubstring("Service Unavailable"))))
		// The operator looks again, and has a slot of its own.
		kubectl(ctx, server.Namespace, "annotate", "mcpserver", server.Name, mcpv1alpha1.AnnotationRefresh+"=now")
		awaitStatus(ctx, server, 2*time.Minute, HaveField("Status.Sessions", HaveValue(BeEquivalentTo(2))))
		awaitCondition(ctx, server, mcpv1alpha1.ConditionVerified, metav1.ConditionTrue, mcpv1alpha1.ReasonVerified)
		awaitCondition(ctx, server, mcpv1alpha1.ConditionReady, metav1.ConditionTrue, mcpv1alpha1.ReasonReady)
		Expect(first.Close()).To(Succeed())
		Eventually(func() error { return tryOnce(ctx, server) }).WithContext(ctx).Should(Succeed())
	})

	// What the kernel kills depends on the node: docs/promises.md has both.
	It("end as promised when one runs out of memory", func(ctx SpecContext) {
		server := stdioServer(ctx, newNamespace(ctx))
		server.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")}
		start(ctx, server)
		glutton, bystander := open(ctx, server), open(ctx, server)
		Expect(bystander.call(ctx, "count", nil)).To(Equal("1"))
		pod := onlyPod(ctx, server)
		waiting := bystander.sleep(ctx, 10*time.Minute)
		_, err := glutton.tryCall(ctx, "allocate", map[string]any{"n": 256})
		if cgroupVersion(ctx, pod.Spec.NodeName) == "1" {
			AddReportEntry("cgroup v1: that session ends", errorText(err))
			Expect(err).To(MatchError(ContainSubstring("out of memory")))
			Consistently(waiting).WithContext(ctx).WithTimeout(time.Second).ShouldNot(Receive())
			Expect(bystander.call(ctx, "count", nil)).To(Equal("2"))
			Expect(restarts(reload(ctx, pod))).To(HaveEach(BeZero()))
		} else {
			AddReportEntry("cgroup v2: every session of the pod ends", errorText(err))
			Expect(err).To(HaveOccurred())
			var end outcome
			Eventually(waiting).WithContext(ctx).WithTimeout(time.Second).Should(Receive(&end))
			Expect(end.err).To(HaveOccurred())
			awaitRestart(ctx, pod, serverContainer)
		}
		Eventually(func() error { return tryOnce(ctx, server) }).WithContext(ctx).Should(Succeed())
	})
})

// tryOnce opens a session, uses it and closes it.
func tryOnce(ctx SpecContext, server *mcpv1alpha1.MCPServer) error {
	session, err := tryOpen(ctx, server)
	if err != nil {
		return err
	}
	if _, err := session.tryCall(ctx, "pid", nil); err != nil {
		return err
	}
	return session.Close()
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func awaitRestart(ctx SpecContext, pod *corev1.Pod, container string) {
	GinkgoHelper()
	Eventually(func() int32 { return restarts(reload(ctx, pod))[container] }).WithContext(ctx).Should(BeNumerically(">=", 1))
}

// cgroupVersion is what the node's kubelet says that it has.
func cgroupVersion(ctx SpecContext, node string) string {
	GinkgoHelper()
	metrics := kubectl(ctx, "default", "get", "--raw", "/api/v1/nodes/"+node+"/proxy/metrics")
	for line := range strings.Lines(metrics) {
		if value, found := strings.CutPrefix(line, "kubelet_cgroup_version "); found {
			return strings.TrimSpace(value)
		}
	}
	Fail("the kubelet of " + node + " does not say which version of cgroups it has")
	return ""
}
