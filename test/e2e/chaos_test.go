//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/test/swarm"
)

const (
	chaosReplicas = 5
	chaosInterval = 20 * time.Second
	// aftermath is how long after the end of a harsh fault requests may still be lost or refused.
	aftermath = 15 * time.Second
	// chaosDrain is the drainTimeout of the server: the sessions of a pod that ends gracefully are over then.
	chaosDrain = 30 * time.Second
	// drainEnds is how long after its deletion a pod keeps all of its sessions: it begins to end idle ones 5 s before its
	// deadline. One second is for the clocks, because deletionTimestamp has no fractions.
	drainEnds = chaosDrain - 6*time.Second
	// learned is how long after they were killed clients may still learn that their sessions are over.
	learned = 45 * time.Second
)

// chaosFor is how long the chaos lasts: SLIPWAY_CHAOS, or ten minutes.
func chaosFor() time.Duration {
	text := os.Getenv("SLIPWAY_CHAOS")
	if text == "" {
		return 10 * time.Minute
	}
	length, err := time.ParseDuration(text)
	Expect(err).NotTo(HaveOccurred(), "SLIPWAY_CHAOS")
	return length
}

// fault is something that happens to a server.
type fault struct {
	name   string
	weight int
	do     func(context.Context, *chaos) (killed []corev1.Pod)
	// harsh says that clients may lose requests.
	harsh bool
	// blind says that the manager sees no pod go. Pods need longer to learn that one is gone.
	blind bool
}

// happened is a fault that was done. Until it ended, it was going on.
type happened struct {
	*fault
	began, ended time.Time
}

// chaos is a server to which faults happen while clients use it.
type chaos struct {
	server *mcpv1alpha1.MCPServer
	random *rand.Rand
	faults []happened
	killed map[string][]time.Time // when faults killed processes of a pod
	round  int

	mu      sync.Mutex
	deleted map[string]time.Time // when pods were deleted
}

var faults = []*fault{
	{name: "delete a pod", weight: 4, do: func(ctx context.Context, c *chaos) []corev1.Pod {
		victim := c.pick(ctx)
		Expect(cluster.Delete(ctx, &victim)).To(Succeed())
		return nil
	}},
	{name: "kill an adapter", weight: 2, harsh: true, do: func(ctx context.Context, c *chaos) []corev1.Pod { return c.kill(ctx, adapterContainer) }},
	{name: "kill a server", weight: 2, harsh: true, do: func(ctx context.Context, c *chaos) []corev1.Pod { return c.kill(ctx, serverContainer) }},
	{name: "delete a pod by force", weight: 1, harsh: true, do: func(ctx context.Context, c *chaos) []corev1.Pod {
		victim := c.pick(ctx)
		Expect(cluster.Delete(ctx, &victim, client.GracePeriodSeconds(0))).To(Succeed())
		return []corev1.Pod{victim}
	}},
	{name: "roll out", weight: 2, do: func(ctx context.Context, c *chaos) []corev1.Pod {
		c.round++
		change(ctx, c.server, func(spec *mcpv1alpha1.MCPServerSpec) {
			spec.Env = []corev1.EnvVar{{Name: "ROUND", Value: strconv.Itoa(c.round)}}
		})
		return nil
	}},
	{name: "scale", weight: 3, do: func(ctx context.Context, c *chaos) []corev1.Pod {
		replicas := int32(chaosReplicas + c.random.IntN(7) - 3)
		change(ctx, c.server, func(spec *mcpv1alpha1.MCPServerSpec) { spec.Replicas = &replicas })
		return nil
	}},
	{name: "rotate the keys", weight: 1, do: func(ctx context.Context, c *chaos) []corev1.Pod {
		c.round++
		kubectl(ctx, c.server.Namespace, "annotate", "mcpserver", c.server.Name, "mcp.slipway.dev/rotate-key="+strconv.Itoa(c.round), "--overwrite")
		return nil
	}},
	{name: "cut two replicas from each other for 10 s", weight: 2, harsh: true, do: func(ctx context.Context, c *chaos) []corev1.Pod {
		list := pods(ctx, c.server)
		c.random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		cluster.cutOff(ctx, &list[0], list[1].Status.PodIP, func() { letPass(ctx, 10*time.Second) })
		return nil
	}},
	{name: "stop the manager for 30 s", weight: 1, blind: true, do: func(ctx context.Context, _ *chaos) []corev1.Pod {
		scaleManager(ctx, 0)
		letPass(ctx, 30*time.Second)
		scaleManager(ctx, 1)
		return nil
	}},
	{name: "freeze the API server for 5 s", weight: 1, blind: true, do: func(ctx context.Context, _ *chaos) []corev1.Pod {
		cluster.withoutAPIServer(ctx, func() { letPass(ctx, 5*time.Second) })
		return nil
	}},
}

