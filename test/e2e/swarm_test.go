//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/test/npm"
	"github.com/slipway-mcp/slipway/test/swarm"
)

// swarmOf has clients use a server through its Service, until they are stopped or the spec is over.
func swarmOf(ctx context.Context, server *mcpv1alpha1.MCPServer, clients swarm.Clients, pause time.Duration, mix swarm.Mix) *swarm.Swarm {
	GinkgoHelper()
	return startSwarm(ctx, &swarm.Options{
		URL: server.Status.Address.URL, Clients: clients, Node: typescript(ctx, clients), Pause: pause, Mix: mix, Dial: gate.dial,
	})
}

func startSwarm(ctx context.Context, options *swarm.Options) *swarm.Swarm {
	GinkgoHelper()
	options.Unasked, options.Patience, options.Seed = errNoGate, time.Minute, uint64(GinkgoRandomSeed())
	s, err := swarm.Start(context.WithoutCancel(ctx), *options)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() {
		report := s.Stop()
		AddReportEntry("swarm", report.String())
	})
	return s
}

// allMakes are clients of every make.
var allMakes = swarm.Clients{Raw: 40, GoSDK: 30, TypeScriptV1: 15, TypeScriptV2: 15}

// rawClients are clients that speak HTTP by themselves: they cost little, and never pause by themselves.
func rawClients(clients int) swarm.Clients { return swarm.Clients{Raw: clients} }

// typescript is what runs clients in TypeScript, if there are any.
func typescript(ctx context.Context, clients swarm.Clients) swarm.Node {
	GinkgoHelper()
	if clients.TypeScriptV1+clients.TypeScriptV2 == 0 {
		return swarm.Node{}
	}
	modules, err := npm.Install(ctx, filepath.Join("..", "eras"))
	Expect(err).NotTo(HaveOccurred())
	return swarm.Node{Program: "node", Modules: modules}
}

// busyMix is a bit of everything that clients do.
var busyMix = swarm.Mix{Calls: 12, Streams: 2, Cancelled: 1, Questions: 1}

// sessionsPerPod is the room that each pod has.
const sessionsPerPod = 60

// replicated is a server of several pods.
func replicated(ctx context.Context, replicas int) *mcpv1alpha1.MCPServer {
	GinkgoHelper()
	server := stdioServer(ctx, newNamespace(ctx))
	server.Spec.Replicas = new(int32(replicas))
	server.Spec.Session = mcpv1alpha1.Session{MaxPerPod: new(int32(sessionsPerPod)), DrainTimeout: &metav1.Duration{Duration: 2 * time.Minute}}
	start(ctx, server)
	awaitServing(ctx, server, replicas)
	return server
}

// awaitServing waits until just as many pods serve that are not about to end, all of the newest template. Others may
// still have sessions.
func awaitServing(ctx context.Context, server *mcpv1alpha1.MCPServer, number int) {
	GinkgoHelper()
	serving := func(s *mcpv1alpha1.MCPServer) (states []string) {
		for _, instance := range s.Status.Instances {
			if instance.State != mcpv1alpha1.InstanceDraining {
				states = append(states, string(instance.State)+" "+string(instance.Verification))
			}
		}
		return states
	}
	awaitStatus(ctx, server, 2*time.Minute, And(
		HaveField("Status.ReadyReplicas", BeEquivalentTo(number)),
		WithTransform(serving, And(HaveLen(number), HaveEach(string(mcpv1alpha1.InstanceReady)+" "+string(mcpv1alpha1.InstanceVerified)))),
		HaveField("Status.Conditions", Not(ContainElement(HaveField("Type", mcpv1alpha1.ConditionReconciling)))),
		WithTransform(func(s *mcpv1alpha1.MCPServer) bool { return s.Status.ObservedGeneration == s.Generation }, BeTrue()),
	))
}

// awaitSessions waits until each client has a session and has been answered.
func awaitSessions(ctx context.Context, s *swarm.Swarm, began time.Time) {
	GinkgoHelper()
	Eventually(func() []int { return s.Idle(began) }).WithContext(ctx).WithTimeout(time.Minute).Should(BeEmpty(), func() string {
		return "clients without an answer; " + describe(s.Report())
	})
}

