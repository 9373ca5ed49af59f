package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/keys"
	"github.com/slipway-mcp/slipway/internal/workload"
	"github.com/slipway-mcp/slipway/test/hang"
)

// The user asks for another key. The rotation comes to its end, although the manager is replaced after each step. Meanwhile no
// session is lost and no call fails at any pod, no pod is replaced, and the server is never anything but Ready.
func TestKeyRotation(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	manager := startOperator(t, namespace, nil)
	server := newServer(namespace, "echo")
	server.Spec.Replicas = new(int32(2))
	server.Spec.Session.IdleTimeout = &metav1.Duration{Duration: 20 * time.Second}
	create(t, server)
	eventually(t, server, "Ready", "True Ready", "Reconciling", "absent")
	g.Eventually(func() int32 { return status(t, server).ReadyReplicas }).WithTimeout(hang.Guard).Should(BeEquivalentTo(2))
	pods, ready := podUIDs(t, namespace), meta.FindStatusCondition(status(t, server).Conditions, "Ready").LastTransitionTime
	old := ringOf(t, namespace).Current

	first := startCaller(t, namespace)
	change(t, server, func(s *mcpv1alpha1.MCPServer) {
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, mcpv1alpha1.AnnotationRotateKey, "1")
	})
	replace := func() {
		manager.stop()
		manager = startOperator(t, namespace, nil)
	}
	g.Eventually(func() []adapterapi.Key { return ringOf(t, namespace).Accepted }).WithTimeout(hang.Guard).Should(HaveLen(1), "add")
	replace()
	g.Eventually(func() adapterapi.Key { return ringOf(t, namespace).Current }).WithTimeout(hang.Guard).ShouldNot(Equal(old), "switch")
	next := ringOf(t, namespace).Current
	replace()
	g.Expect(ringOf(t, namespace).Accepted).To(ConsistOf(old))
	second := startCaller(t, namespace) // with an id of either key
	var third *caller
	g.Eventually(func() bool {
		third = openSession(t, namespace)
		return third.isOf(next)
	}).WithTimeout(hang.Guard).WithPolling(time.Second).Should(BeTrue(), "pods use the next key")
	third.start()
	first.end()
	second.end()
	g.Eventually(func() []adapterapi.Key { return ringOf(t, namespace).Accepted }).WithTimeout(hang.Guard).Should(BeEmpty(), "drop")
	g.Expect(ringOf(t, namespace).Current).To(Equal(next))
	fourth := startCaller(t, namespace)
	// The status follows the number of sessions once a minute.
	g.Eventually(func() int64 { return int64(*status(t, server).Sessions) }).WithTimeout(hang.Guard).Should(BeEquivalentTo(2), "third and fourth")
	eventuallyRests(t, namespace, func() func() bool {
		enough := manager.asked(t) + 10
		return func() bool { return manager.asked(t) >= enough }
	})
	third.end()
	fourth.end()

	g.Expect(podUIDs(t, namespace)).To(Equal(pods))
	g.Expect(meta.FindStatusCondition(status(t, server).Conditions, "Ready").LastTransitionTime).To(Equal(ready))
	g.Expect(sessionsKey(t, namespace)).To(Equal(next.Sessions().Encode()))
}

// Time asks for another key, and for one rotation only. Nothing else of the server changes.
func TestKeyRotationByTime(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	startOperator(t, namespace, nil)
	server := newServer(namespace, "echo")
	server.Spec.Suspend = true
	server.Spec.Session.IdleTimeout = &metav1.Duration{Duration: time.Second}
	create(t, server)
	eventually(t, server, "Available", "False Suspended", "Reconciling", "absent")
	old, template := ringOf(t, namespace).Current, status(t, server).Template
	writeKeysSecret(t, namespace, workload.KeysChange{Ring: adapterapi.Keyring{Current: old}, Changed: time.Now().Add(-90 * time.Minute)})
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Session.KeyRotation = &metav1.Duration{Duration: time.Hour} })
	rotated := func(g Gomega) {
		ring := ringOf(t, namespace)
		g.Expect(ring.Current).NotTo(Equal(old))
		g.Expect(ring.Accepted).To(BeEmpty())
	}
	g.Eventually(rotated).WithTimeout(hang.Guard).Should(Succeed())
	next := ringOf(t, namespace).Current
	g.Eventually(sessionsKey).WithArguments(t, namespace).WithTimeout(hang.Guard).Should(Equal(next.Sessions().Encode()))
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Service.Port = new(int32(81)) })
	g.Eventually(func() string { return status(t, server).Address.URL }).WithTimeout(hang.Guard).Should(ContainSubstring(":81"))
	g.Expect(ringOf(t, namespace).Current).To(Equal(next))
	g.Expect(status(t, server).Template).To(Equal(template))
}

