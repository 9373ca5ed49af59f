package controller

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/workload"
	"github.com/slipway-mcp/slipway/test/hang"
)

// The manager restores the catalog ConfigMap when a user changes or deletes it.
func TestCatalogIsHealed(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace, _ := readyServer(t)
	catalog := &corev1.ConfigMap{}
	text := func() string {
		if err := shared.client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "echo-catalog"}, catalog); err != nil {
			return ""
		}
		return catalog.Data["catalog.json"]
	}
	g.Eventually(text).WithTimeout(hang.Guard).ShouldNot(BeEmpty())
	want := text()
	change(t, catalog, func(c *corev1.ConfigMap) { c.Data["catalog.json"] = "{}" })
	g.Eventually(text).WithTimeout(hang.Guard).Should(Equal(want))
	g.Expect(shared.client.Delete(t.Context(), catalog)).To(Succeed())
	g.Eventually(text).WithTimeout(hang.Guard).Should(Equal(want))
}

// The manager recreates deleted keys. Running pods read the new keys without a restart.
func TestDeletedKeysAreRecreated(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace, server := readyServer(t)
	before := podNames(t, namespace)
	key := &corev1.Secret{}
	name := types.NamespacedName{Namespace: namespace, Name: "echo-keys"}
	g.Expect(shared.client.Get(t.Context(), name, key)).To(Succeed())
	old := string(key.Data["current"])
	g.Expect(shared.client.Delete(t.Context(), key)).To(Succeed())
	g.Eventually(func() string {
		fresh := &corev1.Secret{}
		if err := shared.client.Get(t.Context(), name, fresh); err != nil {
			return old
		}
		return string(fresh.Data["current"])
	}).WithTimeout(hang.Guard).ShouldNot(Equal(old))
	// The adapter looks at its keys every ten seconds; until then it does not know the manager.
	eventually(t, server, "Ready", "True Ready", "Verified", "True Verified", "Reconciling", "absent")
	g.Expect(podNames(t, namespace)).To(Equal(before), "pods were restarted")
}

// A Service loses the session affinity that an earlier version of the manager has applied. One
// that a user has set stays.
func TestSessionAffinity(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	_, server := readyServer(t)
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Replicas = new(int32(2)) })
	service := &corev1.Service{ObjectMeta: objectMeta(server.Namespace, server.Name)}
	affinity := func() corev1.ServiceAffinity {
		if err := shared.client.Get(t.Context(), client.ObjectKeyFromObject(service), service); err != nil {
			return corev1.ServiceAffinity(err.Error())
		}
		return service.Spec.SessionAffinity
	}

	earlier := workload.Service(server)
	earlier.Spec.WithSessionAffinity(corev1.ServiceAffinityClientIP)
	g.Expect(shared.client.Apply(t.Context(), earlier, client.FieldOwner(mcpv1alpha1.ManagedBy), client.ForceOwnership)).To(Succeed())
	g.Expect(*earlier.Spec.SessionAffinity).To(Equal(corev1.ServiceAffinityClientIP), "the API server's answer")
	g.Eventually(affinity).WithTimeout(hang.Guard).Should(Equal(corev1.ServiceAffinityNone))

	g.Expect(shared.client.Patch(t.Context(), service, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"sessionAffinity":"ClientIP"}}`)),
		client.FieldOwner("kubectl-patch"))).To(Succeed())
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Service.Port = new(int32(8081)) })
	g.Eventually(func() int32 { // the Service is applied again
		_ = affinity()
		return service.Spec.Ports[0].Port
	}).WithTimeout(hang.Guard).Should(BeEquivalentTo(8081))
	g.Expect(affinity()).To(Equal(corev1.ServiceAffinityClientIP), "what a user has set was changed")
}

// A user who stops a server stops it, also when something else is wrong with it.
func TestSuspendOfARefusedServer(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	startOperator(t, namespace, nil)
	tickets := ticketsSecret(namespace, map[string]string{"token": "one"})
	create(t, tickets)
	server := withToken(newServer(namespace, "echo"))
	create(t, server)
	eventually(t, server, "Ready", "True Ready")
	g.Expect(shared.client.Delete(t.Context(), tickets)).To(Succeed())
	eventually(t, server, "Accepted", "False ReferenceNotFound", "Available", "True Available")
	g.Expect(podNames(t, namespace)).To(HaveLen(1), "a missing Secret ended what runs")
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Suspend = true })
	g.Eventually(podNames).WithArguments(t, namespace).WithTimeout(hang.Guard).Should(BeEmpty())
}

// A server may name the ServiceAccount that was made for it, and it stays.
func TestOwnServiceAccountByName(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace, server := readyServer(t)
	account := &corev1.ServiceAccount{}
	g.Expect(shared.client.Get(t.Context(), client.ObjectKeyFromObject(server), account)).To(Succeed())
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.ServiceAccountName = "echo" })
	g.Eventually(func() int64 { return status(t, server).ObservedGeneration }).WithTimeout(hang.Guard).Should(BeEquivalentTo(2))
	eventually(t, server, "Ready", "True Ready", "Reconciling", "absent")
	after := &corev1.ServiceAccount{}
	g.Expect(shared.client.Get(t.Context(), client.ObjectKeyFromObject(server), after)).To(Succeed())
	g.Expect(after.UID).To(Equal(account.UID))

	create(t, &corev1.ServiceAccount{ObjectMeta: objectMeta(namespace, "robot")})
	// Pods of the former template need their ServiceAccount for as long as they run, and these
	// run until the new ones are ready.
	command := server.Spec.Command
	change(t, server, func(s *mcpv1alpha1.MCPServer) {
		s.Spec.ServiceAccountName, s.Spec.Command = "robot", []string{"/no/such/program"}
	})
	g.Eventually(func() []string { return podNames(t, namespace) }).WithTimeout(hang.Guard).Should(HaveLen(2))
	g.Eventually(func() string { return templateOf(t, server).Spec.ServiceAccountName }).WithTimeout(hang.Guard).Should(Equal("robot"))
	eventually(t, server, "Available", "True Available", "Reconciling", "absent")
	g.Expect(owned(t, namespace)).To(ContainElement("ServiceAccount echo"))
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Command = command })
	g.Eventually(func() []string { return owned(t, namespace) }).WithTimeout(hang.Guard).ShouldNot(ContainElement("ServiceAccount echo"))
	if got := templateOf(t, server).Spec.ServiceAccountName; got != "robot" {
		t.Errorf("the account is gone while pods still run as %s", got)
	}
}

// `kubectl rollout restart` restarts the pods once, and is not undone.
func TestRolloutRestart(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace, server := readyServer(t)
	before := podNames(t, namespace)
	deployment := &appsv1.Deployment{}
	g.Expect(shared.client.Get(t.Context(), client.ObjectKeyFromObject(server), deployment)).To(Succeed())
	const annotation = "kubectl.kubernetes.io/restartedAt"
	patch := client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec":{"template":{"metadata":{"annotations":{"`+annotation+`":"now"}}}}}`))
	g.Expect(shared.client.Patch(t.Context(), deployment, patch, client.FieldOwner("kubectl-rollout"))).To(Succeed())
	g.Eventually(podNames).WithArguments(t, namespace).WithTimeout(hang.Guard).ShouldNot(ContainElements(before))
	eventually(t, server, "Ready", "True Ready", "Reconciling", "absent")
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Service.Port = new(int32(81)) }) // has everything applied again
	g.Eventually(func() string { return status(t, server).Address.URL }).WithTimeout(hang.Guard).Should(ContainSubstring(":81"))
	if got := templateOf(t, server).Annotations[annotation]; got != "now" {
		t.Errorf("the restart was undone: %q", got)
	}
}

