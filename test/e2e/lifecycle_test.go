//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/imagebuild"
)

var _ = Describe("A server that changes", Label("disruptive"), func() {
	It("is rolled out with another image without being unready, and calls in flight finish", func(ctx SpecContext) {
		second := images.variant(ctx, "second", func(spec *imagebuild.Spec) { spec.Labels = map[string]string{"edition": "second"} })
		server := start(ctx, stdioServer(ctx, newNamespace(ctx)))
		old := onlyPod(ctx, server)
		session := open(ctx, server)
		ended := session.sleep(ctx, 15*time.Second)
		unready := watchReady(ctx, server)

		change(ctx, server, func(spec *mcpv1alpha1.MCPServerSpec) { spec.Image = second })
		Eventually(func() *metav1.Time { return reload(ctx, old).DeletionTimestamp }).WithContext(ctx).ShouldNot(BeNil())
		Expect(ended).NotTo(Receive(), "the call had ended before the old pod was to go: nothing is proven")
		Eventually(func(g Gomega) {
			list := allPods(ctx, server)
			g.Expect(list).To(HaveLen(1))
			g.Expect(list[0].UID).NotTo(Equal(old.UID))
			g.Expect(list[0].Spec.Containers[0].Image).To(Equal(server.Spec.Image))
		}).WithContext(ctx).WithTimeout(2 * patience).Should(Succeed())
		awaitReady(ctx, server)
		var end outcome
		Expect(ended).To(Receive(&end), "the old pod went before the call's end")
		Expect(end.err).NotTo(HaveOccurred())
		Expect(unready()).To(BeEmpty())
		Expect(tryOnce(ctx, server)).To(Succeed())
	})

	It("is scaled by kubectl, to none and back", func(ctx SpecContext) {
		server := start(ctx, stdioServer(ctx, newNamespace(ctx)))
		for _, replicas := range []int{3, 1} {
			kubectl(ctx, server.Namespace, "scale", "mcpserver/"+server.Name, "--replicas="+strconv.Itoa(replicas))
			awaitReplicas(ctx, server, replicas)
		}
		kubectl(ctx, server.Namespace, "scale", "mcpserver/"+server.Name, "--replicas=0")
		reload(ctx, server)
		awaitCondition(ctx, server, mcpv1alpha1.ConditionAvailable, metav1.ConditionFalse, mcpv1alpha1.ReasonScaledToZero)
		Eventually(func() any { return allPods(ctx, server) }).WithContext(ctx).Should(BeEmpty())
		kubectl(ctx, server.Namespace, "scale", "mcpserver/"+server.Name, "--replicas=1")
		awaitReady(ctx, reload(ctx, server))
		Expect(tryOnce(ctx, server)).To(Succeed())
	})

	It("leaves its replicas to an autoscaler", func(ctx SpecContext) {
		server := start(ctx, stdioServer(ctx, newNamespace(ctx)))
		autoscaler := &autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Name: server.Name, Namespace: server.Namespace},
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{
					APIVersion: mcpv1alpha1.SchemeGroupVersion.String(), Kind: "MCPServer", Name: server.Name,
				},
				// Below the minimum it acts without any metric, of which this cluster may have none.
				MinReplicas: new(int32(2)), MaxReplicas: 3,
			},
		}
		Expect(cluster.Create(ctx, autoscaler)).To(Succeed())
		awaitReplicas(ctx, server, 2)
		// The manager applies the server's objects again, and the number stays.
		change(ctx, server, func(spec *mcpv1alpha1.MCPServerSpec) { spec.Env = []corev1.EnvVar{{Name: "EDITION", Value: "second"}} })
		awaitReplicas(ctx, server, 2)
		Expect(*server.Spec.Replicas).To(BeEquivalentTo(2))
	})

	It("stops when it is suspended, remembers what it offered, and comes back", func(ctx SpecContext) {
		server := start(ctx, stdioServer(ctx, newNamespace(ctx)))
		offered := toolNames(server)
		change(ctx, server, func(spec *mcpv1alpha1.MCPServerSpec) { spec.Suspend = true })
		awaitCondition(ctx, server, mcpv1alpha1.ConditionAvailable, metav1.ConditionFalse, mcpv1alpha1.ReasonSuspended)
		Eventually(func() any { return allPods(ctx, server) }).WithContext(ctx).Should(BeEmpty())
		awaitStatus(ctx, server, patience, HaveField("Status.Conditions", Not(ContainElement(HaveField("Type", BeElementOf(
			mcpv1alpha1.ConditionReconciling, mcpv1alpha1.ConditionStalled))))))
		Expect(toolNames(server)).To(Equal(offered))
		change(ctx, server, func(spec *mcpv1alpha1.MCPServerSpec) { spec.Suspend = false })
		awaitReady(ctx, server)
		Expect(tryOnce(ctx, server)).To(Succeed())
	})

	It("leaves nothing behind when it is deleted", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		// What every namespace gets by itself comes a moment after it.
		Eventually(func() []string { return contents(ctx, namespace) }).WithContext(ctx).
			Should(ConsistOf("configmap/kube-root-ca.crt", "serviceaccount/default"))
		server := stdioServer(ctx, namespace)
		server.Spec.Replicas = new(int32(2)) // so that there is a PodDisruptionBudget, too
		start(ctx, server)
		awaitReplicas(ctx, server, 2)
		Expect(len(contents(ctx, namespace))).To(BeNumerically(">", 10))
		kubectl(ctx, server.Namespace, "delete", "mcpserver", server.Name)
		Eventually(func() []string { return contents(ctx, namespace) }).WithContext(ctx).WithTimeout(2 * patience).
			Should(ConsistOf("configmap/kube-root-ca.crt", "serviceaccount/default"))
	})
})

