//go:build e2e

package e2e

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/test/swarm"
)

var _ = Describe("Many clients of two nodes", Label("nodes"), func() {
	const clients = 50
	var home, away string

	BeforeEach(func(ctx SpecContext) { home, away = twoNodes(ctx) })

	It("lose nothing while a node drains that has some of their sessions", func(ctx SpecContext) {
		server := onBothNodes(ctx, "drained-swarm")
		server.Spec.Session.DrainTimeout = &metav1.Duration{Duration: 5 * time.Minute} // longer than the drain takes here
		start(ctx, server)
		awaitServing(ctx, server, 4)
		leaving := podNames(podsOn(ctx, server, away))
		Expect(leaving).To(HaveLen(2))
		awaitWayTo(ctx, server, leaving)
		began := time.Now()
		s := swarmOf(ctx, server, rawClients(clients), 500*time.Millisecond, busyMix)
		awaitSessions(ctx, s, began)
		Expect(sessionsOf(s, leaving)).To(BeNumerically(">", 0), "no client has its session there: nothing is proven")

		drained := drain(ctx, away, podsOf(server))
		Eventually(func() []corev1.Pod { return podsOn(ctx, server, away) }).WithContext(ctx).WithTimeout(takesToEnd).Should(BeEmpty())
		awaitServing(ctx, server, 4)
		Expect(podsOn(ctx, server, home)).To(HaveLen(4))
		awaitSessions(ctx, s, time.Now())
		Expect(sessionsOf(s, leaving)).To(BeNumerically(">", 0), "the sessions are where they were")
		Expect(drained).NotTo(gexec.Exit(), "the pods wait for their sessions")

		report := s.Stop() // which ends the sessions
		expectNothingLost(report)
		Expect(report.Sessions).To(Equal(clients), "no client has begun a second session")
		Eventually(drained).WithContext(ctx).WithTimeout(takesToEnd).Should(gexec.Exit(0))
	})

	It("lose the sessions of a node that is lost, and no others", Label("slow"), func(ctx SpecContext) {
		leave(ctx, away) // so that the manager sees the loss
		server := onBothNodes(ctx, "lost-swarm")
		start(ctx, server)
		awaitServing(ctx, server, 4)
		lost, entries := podsOn(ctx, server, away), podsOn(ctx, server, home)
		Expect(lost).To(HaveLen(2))
		Expect(entries).To(HaveLen(2))
		awaitWayTo(ctx, server, podNames(lost))
		began := time.Now()
		s := swarmOf(ctx, server, rawClients(clients), 500*time.Millisecond, busyMix)
		awaitSessions(ctx, s, began)
		Expect(sessionsOf(s, podNames(lost))).To(BeNumerically(">", 0), "no client has its session there: nothing is proven")
		sessions := []*plainSession{beginIn(ctx, server, &lost[0]), beginIn(ctx, server, &lost[1])}

		loseNode(ctx, away)
		lostAt := time.Now()
		By("asking at each pod that is left until the sessions are over")
		var asking sync.WaitGroup
		for _, session := range sessions {
			for i := range entries {
				asking.Go(func() {
					defer GinkgoRecover()
					session.expectToEnd(ctx, &entries[i])
				})
			}
		}
		asking.Wait()
		By("going on at the pods that are left")
		Eventually(endpoints).WithContext(ctx).WithArguments(server).WithTimeout(takesToBeMissed).Should(ConsistOf(podNames(entries)))
		missed := time.Now()
		AddReportEntry("from the loss until the Service is without the node", missed.Sub(lostAt).Round(time.Millisecond).String())
		// Requests that went there before may take as long as clients are patient, which is a minute.
		Eventually(func() []int { return s.Idle(missed) }).WithContext(ctx).WithTimeout(90*time.Second).Should(BeEmpty(), func() string {
			return "clients without an answer; " + describe(s.Report())
		})

		report := s.Stop()
		over := report.Of(swarm.Over)
		for _, incident := range over {
			Expect(podNames(lost)).To(ContainElement(incident.Owner), "only sessions of the node end: %s", incident)
		}
		Expect(report.Sessions).To(Equal(clients+len(over)), "clients whose session has ended have begun another, and no others: %s", describe(report))
		Expect(report.Of(swarm.Wrong)).To(BeEmpty())
		for _, incident := range report.Of(swarm.Refused, swarm.Broken) {
			until := missed.Add(takesToRecover)
			if strings.Contains(incident.Text, "gate cannot connect") {
				until = missed.Add(proxyForgets) // the connection did not get as far as a pod
			}
			Expect(incident.At.Add(-incident.Took)).To(BeTemporally("<", until), "the fault is over: %s", incident)
		}
	})
})

// proxyForgets is how long after the API server kube-proxy on a busy node still leads connections to pods of a lost node.
const proxyForgets = 30 * time.Second

// awaitWayTo waits until a session that begins through the Service has one of the pods. A pod is ready for the manager before
// the proxy of the node of the clients leads to it.
func awaitWayTo(ctx context.Context, server *mcpv1alpha1.MCPServer, names []string) {
	GinkgoHelper()
	Eventually(func() (string, error) {
		session, err := tryBegin(ctx, server, byService())
		if err != nil {
			return "", err
		}
		return session.owner, session.end(ctx, byService())
	}).WithContext(ctx).WithTimeout(time.Minute).Should(BeElementOf(names))
}

// twoNodes are the node with the gate, and on kind the control plane, and the other one. It skips the spec if there is none.
func twoNodes(ctx context.Context) (home, away string) {
	GinkgoHelper()
	for _, node := range schedulableNodes(ctx) {
		if node.Name != gate.node {
			away = node.Name
		}
	}
	if away == "" && os.Getenv("NODES") == "2" {
		Fail("NODES=2, but only one node takes pods: see kubectl get nodes")
	}
	if away == "" {
		Skip("this needs two nodes: NODES=2 CLUSTER=kind make cluster-up")
	}
	return gate.node, away
}

// onBothNodes is a server with two pods on each of two nodes, which is not created yet. Its name is its own, for drains.
func onBothNodes(ctx context.Context, name string) *mcpv1alpha1.MCPServer {
	GinkgoHelper()
	server := stdioServer(ctx, newNamespace(ctx))
	server.Name = name
	spread(server)
	server.Spec.Replicas = new(int32(4))
	server.Spec.Session.MaxPerPod = new(int32(sessionsPerPod))
	return server
}

// podsOn are the server's pods on a node that are not going away.
func podsOn(ctx context.Context, server *mcpv1alpha1.MCPServer, node string) []corev1.Pod {
	GinkgoHelper()
	return slices.DeleteFunc(pods(ctx, server), func(pod corev1.Pod) bool { return pod.Spec.NodeName != node })
}

// sessionsOf is how many clients have their sessions in some pods.
func sessionsOf(s *swarm.Swarm, names []string) (sum int) {
	for pod, sessions := range s.Owners() {
		if slices.Contains(names, pod) {
			sum += sessions
		}
	}
	return sum
}