// describe is the report with the first incidents.
func describe(report *swarm.Report) string {
	lines := []string{report.String()}
	for _, incident := range report.Incidents[:min(len(report.Incidents), 20)] {
		lines = append(lines, incident.String())
	}
	return strings.Join(lines, "\n")
}

// expectNothingLost is for faults that no client may notice.
func expectNothingLost(report *swarm.Report) {
	GinkgoHelper()
	Expect(report.Of(swarm.Wrong, swarm.Over, swarm.Refused, swarm.Broken)).To(BeEmpty(), func() string { return describe(report) })
	// The suite's own proxy is not what this is about, but it has to work nearly always.
	Expect(len(report.Of(swarm.Unasked))).To(BeNumerically("<", 10), func() string { return describe(report) })
	// SDKs give a session up now and then that the server has.
	Expect(len(report.Of(swarm.Abandoned))).To(BeNumerically("<", 10), func() string { return describe(report) })
}

// expectAllKept expects that every client works, in the session that it had at first.
func expectAllKept(ctx context.Context, s *swarm.Swarm) {
	GinkgoHelper()
	awaitSessions(ctx, s, time.Now())
	report := s.Stop()
	expectNothingLost(report)
	Expect(report.Sessions).To(BeNumerically("<=", 100+len(report.Of(swarm.Abandoned))), "no client has begun a second session without need")
}

