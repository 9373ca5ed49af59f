package controller

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/test/hang"
)

// canary must never be seen outside its Secret.
const canary = "canary-4f1c9b-do-not-show"

func ticketsSecret(namespace string, data map[string]string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tickets"}, StringData: data}
}

func withToken(server *mcpv1alpha1.MCPServer) *mcpv1alpha1.MCPServer {
	server.Spec.Env = []corev1.EnvVar{{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: "tickets"}, Key: "token",
	}}}}
	return server
}

// templateOf is what the server's pods are made from.
func templateOf(t *testing.T, server *mcpv1alpha1.MCPServer) *corev1.PodTemplateSpec {
	t.Helper()
	deployment := &appsv1.Deployment{}
	if err := shared.client.Get(t.Context(), client.ObjectKeyFromObject(server), deployment); err != nil {
		t.Fatal(err)
	}
	return &deployment.Spec.Template
}

// A Secret, or a key in it, that is not there is named, and waited for.
func TestMissingReference(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	startOperator(t, namespace, nil)
	server := withToken(newServer(namespace, "echo"))
	create(t, server)
	eventually(t, server, "Ready", "False ReferenceNotFound", "Accepted", "False ReferenceNotFound", "Stalled", "True ReferenceNotFound")
	message := func() string {
		return meta.FindStatusCondition(status(t, server).Conditions, mcpv1alpha1.ConditionAccepted).Message
	}
	g.Expect(message()).To(Equal("Secret tickets, which env TOKEN refers to, does not exist in namespace " + namespace + `: create it with the key "token"`))
	g.Expect(listed(t, namespace, &appsv1.DeploymentList{})).To(BeEmpty())

	tickets := ticketsSecret(namespace, map[string]string{"other": canary})
	create(t, tickets)
	g.Eventually(message).WithTimeout(hang.Guard).Should(Equal(`Secret tickets has no key "token", which env TOKEN refers to: add it`))
	change(t, tickets, func(s *corev1.Secret) { s.StringData = map[string]string{"token": canary} })
	eventually(t, server, "Ready", "True Ready", "Stalled", "absent")
}

// A Secret that changes restarts the pods, unless the user does not want that; what
// the pods do not read does not.
func TestReferenceChanges(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	startOperator(t, namespace, nil)
	tickets := ticketsSecret(namespace, map[string]string{"token": "one", "other": "one"})
	create(t, tickets)
	following, ignoring := withToken(newServer(namespace, "following")), withToken(newServer(namespace, "ignoring"))
	ignoring.Spec.Rollout.OnReferenceChange = mcpv1alpha1.RolloutIgnore
	create(t, following, ignoring)
	eventually(t, following, "Ready", "True Ready")
	eventually(t, ignoring, "Ready", "True Ready")
	before, ignored := templateOf(t, following), templateOf(t, ignoring)

	change(t, tickets, func(s *corev1.Secret) { s.StringData = map[string]string{"token": "two"} })
	g.Eventually(func() *corev1.PodTemplateSpec { return templateOf(t, following) }).WithTimeout(hang.Guard).ShouldNot(Equal(before))
	eventually(t, following, "Ready", "True Ready", "Reconciling", "absent")
	after := templateOf(t, following)
	g.Expect(after.Annotations[mcpv1alpha1.AnnotationReferences]).NotTo(Equal(before.Annotations[mcpv1alpha1.AnnotationReferences]))
	for _, name := range []string{mcpv1alpha1.AnnotationReferences, mcpv1alpha1.AnnotationTemplate} {
		after.Annotations[name] = before.Annotations[name]
	}
	g.Expect(after).To(Equal(before), "something else has changed, too")

	change(t, tickets, func(s *corev1.Secret) { s.StringData = map[string]string{"other": "two"} })
	following2 := templateOf(t, following)
	// Another server's reconciliation of the same Secret shows that this one had its turn.
	marker := withToken(newServer(namespace, "marker"))
	create(t, marker)
	eventually(t, marker, "Ready", "True Ready")
	g.Expect(templateOf(t, following)).To(Equal(following2), "a key that no pod reads restarts pods")
	g.Expect(templateOf(t, ignoring)).To(Equal(ignored), "the user did not want that")
}

// No secret value ever appears in a log, an event, a condition or a ConfigMap.
func TestSecretsStaySecret(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	operator := startOperator(t, namespace, nil)
	create(t, ticketsSecret(namespace, map[string]string{"token": canary}))
	create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "registry"}, Type: corev1.SecretTypeDockerConfigJson,
		StringData: map[string]string{corev1.DockerConfigJsonKey: `{"auths":{"localhost:1":{"username":"u","password":"` + canary + `"}}}`},
	})
	server := withToken(newServer(namespace, "echo"))
	server.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	server.Spec.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "tickets"}}}}
	unresolved := server.DeepCopy()
	unresolved.Name, unresolved.Spec.Command = "unresolved", nil
	create(t, server, unresolved)
	eventually(t, server, "Ready", "True Ready")
	eventually(t, unresolved, "Reconciling", "True ImageUnresolved")
	key := &corev1.Secret{}
	g.Expect(shared.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "echo-keys"}, key)).To(Succeed())
	g.Eventually(owned).WithArguments(t, namespace).WithTimeout(hang.Guard).Should(ContainElement("ConfigMap echo-catalog"))

	operator.stop()
	seen := operator.log.String() + everything(t, namespace)
	for _, value := range []string{canary, string(key.Data["current"]), string(key.Data["references"])} {
		g.Expect(seen).NotTo(ContainSubstring(value))
	}
	g.Expect(seen).To(ContainSubstring("echo-catalog"), "the test looks at the wrong things")
}
