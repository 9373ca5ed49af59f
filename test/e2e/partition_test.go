//go:build e2e

package e2e

import (
	"context"
	"net/http"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-mcp/slipway/test/swarm"
)

const (
	// takesToNotice is how long a call in flight waits for a pod that is silent: 5 s.
	takesToNotice = 5*time.Second + busyMachine
	// takesToGiveUp is how long a request waits for a pod that cannot be reached: 5 s, and what is left of an attempt to
	// connect, which has 1.5 s.
	takesToGiveUp = 6500*time.Millisecond + busyMachine
	// takesToBeOver is how long sessions of a pod that two observers have lost are not answered 404: from the first request.
	takesToBeOver = 20 * time.Second
	// takesToRecover is how soon every client works again after a fault.
	takesToRecover = 5*time.Second + busyMachine

	// busyMachine is what a busy machine may add.
	busyMachine = 2 * time.Second
)

// everywhere is the address of all that is outside of a pod.
const everywhere = "everything"

// cutOff drops all packets between a pod and an address while something is done.
func (c *connection) cutOff(ctx context.Context, pod *corev1.Pod, address string, do func()) {
	GinkgoHelper()
	run(ctx, c.tool, "cut", serverContainerOf(pod), address)
	defer func() {
		ctx := context.WithoutCancel(ctx)
		run(ctx, c.tool, "heal", serverContainerOf(reload(ctx, pod)), address)
	}()
	do()
}

// serverContainerOf is the id of the server's container, which names the pod to the nodes.
func serverContainerOf(pod *corev1.Pod) string {
	GinkgoHelper()
	for _, status := range containerStatuses(pod) {
		if status.Name == serverContainer {
			return status.ContainerID
		}
	}
	Fail("pod " + pod.Name + " has no container " + serverContainer)
	return ""
}

var _ = Describe("Two replicas that cannot reach each other", Label("replicas"), func() {
	It("keep their sessions, which clients use through other replicas meanwhile", func(ctx SpecContext) {
		const clients = 50
		// For longer than a pod may be silent that nothing reaches.
		const cutFor = 25 * time.Second
		server := replicated(ctx, 3)
		began := time.Now()
		s := swarmOf(ctx, server, rawClients(clients), 200*time.Millisecond, busyMix)
		awaitSessions(ctx, s, began)
		list := pods(ctx, server)
		for round := range replacements() {
			one, other, third := &list[round%3], &list[(round+1)%3], &list[(round+2)%3]
			sessions := map[*corev1.Pod]*plainSession{one: beginIn(ctx, server, one), other: beginIn(ctx, server, other)}
			entries := map[*corev1.Pod]*corev1.Pod{one: other, other: one} // of the sessions, by their owners
			before := len(s.Report().Incidents)
			var cut time.Time
			cluster.cutOff(ctx, one, other.Status.PodIP, func() {
				cut = time.Now()
				By("asking at both, for the sessions of the other one")
				for time.Since(cut) < cutFor {
					var asking sync.WaitGroup
					for owner, session := range sessions {
						asking.Go(func() {
							defer GinkgoRecover()
							expectOutOfReach(session.ping(ctx, entries[owner]), cut)
							Expect(session.tick(ctx, byEntry(third))).To(Succeed(), "at a pod that reaches %s", owner.Name)
						})
					}
					asking.Wait()
				}
			})
			healed := time.Now()
			By("using all sessions again")
			for owner, session := range sessions {
				Eventually(func() int { return session.ping(ctx, entries[owner]).status }).WithContext(ctx).WithTimeout(takesToRecover).Should(Equal(http.StatusOK))
				Expect(session.tick(ctx, byEntry(entries[owner]))).To(Succeed())
			}
			Eventually(func() []int { return s.Idle(healed) }).WithContext(ctx).WithTimeout(takesToRecover).Should(BeEmpty(), func() string {
				return "clients without an answer; " + describe(s.Report())
			})
			for _, incident := range s.Report().Incidents[before:] {
				expectOfPartition(incident, cut, healed, one.Name, other.Name)
			}
		}
		report := s.Stop()
		Expect(report.Of(swarm.Wrong, swarm.Over)).To(BeEmpty(), func() string { return describe(report) })
		Expect(report.Sessions).To(Equal(clients), "no client has begun a second session")
	})
})

// expectOutOfReach expects the answer of an entry that does not reach the session's pod: 503, for the client to come back on
// another connection. At first, requests are under way on connections that the entry has; whether these were executed is not known.
func expectOutOfReach(a answer, cut time.Time) {
	GinkgoHelper()
	if a.status == http.StatusBadGateway {
		Expect(a.took).To(BeNumerically("<=", takesToNotice), a.String())
		Expect(a.at).To(BeTemporally("<", cut.Add(2*takesToNotice)), "long since no connection is left: %s", a)
		return
	}
	Expect(a.status).To(Equal(http.StatusServiceUnavailable), a.String())
	Expect(a.closes).To(BeTrue(), a.String())
	Expect(a.later).NotTo(BeEmpty(), a.String())
	Expect(a.took).To(BeNumerically("<=", takesToGiveUp), a.String())
}

// expectOfPartition expects that only requests of sessions of two pods were refused or lost, while they were apart.
func expectOfPartition(incident swarm.Incident, cut, healed time.Time, apart ...string) {
	GinkgoHelper()
	switch incident.Kind {
	case swarm.Refused, swarm.Broken:
		Expect(apart).To(ContainElement(incident.Owner), "others are untouched: %s", incident)
		Expect(incident.At).To(BeTemporally(">", cut), incident.String())
		Expect(incident.At.Add(-incident.Took)).To(BeTemporally("<", healed.Add(takesToRecover)), incident.String())
	case swarm.Unasked:
	case swarm.Wrong, swarm.Over:
		Fail(incident.String())
	}
}
