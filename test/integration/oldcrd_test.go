package integration

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-mcp/slipway/internal/promise"
	"github.com/slipway-mcp/slipway/test/hang"
)

// Helm does not upgrade CRDs, so a manager may run with a CRD that lacks a field of its
// status. The API server drops that field, and the status always looks changed. The manager
// must neither stop to look at the server nor look at it all the time.
func TestCRDIsOlderThanTheManager(t *testing.T) {
	g := NewWithT(t)
	useCRDWithout(t, "sessions")
	namespace := newNamespace(t, shared, "old-crd-")
	token := metricsToken(t, namespace)
	manager := startManager(t, managerAccount, "")
	g.Eventually(manager.ready).WithTimeout(hang.Guard).Should(Succeed())

	server := stdioServer(namespace, "echo")
	refersTo := []any{map[string]any{"secretRef": map[string]any{"name": "tickets"}}}
	g.Expect(unstructured.SetNestedSlice(server.Object, refersTo, "spec", "envFrom")).To(Succeed())
	create(t, shared, server)
	accepted := func(g Gomega) string {
		g.Expect(shared.client.Get(t.Context(), client.ObjectKeyFromObject(server), server)).To(Succeed())
		_, known, err := unstructured.NestedFieldNoCopy(server.Object, "status", "sessions")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(known).To(BeFalse(), "the CRD has the field")
		conditions, _, err := unstructured.NestedSlice(server.Object, "status", "conditions")
		g.Expect(err).NotTo(HaveOccurred())
		for _, condition := range conditions {
			if condition := condition.(map[string]any); condition["type"] == "Accepted" {
				return fmt.Sprint(condition["status"], " ", condition["reason"])
			}
		}
		return ""
	}
	g.Eventually(accepted).WithTimeout(hang.Guard).Should(Equal("False ReferenceNotFound"))
	unstored := func(g Gomega) int { return metric(g, manager, token, "slipway_status_writes_without_effect_total") }
	g.Eventually(unstored).WithTimeout(hang.Guard).Should(BeNumerically(">", 0), "no write was without effect: the test tests nothing")

	before := metric(g, manager, token, `controller_runtime_reconcile_total{controller="mcpserver",`)
	begin := time.Now()
	create(t, shared, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tickets"}})
	g.Eventually(accepted).WithTimeout(promise.Broken).Should(Equal("True Accepted"), "the manager does not look any more")
	g.Eventually(func() time.Duration { return time.Since(begin) }).WithTimeout(hang.Guard).Should(BeNumerically(">", 5*time.Second))
	after := metric(g, manager, token, `controller_runtime_reconcile_total{controller="mcpserver",`)
	g.Expect(after-before).To(BeNumerically("<", 20), "reconciliations in %s", time.Since(begin).Round(time.Second))
	g.Expect(strings.Count(manager.stderr.String(), "may be older than this manager")).To(Equal(1))
	manager.stop()
}

// useCRDWithout has the API server forget a field of the status until the test is over.
func useCRDWithout(t *testing.T, field string) {
	t.Helper()
	for _, o := range installer {
		if !isCRD(o) {
			continue
		}
		old := o.DeepCopy()
		versions, _, err := unstructured.NestedSlice(old.Object, "spec", "versions")
		if err != nil {
			t.Fatal(err)
		}
		for _, version := range versions {
			unstructured.RemoveNestedField(version.(map[string]any), "schema", "openAPIV3Schema", "properties", "status", "properties", field)
		}
		if err := unstructured.SetNestedSlice(old.Object, versions, "spec", "versions"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := shared.install(context.WithoutCancel(t.Context()), []object{o}); err != nil {
				t.Error(err)
			}
		})
		if err := shared.install(t.Context(), []object{old}); err != nil {
			t.Fatal(err)
		}
	}
}

// metric is the sum of a metric's values.
func metric(g Gomega, manager *running, token, prefix string) (sum int) {
	code, body, err := manager.scrape(token)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(code).To(Equal(http.StatusOK), body)
	for line := range strings.Lines(body) {
		var value float64
		if at := strings.LastIndexByte(line, ' '); strings.HasPrefix(line, prefix) && at > 0 {
			if _, err := fmt.Sscan(line[at:], &value); err == nil {
				sum += int(value)
			}
		}
	}
	return sum
}