// awaitReplicas waits until as many instances serve, each of them verified, and
// nothing is on its way any more.
func awaitReplicas(ctx context.Context, server *mcpv1alpha1.MCPServer, number int) {
	GinkgoHelper()
	awaitStatus(ctx, server, 2*patience, And(
		HaveField("Status.ReadyReplicas", BeEquivalentTo(number)),
		HaveField("Status.Replicas", BeEquivalentTo(number)),
		HaveField("Status.Instances", And(HaveLen(number), HaveEach(And(HaveField("State", mcpv1alpha1.InstanceReady), HaveField("Verification", mcpv1alpha1.InstanceVerified))))),
		HaveField("Status.Conditions", Not(ContainElement(HaveField("Type", mcpv1alpha1.ConditionReconciling)))),
		WithTransform(func(s *mcpv1alpha1.MCPServer) bool { return s.Status.ObservedGeneration == s.Generation }, BeTrue()),
	))
}

// watchReady follows the server from now on. What it returns stops that and lists the
// times at which the server was not Ready.
func watchReady(ctx context.Context, server *mcpv1alpha1.MCPServer) (stop func() []string) {
	GinkgoHelper()
	watch, err := cluster.Watch(ctx, &mcpv1alpha1.MCPServerList{}, client.InNamespace(server.Namespace))
	Expect(err).NotTo(HaveOccurred())
	seen := make(chan []string, 1)
	var stopping atomic.Bool // which breaks the watch, too
	go func() {
		var unready []string
		for event := range watch.ResultChan() {
			followed, ok := event.Object.(*mcpv1alpha1.MCPServer)
			if !ok && !stopping.Load() {
				unready = append(unready, fmt.Sprintf("the watch broke: %v", event.Object))
			} else if ok && !meta.IsStatusConditionTrue(followed.Status.Conditions, mcpv1alpha1.ConditionReady) {
				unready = append(unready, time.Now().Format(time.StampMilli)+"\n"+summary(followed))
			}
		}
		seen <- unready
	}()
	return func() []string {
		stopping.Store(true)
		watch.Stop()
		return <-seen
	}
}

// contents are the names of everything in a namespace, whatever its kind, but Events.
func contents(ctx context.Context, namespace string) []string {
	GinkgoHelper()
	var kinds []string
	for kind := range strings.FieldsSeq(kubectl(ctx, namespace, "api-resources", "--namespaced", "--verbs=list", "--output=name")) {
		if !strings.HasPrefix(kind, "events") {
			kinds = append(kinds, kind)
		}
	}
	return strings.Fields(kubectl(ctx, namespace, "get", strings.Join(kinds, ","), "--output=name"))
}
