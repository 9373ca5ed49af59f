//go:build e2e

package e2e

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

var _ = Describe("Newcomers", Label("replicas"), func() {
	// Of five pods three are full, one has four free slots, and one goes away: 76 of the 80 slots that stay are taken.
	It("find the free slots of a server at 95 %, whether they come to a full, a cordoned or a draining pod", func(ctx SpecContext) {
		const full, some, few, number = 20, 16, 2, 100
		server := stdioServer(ctx, newNamespace(ctx))
		server.Spec.Replicas = new(int32(5))
		server.Spec.Session = mcpv1alpha1.Session{MaxPerPod: new(int32(full)), DrainTimeout: &metav1.Duration{Duration: 5 * time.Minute}}
		start(ctx, server)
		awaitServing(ctx, server, 5)
		replicas := pods(ctx, server)
		roomy, leaving := &replicas[3], &replicas[4]
		taken := [5]int{full, full, full, some, few}
		residents := make([][]*plainSession, len(replicas))
		for i := range replicas {
			for range taken[i] {
				residents[i] = append(residents[i], beginIn(ctx, server, &replicas[i]))
			}
		}

		By("coming to a cordoned pod")
		// The manager chooses the pod with the fewest sessions, so it must know all session counts.
		awaitStatus(ctx, server, 3*time.Minute, HaveField("Status.Sessions", HaveValue(BeEquivalentTo(3*full+some+few))))
		change(ctx, server, func(spec *mcpv1alpha1.MCPServerSpec) { spec.Replicas = new(int32(4)) })
		Eventually(metricOf).WithContext(ctx).WithArguments(leaving, "slipway_adapter_cordoned").Should(Equal("1"), "the pod with the fewest sessions is cordoned")
		came := 0
		for reload(ctx, leaving).DeletionTimestamp == nil {
			newcomers(ctx, server, leaving, 4, 2)
			came += 4
		}
		AddReportEntry("came to the cordoned pod", strconv.Itoa(came))
		Expect(came).To(BeNumerically(">", 0), "the pod was deleted before anything was proven")

		By("coming to a draining pod")
		Eventually(metricOf).WithContext(ctx).WithArguments(leaving, "slipway_adapter_draining").Should(Equal("1"))
		Expect(newcomers(ctx, server, leaving, number, 2)).To(Equal(map[string]int{roomy.Name: number}), "only this pod has free slots")

		By("coming to full pods")
		for i := range 3 {
			Expect(newcomers(ctx, server, &replicas[i], number, 2)).To(Equal(map[string]int{roomy.Name: number}), "only this pod has free slots")
		}

		By("asking in all sessions that were there before")
		for i := range replicas {
			for _, session := range residents[i] {
				Expect(session.tick(ctx, byEntry(roomy))).To(Succeed(), "no session of %s has ended for another", replicas[i].Name)
			}
		}
	})
})

// newcomers open sessions at an entry, use them and end them, some at a time. It returns how many began at which pod.
func newcomers(ctx context.Context, server *mcpv1alpha1.MCPServer, entry *corev1.Pod, number, atOnce int) map[string]int {
	GinkgoHelper()
	var (
		running sync.WaitGroup
		next    atomic.Int64
		mu      sync.Mutex
	)
	owners := map[string]int{}
	for range atOnce {
		running.Go(func() {
			defer GinkgoRecover()
			for n := next.Add(1); n <= int64(number); n = next.Add(1) {
				session, err := tryBegin(ctx, server, byEntry(entry))
				Expect(err).NotTo(HaveOccurred(), "newcomer %d at %s", n, entry.Name)
				mu.Lock()
				owners[session.owner]++
				mu.Unlock()
				Expect(session.end(ctx, byEntry(entry))).To(Succeed(), "newcomer %d at %s", n, entry.Name)
			}
		})
	}
	running.Wait()
	return owners
}