// Adapters take the access document that the next key signs, and it is what they enforce all the time.
func TestKeyRotationWithAuth(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	startOperator(t, namespace, nil)
	server := newServer(namespace, "echo")
	server.Spec.Auth, server.Spec.Access = &mcpv1alpha1.Auth{Kubernetes: &mcpv1alpha1.KubernetesAuth{}}, accessFor("system:authenticated")
	server.Spec.Session.IdleTimeout = &metav1.Duration{Duration: time.Second}
	create(t, server)
	eventually(t, server, "Accepted", "True Accepted", "Available", "True Available", "AccessEnforced", "True AccessEnforced")
	old, pods, document := ringOf(t, namespace).Current, podUIDs(t, namespace), status(t, server).Access.Digest
	change(t, server, func(s *mcpv1alpha1.MCPServer) {
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, mcpv1alpha1.AnnotationRotateKey, "1")
	})
	g.Eventually(func(g Gomega) {
		ring := ringOf(t, namespace)
		g.Expect(ring.Current).NotTo(Equal(old))
		g.Expect(ring.Accepted).To(BeEmpty())
	}).WithTimeout(hang.Guard).Should(Succeed())
	eventually(t, server, "Available", "True Available", "AccessEnforced", "True AccessEnforced")
	g.Expect(status(t, server).Access.Digest).NotTo(Equal(document))
	g.Expect(podUIDs(t, namespace)).To(Equal(pods))
	settings := &corev1.ConfigMap{}
	g.Expect(shared.client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "echo-adapter"}, settings)).To(Succeed())
	_, err := ringOf(t, namespace).OpenAccess([]byte(settings.Data[adapterapi.AccessFile]))
	g.Expect(err).NotTo(HaveOccurred())
}

// If a pod cannot confirm that it has read the next key, the manager does not use that key, and reports it.
func TestKeyRotationThatIsBlocked(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace := newNamespace(t)
	startOperator(t, namespace, nil)
	server := newServer(namespace, "echo")
	server.Spec.Image = "localhost:1/unready:1"
	create(t, server)
	g.Eventually(func() []mcpv1alpha1.Instance { return status(t, server).Instances }).WithTimeout(hang.Guard).Should(HaveLen(1))
	old, next := ringOf(t, namespace).Current, adapterapi.NewKey()
	writeKeysSecret(t, namespace, workload.KeysChange{
		Ring: adapterapi.Keyring{Current: old, Accepted: []adapterapi.Key{next}}, Next: next.ID(), Changed: time.Now().Add(-time.Hour),
	})
	g.Eventually(func() string { return noteOf(t, namespace, "KeyRotationBlocked") }).WithTimeout(hang.Guard).
		Should(And(ContainSubstring("echo-"), HaveSuffix("does not answer the manager")))
	g.Expect(ringOf(t, namespace)).To(Equal(adapterapi.Keyring{Current: old, Accepted: []adapterapi.Key{next}}))
	change(t, server, func(s *mcpv1alpha1.MCPServer) { s.Spec.Suspend = true })
	g.Eventually(func() adapterapi.Key { return ringOf(t, namespace).Current }).WithTimeout(hang.Guard).Should(Equal(next), "once the pod is gone")
}

// New keys are made for a Secret that was deleted, and the key for sessions follows by itself.
func TestSessionsSecretFollowsTheKey(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	namespace, _ := readyServer(t)
	g.Eventually(sessionsKey).WithArguments(t, namespace).WithTimeout(hang.Guard).Should(Equal(ringOf(t, namespace).Current.Sessions().Encode()))
	g.Expect(shared.client.Delete(t.Context(), keysSecret(t, namespace))).To(Succeed())
	g.Eventually(func(g Gomega) {
		secret := &corev1.Secret{}
		g.Expect(shared.client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "echo-keys"}, secret)).To(Succeed())
		ring, err := adapterapi.ParseKeyring(string(secret.Data[adapterapi.KeysCurrent]), string(secret.Data[adapterapi.KeysAccepted]))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(sessionsKey(t, namespace)).To(Equal(ring.Current.Sessions().Encode()))
	}).WithTimeout(hang.Guard).Should(Succeed())
}

func keysSecret(t *testing.T, namespace string) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{}
	if err := shared.client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "echo-keys"}, secret); err != nil {
		t.Fatal(err)
	}
	return secret
}