var _ = Describe("Chaos", Label("chaos"), func() {
	It("mixes no sessions up, executes no call twice, and is over five seconds after its last fault", func(ctx SpecContext) {
		server := stdioServer(ctx, newNamespace(ctx))
		server.Spec.Replicas = new(int32(chaosReplicas))
		server.Spec.Session = mcpv1alpha1.Session{MaxPerPod: new(int32(sessionsPerPod)), DrainTimeout: &metav1.Duration{Duration: chaosDrain}}
		start(ctx, server)
		awaitServing(ctx, server, chaosReplicas)
		seed := uint64(GinkgoRandomSeed())
		c := &chaos{server: server, random: rand.New(rand.NewPCG(seed, seed)), killed: map[string][]time.Time{}, deleted: map[string]time.Time{}}
		watching, stop := context.WithCancel(ctx)
		var watcher sync.WaitGroup
		DeferCleanup(func() { stop(); watcher.Wait() })
		watcher.Go(func() { c.noteDeletions(watching) })
		began := time.Now()
		s := swarmOf(ctx, server, allMakes, 500*time.Millisecond, busyMix)
		awaitSessions(ctx, s, began)
		for time.Since(began) < chaosFor() {
			c.happen(ctx, c.choose())
			c.judge(s.Report())
			letPass(ctx, chaosInterval)
		}
		last := c.faults[len(c.faults)-1].ended
		Eventually(func() []int { return s.IdleRaw(last) }).WithContext(ctx).WithTimeout(time.Until(last.Add(5*time.Second))+time.Second).
			Should(BeEmpty(), func() string { return describe(s.Report()) })
		Eventually(func() []int { return s.Idle(last) }).WithContext(ctx).WithTimeout(time.Until(last.Add(5*time.Second+swarm.OwnPauses))).
			Should(BeEmpty(), func() string { return "SDKs do not go on; " + describe(s.Report()) })
		report := s.Stop()
		c.judge(report)
		for _, one := range c.faults {
			AddReportEntry(one.began.Format(time.TimeOnly), one.name)
		}
		Expect(len(report.Of(swarm.Unasked))).To(BeNumerically("<", report.Calls/100))
		Expect(len(report.Of(swarm.Abandoned))).To(BeNumerically("<", report.Calls/1000))
	})
})

// choose returns a fault by weight, of those that SLIPWAY_FAULTS matches.
func (c *chaos) choose() *fault {
	GinkgoHelper()
	chosen, err := regexp.Compile(os.Getenv("SLIPWAY_FAULTS"))
	Expect(err).NotTo(HaveOccurred(), "SLIPWAY_FAULTS")
	list := slices.DeleteFunc(slices.Clone(faults), func(f *fault) bool { return !chosen.MatchString(f.name) })
	Expect(list).NotTo(BeEmpty(), "SLIPWAY_FAULTS matches no fault")
	sum := 0
	for _, f := range list {
		sum += f.weight
	}
	at := c.random.IntN(sum)
	for _, f := range list {
		if at -= f.weight; at < 0 {
			return f
		}
	}
	return nil
}

func (c *chaos) happen(ctx context.Context, f *fault) {
	GinkgoHelper()
	By(f.name)
	began := time.Now()
	for _, pod := range f.do(ctx, c) {
		c.killed[pod.Name] = append(c.killed[pod.Name], began)
	}
	c.faults = append(c.faults, happened{f, began, time.Now()})
}

