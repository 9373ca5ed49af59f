//go:build e2e

package e2e

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-mcp/slipway/test/conformance"
)

var _ = Describe("The official conformance suite", Label("sessions"), func() {
	const (
		revision = "2025-11-25"
		required = 30
		takes    = 2 * time.Minute
		// onlyLocal is the scenario that refuses to run against anything but localhost.
		onlyLocal = "dns-rebinding-protection"
	)

	It("passes through a loopback forward to the Service", func(ctx SpecContext) {
		suite, err := conformance.Install(ctx, "../conformance")
		Expect(err).NotTo(HaveOccurred())
		server := stdioServer(ctx, newNamespace(ctx), "/everything-server")
		server.Spec.Session.MaxPerPod = new(int32(100))
		start(ctx, server)
		report, err := suite.Run(ctx, "http://"+gate.forward(ctx, hostOf(server))+"/mcp", revision)
		Expect(err).NotTo(HaveOccurred())
		AddReportEntry("scenarios that passed", len(report.Passed))
		Expect(report.Failed).To(BeEmpty(), report.Text)
		Expect(len(report.Passed)).To(BeNumerically(">=", required))
	})

	It("passes by the Service's name but for one scenario, which takes only localhost", func(ctx SpecContext) {
		server := stdioServer(ctx, newNamespace(ctx), "/everything-server")
		server.Spec.Session.MaxPerPod = new(int32(100))
		start(ctx, server)
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "suite", Namespace: server.Namespace},
			Spec: restricted(corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever,
				Containers: []corev1.Container{{
					Name: "suite", Image: images.node(ctx),
					Command:      append([]string{nodeProgram, suiteScript}, conformance.Arguments(server.Status.Address.URL, revision, "/results")...),
					VolumeMounts: []corev1.VolumeMount{{Name: "results", MountPath: "/results"}},
				}},
				Volumes: []corev1.Volume{{Name: "results", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
			}),
		}
		Expect(cluster.Create(ctx, pod)).To(Succeed())
		Eventually(func() corev1.PodPhase { return reload(ctx, pod).Status.Phase }).WithContext(ctx).WithTimeout(takes).
			Should(BeElementOf(corev1.PodSucceeded, corev1.PodFailed))
		report, err := conformance.Read(kubectl(ctx, pod.Namespace, "logs", pod.Name))
		Expect(err).NotTo(HaveOccurred())
		AddReportEntry("scenarios that passed", len(report.Passed))
		Expect(report.Failed).To(Equal([]string{onlyLocal}), report.Text)
		Expect(len(report.Passed)).To(BeNumerically(">=", required-1))
	})
})
