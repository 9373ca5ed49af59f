package controller

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/test/hang"
)

// denyReplicas has a policy for the Deployments of a namespace. It returns when the API server knows it.
func denyReplicas(t *testing.T, namespace string, unless admissionv1.Validation) *admissionv1.ValidatingAdmissionPolicyBinding {
	t.Helper()
	const message = "the policy says no"
	unless.Message = message
	// The probe is refused by any policy for Deployments.
	unless.Expression = "object.metadata.name != 'probe' && (" + unless.Expression + ")"
	binding := deny(t, namespace, admissionv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"*"}, Resources: []string{"deployments"}}, unless)
	labels := map[string]string{"app": "probe"}
	probe := &appsv1.Deployment{ObjectMeta: objectMeta(namespace, "probe"), Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "probe", Image: "probe"}}},
		},
	}}
	NewWithT(t).Eventually(func() error {
		return shared.client.Create(t.Context(), probe.DeepCopy(), client.DryRunAll)
	}).WithTimeout(hang.Guard).Should(MatchError(ContainSubstring(message)))
	return binding
}

// refusals are how the API server refuses what a policy denies, and what the status says then.
var refusals = map[metav1.StatusReason][]string{
	metav1.StatusReasonInvalid:   {"Accepted", "False InvalidSpec", "Stalled", "True InvalidSpec"},
	metav1.StatusReasonForbidden: {"Reconciling", "True Retrying"},
}

// eachRefusal runs a test with a policy that refuses in each of these ways.
func eachRefusal(t *testing.T, test func(t *testing.T, reason metav1.StatusReason, says []string)) {
	t.Helper()
	t.Parallel()
	for reason, says := range refusals {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			test(t, reason, says)
		})
	}
}

// A pod that stays gets new sessions: none is cordoned for a number that the API server refuses.
func TestRefusedScaleDownCordonsNoPod(t *testing.T) {
	eachRefusal(t, func(t *testing.T, reason metav1.StatusReason, says []string) {
		g := NewWithT(t)
		_, server, c, pods := crowdedServer(t, 1, 0, 2)
		binding := denyReplicas(t, server.Namespace, admissionv1.Validation{Expression: "object.spec.replicas >= 3", Reason: &reason})
		change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Replicas = new(int32(2)) })
		eventually(t, server, says...)
		g.Expect(c.everCordoned(pods[0].UID)).To(BeEmpty())

		g.Expect(shared.client.Delete(t.Context(), binding)).To(Succeed())
		g.Eventually(c.everCordoned).WithArguments(pods[0].UID).WithTimeout(hang.Guard).Should(Equal([]string{string(pods[1].UID)}))
		shared.kubelet.letGo(server.Namespace)
		g.Eventually(podNames).WithArguments(t, server.Namespace).WithTimeout(hang.Guard).Should(ConsistOf(pods[0].Name, pods[2].Name))
	})
}

// A policy may refuse only what is not a dry run, as one does that came a moment later. The cordons are lifted then, and
// do not come back while the manager retries.
func TestCordonsEndWithARefusedScaleDown(t *testing.T) {
	eachRefusal(t, func(t *testing.T, reason metav1.StatusReason, says []string) {
		g := NewWithT(t)
		manager, server, c, pods := crowdedServer(t, 1, 0, 2)
		binding := denyReplicas(t, server.Namespace, admissionv1.Validation{
			Expression: "request.dryRun || object.spec.replicas >= 3", Reason: &reason,
		})
		change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Replicas = new(int32(2)) })
		g.Eventually(c.everCordoned).WithArguments(pods[0].UID).WithTimeout(hang.Guard).Should(Equal([]string{string(pods[1].UID)}))
		eventually(t, server, says...)
		g.Eventually(c.cordoned).WithArguments(pods[0].UID).WithTimeout(hang.Guard).Should(BeEmpty())
		c.forgetCordons()
		if reason == metav1.StatusReasonForbidden { // the manager retries within seconds, and logs each attempt
			tries := func() int { return strings.Count(manager.log.String(), "Reconciler error") }
			g.Eventually(tries).WithTimeout(hang.Guard).Should(BeNumerically(">=", tries()+3))
			g.Expect(c.everCordoned(pods[0].UID)).To(BeEmpty())
		}

		g.Expect(shared.client.Delete(t.Context(), binding)).To(Succeed())
		shared.kubelet.letGo(server.Namespace)
		g.Eventually(podNames).WithArguments(t, server.Namespace).WithTimeout(hang.Guard).Should(ConsistOf(pods[0].Name, pods[2].Name))
	})
}

// A policy may be why the number is lowered. That it refuses the larger number, with another template, does not
// keep the manager from applying the smaller one.
func TestScaleDownToWhatAPolicyAllows(t *testing.T) {
	eachRefusal(t, func(t *testing.T, reason metav1.StatusReason, _ []string) {
		g := NewWithT(t)
		_, server, _, _ := crowdedServer(t, 1, 0, 2)
		denyReplicas(t, server.Namespace, admissionv1.Validation{Expression: "object.spec.replicas <= 2", Reason: &reason})
		change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Replicas, s.Spec.Args = new(int32(2)), []string{"--new"} })
		g.Eventually(func() string {
			deployment := &appsv1.Deployment{}
			if err := shared.client.Get(t.Context(), client.ObjectKeyFromObject(server), deployment); err != nil {
				return err.Error()
			}
			return fmt.Sprintln(*deployment.Spec.Replicas, deployment.Spec.Template.Spec.Containers[0])
		}).WithTimeout(hang.Guard).Should(MatchRegexp("^2 .*--new"), func() string { return describe(status(t, server)) })
	})
}

// A template that the API server does not take, after pods were cordoned for a smaller number, does not leave them
// cordoned.
func TestCordonsEndWithARefusedTemplate(t *testing.T) {
	eachRefusal(t, func(t *testing.T, reason metav1.StatusReason, says []string) {
		g := NewWithT(t)
		_, server, c, pods := crowdedServer(t, 1, 0, 2)
		denyReplicas(t, server.Namespace, admissionv1.Validation{
			Expression: "object.spec.replicas >= 3 || request.dryRun && !object.spec.template.spec.containers[0].image.endsWith(':2')", Reason: &reason,
		})
		change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Replicas = new(int32(2)) })
		g.Eventually(c.everCordoned).WithArguments(pods[0].UID).WithTimeout(hang.Guard).ShouldNot(BeEmpty())
		change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Image = strings.TrimSuffix(s.Spec.Image, ":1") + ":2" })
		eventually(t, server, says...)
		g.Eventually(c.cordoned).WithArguments(pods[0].UID).WithTimeout(hang.Guard).Should(BeEmpty())
	})
}
