//go:build e2e

package e2e

import (
	"context"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	release    = "slipway"
	serverCRD  = "mcpservers.mcp.slipway.dev"
	chartDir   = "charts/slipway"
	helmConfig = "slipway-manager-config"
)

// helm does what a user would type, with the Helm that the chart is tested with.
func helm(ctx context.Context, args ...string) {
	GinkgoHelper()
	run(ctx, "dist/helm", append([]string{"--namespace", operatorNamespace}, args...)...)
}

// withImages are the flags for images of a version.
func withImages(version string, args ...string) []string {
	return append(args, "--set", "image.prefix="+prefix, "--set-string", "image.tag="+version, "--wait", "--timeout", takesToRollOut.String())
}

// uidOfCRD changes if the CRD, and every MCPServer with it, was deleted in between.
func uidOfCRD(ctx context.Context) string {
	GinkgoHelper()
	return run(ctx, "kubectl", "get", "crd", serverCRD, "-o", "jsonpath={.metadata.uid}")
}

// backToInstaller leaves the cluster as the suite found it.
func backToInstaller(ctx context.Context) {
	GinkgoHelper()
	helm(ctx, "uninstall", release, "--ignore-not-found", "--wait", "--timeout", takesToRollOut.String())
	run(ctx, "kubectl", "label", "crd", serverCRD, "app.kubernetes.io/managed-by-", "helm.sh/chart-")
	run(ctx, "kubectl", "annotate", "crd", serverCRD, "meta.helm.sh/release-name-", "meta.helm.sh/release-namespace-", "helm.sh/resource-policy-")
	installOperator(ctx, installer)
}

var _ = Describe("The Helm chart", Label("helm"), Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		run(ctx, "make", "helm")
		DeferCleanup(backToInstaller)
	})

	It("takes over install.yaml, upgrades and uninstalls without restarting a pod", func(ctx SpecContext) {
		server := start(ctx, stdioServer(ctx, newNamespace(ctx)))
		session := open(ctx, server)
		Expect(session.call(ctx, "count", nil)).To(Equal("1"))
		before, rendered, crd := identities(ctx, server), generation(ctx, server), uidOfCRD(ctx)
		untouched := func(count string) {
			GinkgoHelper()
			Expect(uidOfCRD(ctx)).To(Equal(crd), "the CRD was deleted")
			Expect(generation(ctx, server)).To(Equal(rendered), "a rollout")
			Expect(identities(ctx, server)).To(Equal(before))
			Expect(session.call(ctx, "count", nil)).To(Equal(count))
		}
		// works proves that a manager is at work: it makes another server ready.
		works := func(name string) {
			GinkgoHelper()
			other := stdioServer(ctx, server.Namespace)
			other.Name = name
			start(ctx, other)
		}

		By("installing over the objects of install.yaml, the CRD among them")
		helm(ctx, withImages(version, "install", release, chartDir, "--take-ownership", "--force-conflicts")...)
		awaitManagers(ctx, 1)
		Expect(run(ctx, "kubectl", "get", "crd", serverCRD, "-o", `jsonpath={.metadata.labels.app\.kubernetes\.io/managed-by}`)).To(Equal("Helm"))
		works("adopted")
		untouched("2")

		By("upgrading to another image with another configuration")
		next := version + "-helm"
		dir := GinkgoT().TempDir()
		run(ctx, "go", "run", "./hack/images", "--prefix", prefix, "--version", next, "--out", dir)
		run(ctx, cluster.tool, "load", filepath.Join(dir, "manager.tar"), filepath.Join(dir, "adapter.tar"))
		// kubectl, which applied install.yaml, still owns the fields that it set, together with Helm.
		helm(ctx, withImages(next, "upgrade", release, chartDir, "--set", "config.logging.level=1", "--force-conflicts")...)
		upgraded := awaitManagers(ctx, 1)[0]
		Expect(upgraded.Spec.Containers[0].Image).To(HaveSuffix(":" + next))
		var config corev1.ConfigMap
		Expect(cluster.Get(ctx, types.NamespacedName{Namespace: operatorNamespace, Name: helmConfig}, &config)).To(Succeed())
		Expect(config.Data["config.yaml"]).To(ContainSubstring("level: 1"))
		awaitStatus(ctx, server, patience, HaveField("Status.Template", HaveField("Outdated", true)))
		works("upgraded")
		untouched("3")

		By("changing nothing but the configuration")
		helm(ctx, withImages(next, "upgrade", release, chartDir, "--set", "config.logging.level=2")...)
		Expect(awaitManagers(ctx, 1)[0].UID).NotTo(Equal(upgraded.UID), "the manager runs with the former configuration")
		untouched("4")

		By("uninstalling")
		helm(ctx, "uninstall", release, "--wait", "--timeout", takesToRollOut.String())
		Eventually(managers).WithContext(ctx).WithTimeout(takesToRollOut).Should(BeEmpty())
		reload(ctx, server)
		untouched("5")

		By("installing again, which needs no right to take over: the CRD is the release's")
		helm(ctx, withImages(next, "install", release, chartDir)...)
		awaitManagers(ctx, 1)
		works("again")
		untouched("6")
	})
})