var _ = Describe("Many clients", Label("replicas"), func() {
	It("are answered at any replica, each by its own process", func(ctx SpecContext) {
		server := replicated(ctx, 5)
		began := time.Now()
		s := swarmOf(ctx, server, rawClients(200), 500*time.Millisecond, swarm.Mix{Calls: 1})
		awaitSessions(ctx, s, began)
		Eventually(func() int { return s.Report().Calls }).WithContext(ctx).WithTimeout(3 * time.Minute).Should(BeNumerically(">=", 200*20))
		Expect(slices.Collect(maps.Keys(s.Owners()))).To(ConsistOf(podNames(pods(ctx, server))), "every replica owns sessions")
		for _, pod := range pods(ctx, server) {
			Expect(strconv.Atoi(forwardedBy(ctx, &pod))).To(BeNumerically(">", 0), "%s passes requests on", pod.Name)
		}
		expectNothingLost(s.Stop())
	})

	It("lose no event of a stream that they resume at another replica", func(ctx SpecContext) {
		server := replicated(ctx, 5)
		s := swarmOf(ctx, server, rawClients(50), 50*time.Millisecond, swarm.Mix{Streams: 1, Cancelled: 1, Questions: 1})
		Eventually(func() int { return s.Report().Resumed }).WithContext(ctx).WithTimeout(3 * time.Minute).Should(BeNumerically(">=", 50*3*4))
		report := s.Stop()
		Expect(report.Cancelled).To(BeNumerically(">", 50))
		Expect(report.Questions).To(BeNumerically(">", 50))
		expectNothingLost(report)
	})

	It("keep their sessions while pods are rolled out and scaled", func(ctx SpecContext) {
		server := replicated(ctx, 5)
		began := time.Now()
		s := swarmOf(ctx, server, allMakes, 500*time.Millisecond, busyMix)
		awaitSessions(ctx, s, began)
		for round := range replacements() {
			By("rolling out")
			change(ctx, server, func(spec *mcpv1alpha1.MCPServerSpec) {
				spec.Env = []corev1.EnvVar{{Name: "ROUND", Value: strconv.Itoa(round + 1)}}
			})
			awaitServing(ctx, server, 5)
			for _, replicas := range []int{8, 3, 5} {
				By(fmt.Sprintf("scaling to %d", replicas))
				change(ctx, server, func(spec *mcpv1alpha1.MCPServerSpec) { spec.Replicas = new(int32(replicas)) })
				awaitServing(ctx, server, replicas)
			}
		}
		expectAllKept(ctx, s)
	})

	// A second rotation begins when the last session of the first key has ended.
	It("keep their sessions while keys rotate", Label("slow"), func(ctx SpecContext) {
		server := replicated(ctx, 5)
		began := time.Now()
		s := swarmOf(ctx, server, rawClients(100), 500*time.Millisecond, busyMix)
		awaitSessions(ctx, s, began)
		before := identities(ctx, server)
		rotateKeys(ctx, server)
		Expect(identities(ctx, server)).To(Equal(before), "no pod is replaced")
		expectAllKept(ctx, s)
	})

	It("have their sessions at other replicas while one of them dies", func(ctx SpecContext) {
		server := replicated(ctx, 5)
		began := time.Now()
		s := swarmOf(ctx, server, rawClients(100), 200*time.Millisecond, swarm.Mix{Calls: 1})
		awaitSessions(ctx, s, began)
		deaths := map[string]func(*corev1.Pod){
			"adapter":       func(pod *corev1.Pod) { cluster.kill(ctx, pod, adapterContainer) },
			"server":        func(pod *corev1.Pod) { cluster.kill(ctx, pod, serverContainer) },
			"pod, by force": func(pod *corev1.Pod) { Expect(cluster.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed()) },
		}
		for _, name := range slices.Sorted(maps.Keys(deaths)) {
			for range replacements() {
				By("killing the " + name)
				victim := pods(ctx, server)[0]
				before := len(s.Report().Incidents)
				deaths[name](&victim)
				died := time.Now()
				Eventually(func() []int { return s.Idle(died.Add(2 * time.Second)) }).WithContext(ctx).WithTimeout(20*time.Second).Should(BeEmpty(), "every client works again")
				for _, incident := range s.Report().Incidents[before:] {
					expectOfDeath(incident, &victim, died)
				}
				awaitServing(ctx, server, 5)
			}
		}
		Expect(s.Stop().Of(swarm.Wrong)).To(BeEmpty())
	})

	It("lose nothing while the manager is away, and can begin", func(ctx SpecContext) {
		server := replicated(ctx, 3)
		began := time.Now()
		s := swarmOf(ctx, server, rawClients(50), 500*time.Millisecond, busyMix)
		awaitSessions(ctx, s, began)
		withoutManager(ctx, func() {
			left := time.Now()
			for time.Since(left) < managerAway() {
				newcomers := swarmOf(ctx, server, rawClients(10), 100*time.Millisecond, swarm.Mix{Calls: 1})
				came := time.Now()
				awaitSessions(ctx, newcomers, came)
				expectNothingLost(newcomers.Stop())
				awaitSessions(ctx, s, came)
			}
		})
		expectNothingLost(s.Stop())
	})

	It("get 404 for 100,000 forged ids, for which no pod connects to another", func(ctx SpecContext) {
		server := replicated(ctx, 3)
		session := open(ctx, server)
		id := session.ID()
		Expect(session.Close()).To(Succeed(), "so that no pod passes on a stream of it")
		dials := func() (all []string) {
			for _, pod := range pods(ctx, server) {
				all = append(all, pod.Name)
				for line := range strings.Lines(metricsOf(ctx, &pod)) {
					if strings.HasPrefix(line, "slipway_adapter_peer_dials_total") {
						all = append(all, line)
					}
				}
			}
			return all
		}
		before := dials()
		var asked atomic.Int64
		var running sync.WaitGroup
		for range 8 {
			running.Go(func() {
				defer GinkgoRecover()
				client := gate.httpClient()
				for n := asked.Add(1); n <= 100_000; n = asked.Add(1) {
					Expect(statusOfID(ctx, client, server, forge(id, int(n)))).To(Equal(http.StatusNotFound), "id %d", n)
				}
			})
		}
		running.Wait()
		Expect(dials()).To(Equal(before))
	})
})