// noteDeletions notes when pods are deleted, also those that the manager deletes. A pod settles for 5 s before it ends, and while the API server is
// away it cannot be removed, so a look every half second misses none.
func (c *chaos) noteDeletions(ctx context.Context) {
	for {
		var list corev1.PodList
		// Without an API server there is nothing to see; the next look has it.
		if err := cluster.List(ctx, &list, client.InNamespace(c.server.Namespace), client.MatchingLabels{mcpv1alpha1.LabelServer: c.server.Name}); err == nil {
			c.mu.Lock()
			for _, pod := range list.Items {
				// When the kubelet removes a pod, the API server sets the timestamp to now and the period to 0.
				if _, isNoted := c.deleted[pod.Name]; !isNoted && pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil {
					c.deleted[pod.Name] = pod.DeletionTimestamp.Add(-time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second)
				}
			}
			c.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// judge expects that clients have seen nothing but what the faults explain.
func (c *chaos) judge(report *swarm.Report) {
	GinkgoHelper()
	for _, incident := range report.Incidents {
		Expect(c.explains(incident)).To(BeTrue(), func() string {
			return "no fault explains " + incident.String() + "\n" + c.story(report, incident.Client)
		})
	}
}

// story is what happened, and what one client has seen of it.
func (c *chaos) story(report *swarm.Report, client int) string {
	var lines []string
	for _, incident := range report.Incidents {
		if incident.Client == client || incident.Kind == swarm.Wrong {
			lines = append(lines, incident.String())
		}
	}
	for _, one := range c.faults {
		lines = append(lines, fmt.Sprintf("%s to %s: %s", one.began.Format("15:04:05.000"), one.ended.Format("15:04:05.000"), one.name))
	}
	return report.String() + "\n" + strings.Join(lines, "\n")
}

// explains says whether a client may have seen this. Sessions end only with their process or with the drain of their pod,
// and requests are lost only by harsh faults.
func (c *chaos) explains(incident swarm.Incident) bool {
	switch incident.Kind {
	case swarm.Unasked, swarm.Abandoned: // an SDK's own doing; their number has a bound
		return true
	case swarm.Over:
		return c.drained(incident) || slices.ContainsFunc(c.killed[incident.Owner], func(at time.Time) bool {
			return incident.At.After(at) && incident.At.Before(at.Add(learned))
		})
	case swarm.Refused:
		// Without the manager, pods give one that is gone 15 s of silence before they answer 404.
		return c.during(incident, func(f *fault) bool { return f.harsh }) ||
			c.drained(incident) && c.during(incident, func(f *fault) bool { return f.blind })
	case swarm.Broken:
		// A call in flight ends with its session at the deadline of a drain.
		return c.during(incident, func(f *fault) bool { return f.harsh }) || c.drained(incident)
	case swarm.Wrong:
	}
	return false
}

// during says whether the request was in flight while such a fault went on, or shortly after.
func (c *chaos) during(incident swarm.Incident, such func(*fault) bool) bool {
	return slices.ContainsFunc(c.faults, func(one happened) bool {
		return such(one.fault) && incident.At.After(one.began) && incident.At.Add(-incident.Took).Before(one.ended.Add(aftermath))
	})
}

// drained says whether the session's pod had been deleted, and its drain was about to end.
func (c *chaos) drained(incident swarm.Incident) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	since, deleted := c.deleted[incident.Owner]
	return deleted && incident.At.After(since.Add(drainEnds))
}

// pick is a pod that serves.
func (c *chaos) pick(ctx context.Context) corev1.Pod {
	GinkgoHelper()
	list := pods(ctx, c.server)
	Expect(list).NotTo(BeEmpty())
	return list[c.random.IntN(len(list))]
}

// kill ends a container of a pod whose containers run.
func (c *chaos) kill(ctx context.Context, container string) []corev1.Pod {
	GinkgoHelper()
	var victim corev1.Pod
	Eventually(func() bool {
		victim = c.pick(ctx)
		for _, status := range containerStatuses(&victim) {
			if status.Name == container {
				return status.State.Running != nil
			}
		}
		return false
	}).WithContext(ctx).Should(BeTrue())
	cluster.kill(ctx, &victim, container)
	return []corev1.Pod{victim}
}

// letPass lets time pass: how long a fault lasts is what it is about.
func letPass(ctx context.Context, length time.Duration) {
	GinkgoHelper()
	select {
	case <-time.After(length):
	case <-ctx.Done():
		Fail("the spec is over")
	}
}
