//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

var _ = Describe("Replicas", Label("sessions"), func() {
	It("serve each session at every replica, and end those of one that dies everywhere", func(ctx SpecContext) {
		server := stdioServer(ctx, newNamespace(ctx))
		server.Spec.Replicas = new(int32(3))
		start(ctx, server)
		replicas := pods(ctx, server)
		Expect(replicas).To(HaveLen(3))

		const sessions, calls = 30, 10
		opened := make([]*caller, sessions)
		for n := range opened {
			opened[n] = openAtTurns(ctx, server, replicas, n)
		}
		By("calling at another replica each time")
		var running sync.WaitGroup
		for n, session := range opened {
			running.Go(func() {
				defer GinkgoRecover()
				for call := range calls {
					Expect(session.call(ctx, "count", nil)).To(Equal(strconv.Itoa(call+1)), "session %d", n)
				}
			})
		}
		running.Wait()

		By("killing the adapter of one replica")
		victim := &replicas[0]
		lost, kept := ownedBy(ctx, server, opened, victim)
		Expect(lost).NotTo(BeEmpty())
		Expect(kept).NotTo(BeEmpty())
		cluster.kill(ctx, victim, adapterContainer)
		killed := time.Now()
		for _, session := range lost {
			for i := range replicas[1:] {
				Eventually(func() int { return statusAt(ctx, server, &replicas[1+i], session) }).WithContext(ctx).WithTimeout(30 * time.Second).
					WithPolling(50 * time.Millisecond).Should(Equal(http.StatusNotFound))
			}
		}
		AddReportEntry("404 at both other replicas", fmt.Sprintf("%d sessions within %s", len(lost), time.Since(killed)))
		Expect(time.Since(killed)).To(BeNumerically("<", 2*time.Second), "for all sessions together")

		By("calling at each replica, the one that has started again among them")
		Eventually(func() int { return statusAt(ctx, server, victim, kept[0]) }).WithContext(ctx).Should(Equal(http.StatusOK))
		for _, session := range kept {
			Expect(session.call(ctx, "count", nil)).To(Equal(strconv.Itoa(calls + 1)))
		}
	})
})

// turns connects each request to another replica than the one before.
type turns struct {
	replicas []corev1.Pod
	next     atomic.Uint32
}

func (t *turns) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	return gate.at(&t.replicas[int(t.next.Add(1))%len(t.replicas)]).dial(ctx, network, "")
}

func adapterOf(pod *corev1.Pod) string {
	return net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(mcpv1alpha1.AdapterPort))
}

// openAtTurns opens a session whose requests all go to another replica than the one before, beginning with the nth.
func openAtTurns(ctx context.Context, server *mcpv1alpha1.MCPServer, replicas []corev1.Pod, n int) *caller {
	GinkgoHelper()
	at := &turns{replicas: replicas}
	at.next.Store(uint32(n))
	transport := &http.Transport{DialContext: at.dial, DisableKeepAlives: true}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, nil).Connect(ctx,
		&mcp.StreamableClientTransport{Endpoint: server.Status.Address.URL, HTTPClient: &http.Client{Transport: transport}},
		&mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { _ = session.Close() }) // it may be gone, with its pod
	return &caller{ClientSession: session, progress: make(chan float64, 1000)}
}

// statusAt asks one replica for something in a session, and returns the status of its answer; 0 if there is none.
func statusAt(ctx context.Context, server *mcpv1alpha1.MCPServer, entry *corev1.Pod, session *caller) int {
	response, err := (&http.Client{Transport: &http.Transport{DialContext: gate.at(entry).dial, DisableKeepAlives: true}}).Do(pingIn(ctx, server, session))
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// ownedBy tells the sessions of one replica from all others.
func ownedBy(ctx context.Context, server *mcpv1alpha1.MCPServer, sessions []*caller, pod *corev1.Pod) (its, others []*caller) {
	GinkgoHelper()
	for _, session := range sessions {
		if owns(ctx, server, pod, session) {
			its = append(its, session)
		} else {
			others = append(others, session)
		}
	}
	return its, others
}

// owns reports whether a replica has a session itself: it answers, and passes nothing on for that.
func owns(ctx context.Context, server *mcpv1alpha1.MCPServer, pod *corev1.Pod, session *caller) bool {
	GinkgoHelper()
	before := forwardedBy(ctx, pod)
	Expect(statusAt(ctx, server, pod, session)).To(Equal(http.StatusOK))
	return forwardedBy(ctx, pod) == before
}

// forwardedBy returns how many requests a replica has passed on and got an answer for.
func forwardedBy(ctx context.Context, pod *corev1.Pod) string {
	GinkgoHelper()
	return metricOf(ctx, pod, `slipway_adapter_forwarded_total{outcome="answered"}`)
}

// metricOf returns the value of a metric of a replica's adapter.
func metricOf(ctx context.Context, pod *corev1.Pod, name string) string {
	GinkgoHelper()
	_, value, found := strings.Cut(metricsOf(ctx, pod), "\n"+name+" ")
	Expect(found).To(BeTrue(), "no metric %s", name)
	value, _, _ = strings.Cut(value, "\n")
	return value
}

// metricsOf returns all metrics of a replica's adapter.
func metricsOf(ctx context.Context, pod *corev1.Pod) string {
	GinkgoHelper()
	return kubectl(ctx, pod.Namespace, "get", "--raw", fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:%d/proxy/metrics", pod.Namespace, pod.Name, mcpv1alpha1.AdapterAdminPort))
}