// A server works without the Secret for kubectl mcp sessions.
func TestForeignSessionsSecret(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	startOperator(t, namespace, nil)
	foreign := &corev1.Secret{ObjectMeta: objectMeta(namespace, "echo-sessions"), StringData: map[string]string{"mine": "all mine"}}
	create(t, foreign)
	server := newServer(namespace, "echo")
	create(t, server)
	eventually(t, server, "Ready", "True Ready", "Accepted", "True Accepted", "Stalled", "absent", "Reconciling", "absent")
	g.Eventually(eventReasons).WithArguments(t, namespace).WithTimeout(hang.Guard).Should(HaveKeyWithValue("Warning SessionsConflict", 1))
	after := &corev1.Secret{}
	g.Expect(shared.client.Get(t.Context(), client.ObjectKeyFromObject(foreign), after)).To(Succeed())
	g.Expect(after.ResourceVersion).To(Equal(foreign.ResourceVersion))
}

// The Secret with the key for sessions holds what the server's key derives, and nothing else. The
// manager makes it again when it is deleted.
func TestSessionsSecret(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	startOperator(t, namespace, nil)
	server := newServer(namespace, "echo")
	create(t, server)
	eventually(t, server, "Ready", "True Ready")
	keys, secret := &corev1.Secret{}, &corev1.Secret{}
	name := client.ObjectKey{Namespace: namespace, Name: "echo-sessions"}
	g.Expect(shared.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "echo-keys"}, keys)).To(Succeed())
	g.Eventually(shared.client.Get).WithArguments(t.Context(), name, secret).WithTimeout(hang.Guard).Should(Succeed())
	key, err := adapterapi.ParseKey(string(keys.Data[adapterapi.KeysCurrent]))
	g.Expect(err).NotTo(HaveOccurred())
	want := map[string][]byte{adapterapi.SessionsKeyEntry: []byte(key.Sessions().Encode())}
	g.Expect(secret.Data).To(Equal(want))

	first := secret.UID
	g.Expect(shared.client.Delete(t.Context(), secret)).To(Succeed())
	g.Eventually(func(g Gomega) {
		g.Expect(shared.client.Get(t.Context(), name, secret)).To(Succeed())
		g.Expect(secret.UID).NotTo(Equal(first))
	}).WithTimeout(hang.Guard).Should(Succeed())
	g.Expect(secret.Data).To(Equal(want))
}

// The catalog is for information. A ConfigMap of that name which belongs to another owner is a
// warning, and no reason to call a server broken that works.
func TestForeignCatalog(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	startOperator(t, namespace, nil)
	foreign := &corev1.ConfigMap{ObjectMeta: objectMeta(namespace, "echo-catalog"), Data: map[string]string{"mine": "all mine"}}
	create(t, foreign)
	server := newServer(namespace, "echo")
	create(t, server)
	eventually(t, server, "Ready", "True Ready", "Accepted", "True Accepted", "Stalled", "absent", "Reconciling", "absent")
	g.Eventually(eventReasons).WithArguments(t, namespace).WithTimeout(hang.Guard).Should(HaveKeyWithValue("Warning CatalogConflict", 1))
	after := &corev1.ConfigMap{}
	g.Expect(shared.client.Get(t.Context(), client.ObjectKeyFromObject(foreign), after)).To(Succeed())
	g.Expect(after.ResourceVersion).To(Equal(foreign.ResourceVersion))
}
