//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/promise"
	"github.com/slipway-mcp/slipway/internal/workload"
)

var _ = Describe("At rest", Label("slow"), func() {
	It("nothing is written", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		server := start(ctx, stdioServer(ctx, namespace))
		replicas := stdioServer(ctx, namespace)
		replicas.Name, replicas.Spec.Replicas = "replicas", new(int32(3))
		start(ctx, replicas)
		broken := stdioServer(ctx, namespace, "/hostile", "silent")
		broken.Name = "broken"
		broken.Spec.Session.StartTimeout = &metav1.Duration{Duration: 2 * time.Second} // until then it is starting
		Expect(cluster.Create(ctx, broken)).To(Succeed())
		awaitStatus(ctx, broken, patience, HaveField("Status.Conditions", ContainElement(HaveField("Reason", mcpv1alpha1.ReasonServerSilent))))
		awaitReplicas(ctx, server, 1)
		awaitReplicas(ctx, replicas, 3)
		// Events are written after the status, and a busy machine is late with both: nothing rests before
		// several looks see the same.
		var before map[string]string
		same := 0
		Eventually(func() int {
			last := before
			if before = versions(ctx, namespace); maps.Equal(last, before) {
				same++
			} else {
				same = 0
			}
			return same
		}).WithContext(ctx).WithTimeout(promise.Rest).WithPolling(promise.Rest / 60).Should(BeNumerically(">=", 10))

		Consistently(func() map[string]string { return versions(ctx, namespace) }).WithContext(ctx).
			WithTimeout(promise.Rest).WithPolling(promise.Rest / 60).Should(Equal(before))
	})
})

// versions are the resource versions of everything that the manager writes, its Events
// included, and the annotations of pods. All else of pods, and their Events, are the kubelet's.
func versions(ctx context.Context, namespace string) map[string]string {
	GinkgoHelper()
	found := map[string]string{}
	lists := map[string]client.ObjectList{"MCPServer": &mcpv1alpha1.MCPServerList{}, "Event": &corev1.EventList{}}
	for _, owned := range workload.AllOwned() {
		if !owned.IsOptional {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(owned.Kind.GroupVersion().WithKind(owned.Kind.Kind + "List"))
			lists[owned.Kind.Kind] = list
		}
	}
	var pods corev1.PodList
	Expect(cluster.List(ctx, &pods, client.InNamespace(namespace))).To(Succeed())
	for i := range pods.Items {
		found["Pod "+pods.Items[i].Name] = fmt.Sprint(pods.Items[i].Annotations)
	}
	for kind, list := range lists {
		Expect(cluster.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
		Expect(meta.EachListItem(list, func(item runtime.Object) error {
			object, err := meta.Accessor(item)
			if event, ok := item.(*corev1.Event); ok && event.InvolvedObject.Kind != "MCPServer" {
				return nil
			}
			if err == nil {
				found[fmt.Sprintf("%s %s", kind, object.GetName())] = object.GetResourceVersion()
			}
			return err
		})).To(Succeed())
	}
	return found
}