func ringOf(t *testing.T, namespace string) adapterapi.Keyring {
	t.Helper()
	secret := keysSecret(t, namespace)
	ring, err := adapterapi.ParseKeyring(string(secret.Data[adapterapi.KeysCurrent]), string(secret.Data[adapterapi.KeysAccepted]))
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

// writeKeysSecret writes a step as another manager would.
func writeKeysSecret(t *testing.T, namespace string, step workload.KeysChange) {
	t.Helper()
	secret := keysSecret(t, namespace)
	workload.ChangeKeys(secret, step)
	if err := shared.client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
}

// sessionsKey is what the Secret for kubectl mcp sessions holds; empty if there is none.
func sessionsKey(t *testing.T, namespace string) string {
	t.Helper()
	secret := &corev1.Secret{}
	err := shared.client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "echo-sessions"}, secret)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return string(secret.Data[adapterapi.SessionsKeyEntry])
}

func podUIDs(t *testing.T, namespace string) map[types.UID]string {
	t.Helper()
	pods := map[types.UID]string{}
	for _, pod := range listed(t, namespace, &corev1.PodList{}) {
		pods[pod.GetUID()] = pod.(*corev1.Pod).Status.PodIP
	}
	return pods
}

// noteOf is the note of the first Event with a reason; empty if there is none.
func noteOf(t *testing.T, namespace, reason string) string {
	t.Helper()
	for _, event := range listed(t, namespace, &eventsv1.EventList{}) {
		if event := event.(*eventsv1.Event); event.Reason == reason {
			return event.Note
		}
	}
	return ""
}

// caller is a client with a session, which calls without a pause, at each pod in turn.
type caller struct {
	t         *testing.T
	addresses []string
	id        string
	calls     int
	stop      context.CancelFunc
	stopped   chan error
}

func startCaller(t *testing.T, namespace string) *caller {
	t.Helper()
	c := openSession(t, namespace)
	c.start()
	return c
}

// openSession opens a session without a call. It ends when it was idle for too long.
func openSession(t *testing.T, namespace string) *caller {
	t.Helper()
	c := &caller{t: t, stopped: make(chan error, 1)}
	for _, address := range podUIDs(t, namespace) {
		c.addresses = append(c.addresses, address)
	}
	response, _, err := c.post(t.Context(), `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
	if err != nil {
		t.Fatal(err)
	}
	if c.id = response.Header.Get("Mcp-Session-Id"); c.id == "" {
		t.Fatalf("initialize: %s", response.Status)
	}
	return c
}

// isOf says whether the key has sealed the id of the session.
func (c *caller) isOf(key adapterapi.Key) bool {
	held, err := keys.New(adapterapi.Keyring{Current: key}, "")
	if err != nil {
		c.t.Fatal(err)
	}
	_, err = held.Parse(c.id)
	return err == nil
}

func (c *caller) start() {
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	c.t.Cleanup(stop)
	go func() {
		var err error
		for err == nil && ctx.Err() == nil {
			err = c.count(context.WithoutCancel(ctx))
		}
		c.stopped <- err
	}()
}

// end ends the session, after which no call may have failed.
func (c *caller) end() {
	c.t.Helper()
	c.stop()
	if err := <-c.stopped; err != nil {
		c.t.Error(err)
	}
	if c.calls < len(c.addresses) {
		c.t.Errorf("only %d calls were made", c.calls)
	}
	if response, _, err := c.do(c.t.Context(), http.MethodDelete, ""); err != nil || response.StatusCode != http.StatusNoContent {
		c.t.Errorf("end the session: %v, %v", response, err)
	}
}

var counted = regexp.MustCompile(`"text":"(\d+)"`)

// count has the session's own process count its calls.
func (c *caller) count(ctx context.Context) error {
	c.calls++
	response, body, err := c.post(ctx, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"count","arguments":{}}}`, c.calls))
	if err != nil {
		return err
	}
	if got := counted.FindStringSubmatch(body); response.StatusCode != http.StatusOK || got == nil || got[1] != strconv.Itoa(c.calls) {
		return fmt.Errorf("call %d: %s %s", c.calls, response.Status, body)
	}
	return nil
}

func (c *caller) post(ctx context.Context, body string) (*http.Response, string, error) {
	return c.do(ctx, http.MethodPost, body)
}

func (c *caller) do(ctx context.Context, method, body string) (*http.Response, string, error) {
	url := fmt.Sprintf("http://%s:%d/mcp", c.addresses[c.calls%len(c.addresses)], mcpv1alpha1.AdapterPort)
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	if c.id != "" {
		request.Header.Set("Mcp-Session-Id", c.id)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, "", err
	}
	text, err := io.ReadAll(response.Body)
	return response, string(text), errors.Join(err, response.Body.Close())
}
