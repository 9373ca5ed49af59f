//go:build e2e

package e2e

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/promise"
)

const (
	managerDeployment = "slipway-manager"
	managerContainer  = "manager"
	leaseName         = "slipway-manager.mcp.slipway.dev"
	takesToRollOut    = 2 * time.Minute
)

// installOperator installs it as its users do, and waits until it runs.
func installOperator(ctx context.Context, manifest string) {
	GinkgoHelper()
	run(ctx, "kubectl", "apply", "--server-side", "--force-conflicts", "-f", manifest)
	kubectl(ctx, operatorNamespace, "rollout", "status", "deployment/"+managerDeployment, "--timeout="+takesToRollOut.String())
	awaitManagers(ctx, 1)
}

// awaitManagers waits until just that many pods of the manager are there.
func awaitManagers(ctx context.Context, number int) []corev1.Pod {
	GinkgoHelper()
	var list []corev1.Pod
	Eventually(func() (_ []corev1.Pod, err error) {
		list, err = managers(ctx)
		return list, err
	}).WithContext(ctx).WithTimeout(takesToRollOut).Should(And(HaveLen(number), HaveEach(
		HaveField("Status.Conditions", ContainElement(And(HaveField("Type", corev1.PodReady), HaveField("Status", corev1.ConditionTrue)))))))
	return list
}

// managers are the pods of the manager, also those that are going away.
func managers(ctx context.Context) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := cluster.List(ctx, &list, client.InNamespace(operatorNamespace), client.MatchingLabels{"app.kubernetes.io/component": "manager"})
	return list.Items, err
}

var _ = Describe("The operator", Label("disruptive"), func() {
	It("can be restarted without a trace", func(ctx SpecContext) {
		server := start(ctx, stdioServer(ctx, newNamespace(ctx)))
		session := open(ctx, server)
		Expect(session.call(ctx, "count", nil)).To(Equal("1"))
		before := identities(ctx, server)
		kubectl(ctx, operatorNamespace, "rollout", "restart", "deployment/"+managerDeployment)
		kubectl(ctx, operatorNamespace, "rollout", "status", "deployment/"+managerDeployment, "--timeout="+takesToRollOut.String())
		awaitManagers(ctx, 1)
		// The new one is at work: what is changed now is followed.
		second := stdioServer(ctx, server.Namespace)
		second.Name = "second"
		start(ctx, second)
		Expect(identities(ctx, server)).To(Equal(before))
		Expect(session.call(ctx, "count", nil)).To(Equal("2"))
	})

	It("can be upgraded without restarting a pod, until it is told to", func(ctx SpecContext) {
		server := start(ctx, stdioServer(ctx, newNamespace(ctx)))
		session := open(ctx, server)
		Expect(session.call(ctx, "count", nil)).To(Equal("1"))
		before, adapter, rendered := identities(ctx, server), onlyPod(ctx, server).Spec.InitContainers[0].Image, generation(ctx, server)

		next := version + "-next"
		dir := GinkgoT().TempDir()
		run(ctx, "go", "run", "./hack/images", "--prefix", prefix, "--version", next, "--out", dir)
		run(ctx, cluster.tool, "load", filepath.Join(dir, "manager.tar"), filepath.Join(dir, "adapter.tar"))
		manifest := filepath.Join(dir, "install.yaml")
		run(ctx, "hack/installer.sh", prefix, next, manifest)
		DeferCleanup(func(ctx context.Context) { installOperator(ctx, installer) })
		installOperator(ctx, manifest)

		awaitStatus(ctx, server, patience, HaveField("Status.Template", HaveField("Outdated", true)))
		second := stdioServer(ctx, server.Namespace) // The new one has had its time: it has done something else since.
		second.Name = "second"
		start(ctx, second)
		Expect(generation(ctx, server)-rendered).To(BeEquivalentTo(promise.UpgradeRestarts), "rollouts")
		Expect(identities(ctx, server)).To(Equal(before))
		Expect(session.call(ctx, "count", nil)).To(Equal("2"))

		change(ctx, server, func(spec *mcpv1alpha1.MCPServerSpec) { spec.Rollout.OnOperatorUpgrade = mcpv1alpha1.RolloutRestart })
		awaitStatus(ctx, server, 2*patience, HaveField("Status.Template", And(HaveField("Outdated", false), HaveField("AdapterVersion", next))))
		Eventually(func(g Gomega) {
			list := allPods(ctx, server)
			g.Expect(list).To(HaveLen(1))
			g.Expect(list[0].Spec.InitContainers[0].Image).To(And(Not(Equal(adapter)), HaveSuffix(":"+next)))
		}).WithContext(ctx).WithTimeout(2 * patience).Should(Succeed())
		awaitReady(ctx, server)
		Expect(tryOnce(ctx, server)).To(Succeed())
	})

	DescribeTable("reconciles again in the promised time after its leader was killed", func(ctx SpecContext, replicas int) {
		DeferCleanup(func(ctx context.Context) {
			kubectl(ctx, operatorNamespace, "scale", "deployment/"+managerDeployment, "--replicas=1")
			awaitManagers(ctx, 1)
		})
		kubectl(ctx, operatorNamespace, "scale", "deployment/"+managerDeployment, "--replicas="+strconv.Itoa(replicas))
		managers := awaitManagers(ctx, replicas)
		server := start(ctx, stdioServer(ctx, newNamespace(ctx))) // so there is a leader, and it works
		before := identities(ctx, server)

		holder := leader(ctx)
		killed := time.Now()
		for i := range managers {
			if strings.HasPrefix(holder, managers[i].Name) {
				cluster.kill(ctx, &managers[i], managerContainer)
			}
		}
		second := stdioServer(ctx, server.Namespace)
		second.Name = "second"
		Expect(cluster.Create(ctx, second)).To(Succeed())
		awaitStatus(ctx, second, 2*promise.Failover, HaveField("Status.ObservedGeneration", Equal(second.Generation)))
		took := time.Since(killed)
		AddReportEntry("from the kill to a reconciled server", took.Round(time.Millisecond).String())
		Expect(leader(ctx)).NotTo(Equal(holder), "the leader was not killed")
		Expect(took).To(BeNumerically("<=", promise.Failover))
		awaitReady(ctx, second)
		Expect(identities(ctx, server)).To(Equal(before))
	},
		Entry("with one replica, as installed", 1),
		Entry("with a standby", 2),
	)
})

// generation counts the changes of what a server's pods are made from.
func generation(ctx context.Context, server *mcpv1alpha1.MCPServer) int64 {
	GinkgoHelper()
	var deployment appsv1.Deployment
	Expect(cluster.Get(ctx, client.ObjectKeyFromObject(server), &deployment)).To(Succeed())
	return deployment.Generation
}

// leader is the identity of the manager that has the lease.
func leader(ctx context.Context) string {
	GinkgoHelper()
	var lease coordinationv1.Lease
	Expect(cluster.Get(ctx, types.NamespacedName{Namespace: operatorNamespace, Name: leaseName}, &lease)).To(Succeed())
	Expect(lease.Spec.HolderIdentity).NotTo(BeNil())
	return *lease.Spec.HolderIdentity
}
