//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/test/swarm"
)

var _ = Describe("A replica that nothing reaches any more", Label("replicas"), func() {
	// To all others the pod is as if its node had lost power: nothing answers, and nothing refuses.
	It("takes its own sessions along, and no others", func(ctx SpecContext) {
		for range replacements() {
			loseOneOf(ctx, replicated(ctx, 3)) // one that is new: the kubelet may restart the adapter that it could not reach
		}
	})
})

// loseOneOf cuts one replica off, and expects that clients of the others miss nothing but its sessions.
func loseOneOf(ctx context.Context, server *mcpv1alpha1.MCPServer) {
	GinkgoHelper()
	ways := &doors{open: pods(ctx, server), connections: map[*door]bool{}}
	began := time.Now()
	s := swarmBy(ctx, server, 50, ways)
	awaitSessions(ctx, s, began)
	list := pods(ctx, server)
	lost, entries := podNamed(list, mostOwning(s))
	// Clients whose own connections lead to the pod that is lost wait for as long as they like. This is about the others.
	ways.only(entries)
	closed := time.Now()
	awaitSessions(ctx, s, closed)
	before := len(s.Report().Incidents)
	sessions := []*plainSession{beginIn(ctx, server, lost), beginIn(ctx, server, lost)}
	var streams []<-chan answer
	for i := range entries {
		streams = append(streams, beginIn(ctx, server, lost).stream(ctx, &entries[i]))
	}
	var cut time.Time
	cluster.cutOff(ctx, lost, everywhere, func() {
		cut = time.Now()
		By("waiting for the calls in flight to end")
		for _, stream := range streams {
			var end answer
			Eventually(stream).WithContext(ctx).WithTimeout(patience).Should(Receive(&end))
			Expect(end.err).To(HaveOccurred(), "a stream ends as if it were whole: %s", end)
			Expect(end.at).To(BeTemporally("<=", cut.Add(takesToNotice)), end.String())
		}
		By("asking until the sessions are over")
		var asking sync.WaitGroup
		for i, session := range sessions {
			asking.Go(func() {
				defer GinkgoRecover()
				session.expectToEnd(ctx, &entries[i])
			})
		}
		asking.Wait()
		awaitSessions(ctx, s, time.Now())
	})
	expectOfLoss(s.Report(), before, cut, lost.Name)
	report := s.Stop()
	Expect(report.Of(swarm.Wrong)).To(BeEmpty(), func() string { return describe(report) })
}

// mostOwning is the pod with the most sessions.
func mostOwning(s *swarm.Swarm) (name string) {
	GinkgoHelper()
	owners := s.Owners()
	for pod, sessions := range owners {
		if name == "" || sessions > owners[name] {
			name = pod
		}
	}
	Expect(name).NotTo(BeEmpty(), "no client has a session")
	return name
}

// stream begins a call whose answer is a stream, and returns how that ended.
func (s *plainSession) stream(ctx context.Context, entry *corev1.Pod) <-chan answer {
	GinkgoHelper()
	began := time.Now()
	response, err := send(ctx, byEntry(entry), s.url, toolCall("sleep", `{"ms":60000,"text":"asleep"}`), s.headers())
	Expect(err).NotTo(HaveOccurred())
	ended := make(chan answer, 1)
	go func() { ended <- answered(response, began) }()
	Expect(response.StatusCode).To(Equal(http.StatusOK), "the stream has begun")
	return ended
}

// expectToEnd asks in a session of a pod that is lost until the session is over.
func (s *plainSession) expectToEnd(ctx context.Context, entry *corev1.Pod) {
	GinkgoHelper()
	first := time.Now()
	var answers []string
	for {
		a := s.ping(ctx, entry)
		answers = append(answers, a.String())
		told := "at " + entry.Name + ":\n" + strings.Join(answers, "\n")
		Expect(a.at).To(BeTemporally("<=", first.Add(takesToBeOver+busyMachine)), told)
		if a.status == http.StatusNotFound {
			AddReportEntry("404 at "+entry.Name, fmt.Sprintf("after %s and %d other answers", a.at.Sub(first).Round(time.Millisecond), len(answers)-1))
			Expect(answers).NotTo(HaveLen(1), "the session was over at once: %s", told)
			return
		}
		Expect(a.status).To(Equal(http.StatusServiceUnavailable), told)
		Expect(a.closes).To(BeTrue(), told)
		Expect(a.took).To(BeNumerically("<=", takesToGiveUp), told)
	}
}

// expectOfLoss expects that clients have lost the sessions of one pod, and nothing else: calls in flight at once, and the
// sessions when they were over.
func expectOfLoss(report *swarm.Report, before int, cut time.Time, lost string) {
	GinkgoHelper()
	incidents := slices.DeleteFunc(slices.Clone(report.Incidents[before:]), func(i swarm.Incident) bool { return i.Kind == swarm.Unasked })
	unanswered := 0
	for _, incident := range incidents {
		Expect(incident.Kind).NotTo(Equal(swarm.Wrong), incident.String())
		Expect(incident.Owner).To(Equal(lost), "others are untouched: %s", incident)
		switch {
		case incident.Kind == swarm.Over:
			Expect(incident.At).To(BeTemporally("<=", cut.Add(takesToNotice+takesToBeOver+busyMachine)), incident.String())
		case strings.Contains(incident.Text, "502"):
			unanswered++
			Expect(incident.At).To(BeTemporally("<=", cut.Add(2*takesToNotice)), incident.String())
		}
	}
	Expect(unanswered).To(BeNumerically(">", 0), "no request was in flight: nothing is proven; %s", describe(report))
}

// doors are the pods that clients connect to, in turns, past the Service.
type doors struct {
	mu          sync.Mutex
	open        []corev1.Pod
	next        int
	connections map[*door]bool
}

// door is a connection of a client to a pod.
type door struct {
	net.Conn
	of  *doors
	pod string
}

func (d *door) Close() error {
	d.of.mu.Lock()
	delete(d.of.connections, d)
	d.of.mu.Unlock()
	return d.Conn.Close()
}

func (d *doors) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	for {
		d.mu.Lock()
		pod := d.open[d.next%len(d.open)]
		d.next++
		d.mu.Unlock()
		conn, err := gate.at(&pod).dial(ctx, network, "")
		if err != nil {
			return nil, err
		}
		d.mu.Lock()
		if slices.ContainsFunc(d.open, func(other corev1.Pod) bool { return other.UID == pod.UID }) {
			made := &door{conn, d, pod.Name}
			d.connections[made] = true
			d.mu.Unlock()
			return made, nil
		}
		d.mu.Unlock()
		_ = conn.Close()
	}
}

// only has clients connect to these pods, and closes all connections to others.
func (d *doors) only(list []corev1.Pod) {
	var closing []*door
	d.mu.Lock()
	d.open = list
	for made := range d.connections {
		if !slices.ContainsFunc(list, func(pod corev1.Pod) bool { return pod.Name == made.pod }) {
			closing = append(closing, made)
		}
	}
	d.mu.Unlock()
	for _, made := range closing {
		_ = made.Close()
	}
}

// swarmBy is swarmOf by doors, for clients without an SDK.
func swarmBy(ctx context.Context, server *mcpv1alpha1.MCPServer, clients int, ways *doors) *swarm.Swarm {
	GinkgoHelper()
	return startSwarm(ctx, &swarm.Options{
		URL: server.Status.Address.URL, Clients: rawClients(clients), Pause: 200 * time.Millisecond, Mix: busyMix, Dial: ways.dial,
	})
}