// expectOfDeath expects that a pod which died took only its own sessions along, and requests that it was passing on.
func expectOfDeath(incident swarm.Incident, victim *corev1.Pod, died time.Time) {
	GinkgoHelper()
	switch incident.Kind {
	case swarm.Over:
		Expect(incident.Owner).To(Equal(victim.Name), "only its sessions end: %s", incident)
		Expect(incident.At).To(BeTemporally("<", died.Add(3*time.Second)), "2 s, and the pause of a client: %s", incident)
	case swarm.Broken:
		Expect(incident.At).To(BeTemporally("<", died.Add(3*time.Second)), incident.String())
	case swarm.Unasked, swarm.Abandoned:
	case swarm.Wrong, swarm.Refused:
		Fail(incident.String())
	}
}

// forge makes an id that no adapter has made, of one of eight kinds.
func forge(id string, n int) string {
	raw, err := base64.RawURLEncoding.DecodeString(id)
	Expect(err).NotTo(HaveOccurred())
	random := make([]byte, len(raw))
	_, _ = rand.Read(random)
	encode := base64.RawURLEncoding.EncodeToString
	switch at := n % len(raw); n % 8 {
	case 0: // of the right length
		return encode(random)
	case 1: // with the right version
		random[0] = raw[0]
		return encode(random)
	case 2: // with the right version and key id
		return encode(append(bytes.Clone(raw[:5]), random[5:]...))
	case 3: // one bit differs
		raw[at] ^= 1 << (n / 8 % 8)
		return encode(raw)
	case 4: // cut
		return encode(raw[:max(at, 1)])
	case 5: // longer
		return encode(append(raw, random[:at+1]...))
	case 6: // of another version
		return encode(append([]byte{raw[0] + byte(1+n/8%200)}, raw[1:]...))
	default: // no base64
		return strings.Repeat("!", at+1)
	}
}

// statusOfID is the status of a ping with a session id.
func statusOfID(ctx context.Context, client *http.Client, server *mcpv1alpha1.MCPServer, id string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.Status.Address.URL, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	request.Header.Set("Mcp-Session-Id", id)
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, response.Body) // so that the connection is used again
	_ = response.Body.Close()
	return response.StatusCode, err
}

// managerAway is how long the manager is away: SLIPWAY_MANAGER_AWAY, or half a minute.
func managerAway() time.Duration {
	text := os.Getenv("SLIPWAY_MANAGER_AWAY")
	if text == "" {
		return 30 * time.Second
	}
	away, err := time.ParseDuration(text)
	Expect(err).NotTo(HaveOccurred(), "SLIPWAY_MANAGER_AWAY")
	return away
}

// withoutManager does something while there is no manager.
func withoutManager(ctx context.Context, do func()) {
	GinkgoHelper()
	DeferCleanup(func(ctx context.Context) { scaleManager(ctx, 1) }) // also after a failure
	scaleManager(ctx, 0)
	do()
	scaleManager(ctx, 1)
}

func arePodsReady(list []corev1.Pod) bool {
	return !slices.ContainsFunc(list, func(pod corev1.Pod) bool {
		return !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
	})
}

// scaleManager changes the number of the manager's pods, and waits until there are as many, all of them ready.
func scaleManager(ctx context.Context, replicas int) {
	GinkgoHelper()
	kubectl(ctx, operatorNamespace, "scale", "deployment/"+managerDeployment, "--replicas="+strconv.Itoa(replicas))
	Eventually(managers).WithContext(ctx).WithTimeout(takesToRollOut).Should(And(HaveLen(replicas), WithTransform(arePodsReady, BeTrue())))
}

// rotateKeys has the manager rotate the server's keys, and waits until it is done.
func rotateKeys(ctx context.Context, server *mcpv1alpha1.MCPServer) {
	GinkgoHelper()
	current := func() string {
		return kubectl(ctx, server.Namespace, "get", "secret", server.Name+"-keys", "-o", "jsonpath={.data.current}")
	}
	before := current()
	kubectl(ctx, server.Namespace, "annotate", "mcpserver", server.Name, fmt.Sprintf("mcp.slipway.dev/rotate-key=%d", time.Now().UnixNano()), "--overwrite")
	Eventually(current).WithContext(ctx).WithTimeout(4*time.Minute).ShouldNot(Equal(before), "the kubelets take a minute or two to tell the pods of a new key")
}
