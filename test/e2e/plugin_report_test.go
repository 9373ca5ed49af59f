//go:build e2e

package e2e

import (
	"archive/zip"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

var _ = Describe("kubectl mcp report", Label("sessions"), func() {
	It("collects objects, logs and metrics, without values", func(ctx SpecContext) {
		const secret = "value-that-must-not-leak"
		namespace := newNamespace(ctx)
		server := stdioServer(ctx, namespace)
		server.Spec.Env = []corev1.EnvVar{{Name: "TOKEN", Value: secret}}
		server = start(ctx, server)
		Expect(kubectlMCP(ctx, namespace, "call", server.Name, "stderr", "text=the token is "+secret, "n=1")).To(HaveField("Code", 0))
		Eventually(func() string { return kubectlMCP(ctx, namespace, "logs", server.Name).Out }).WithContext(ctx).WithTimeout(patience).Should(ContainSubstring(secret))

		file := filepath.Join(GinkgoT().TempDir(), "report.zip")
		done := kubectlMCP(ctx, namespace, "report", server.Name, "--output-file", file)
		Expect(done).To(And(HaveField("Code", 0), HaveField("Out", HavePrefix("Wrote "+file+": 1 server, ")), HaveField("Out", HaveSuffix("Read it before you share it.\n"))))
		found := unzip(file)
		for name, content := range found {
			Expect(strings.Contains(content, secret)).To(BeFalse(), "%s has a value", name)
		}
		pod := "servers/" + namespace + "/" + server.Name + "/pods/" + onlyPod(ctx, server).Name
		Expect(found[pod+"/"+mcpv1alpha1.ContainerServer+".log"]).To(ContainSubstring(fmt.Sprintf("the token is <removed, %d bytes>", len(secret))), "missing is %s", found["missing.txt"])
		Expect(found).To(And(
			HaveKeyWithValue(pod+".yaml", ContainSubstring("name: TOKEN")),
			HaveKeyWithValue(pod+"/metrics.txt", ContainSubstring("# TYPE ")),
			HaveKeyWithValue("nodes.yaml", ContainSubstring("kubelet: v")),
			HaveKeyWithValue("versions.yaml", ContainSubstring("kubernetes: v")),
			HaveKey(MatchRegexp(`^manager/.*/pods/.*/manager\.log$`)),
			HaveKey(MatchRegexp(`^manager/.*/configmap-.*\.yaml$`))))
	})
})

// unzip reads a report, without the name of its directory.
func unzip(file string) map[string]string {
	GinkgoHelper()
	archive, err := zip.OpenReader(file)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = archive.Close() }()
	found := map[string]string{}
	for _, entry := range archive.File {
		opened, err := entry.Open()
		Expect(err).NotTo(HaveOccurred())
		content, err := io.ReadAll(opened)
		Expect(err).NotTo(HaveOccurred())
		_, name, _ := strings.Cut(entry.Name, "/")
		found[name] = string(content)
	}
	return found
}
