//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/promise"
)

const (
	adapterContainer = mcpv1alpha1.ContainerAdapter
	serverContainer  = mcpv1alpha1.ContainerServer
)

var _ = Describe("Sessions", Label("sessions"), func() {
	It("have a process each and share nothing", func(ctx SpecContext) {
		server := start(ctx, stdioServer(ctx, newNamespace(ctx)))
		one, two := open(ctx, server), open(ctx, server)
		Expect(one.call(ctx, "count", nil)).To(Equal("1"))
		Expect(one.call(ctx, "count", nil)).To(Equal("2"))
		Expect(two.call(ctx, "count", nil)).To(Equal("1"))
		Expect(one.call(ctx, "pid", nil)).NotTo(Equal(two.call(ctx, "pid", nil)))
		Expect(one.ID()).NotTo(Equal(two.ID()))
	})

	It("end alone and in the promised time when their process is killed in a call", func(ctx SpecContext) {
		server := start(ctx, stdioServer(ctx, newNamespace(ctx)))
		victim, bystander := open(ctx, server), open(ctx, server)
		Expect(bystander.call(ctx, "count", nil)).To(Equal("1"))
		pid := victim.call(ctx, "pid", nil)
		ended := victim.sleep(ctx, 10*time.Minute)
		killed := kubectl(ctx, server.Namespace, "exec", onlyPod(ctx, server).Name, "--container="+serverContainer, "--", "/echo", "--kill", pid)
		nanoseconds, err := strconv.ParseInt(killed, 10, 64)
		Expect(err).NotTo(HaveOccurred())
		expectTold(ctx, ended, time.Unix(0, nanoseconds), "killed")
		Expect(bystander.call(ctx, "count", nil)).To(Equal("2"))
		Expect(restarts(onlyPod(ctx, server))).To(HaveEach(BeZero()))
	})

	It("say how their process ended, and not what it wrote", func(ctx SpecContext) {
		server := start(ctx, stdioServer(ctx, newNamespace(ctx)))
		_, err := open(ctx, server).tryCall(ctx, "exit", map[string]any{"n": 3})
		Expect(err).To(MatchError(And(ContainSubstring("exit code 3"), Not(ContainSubstring("told to exit"))))) // what it wrote may be secret
		Expect(open(ctx, server).call(ctx, "count", nil)).To(Equal("1"))
	})

	It("end when the adapter is killed, and others can be opened after it is back", func(ctx SpecContext) {
		server := start(ctx, stdioServer(ctx, newNamespace(ctx)))
		session := open(ctx, server)
		pod := onlyPod(ctx, server)
		ended := session.sleep(ctx, 10*time.Minute)
		cluster.kill(ctx, pod, adapterContainer)
		awaitRestart(ctx, pod, adapterContainer)
		awaitReady(ctx, server)
		Eventually(func() error { return tryOnce(ctx, server) }).WithContext(ctx).Should(Succeed())
		// The call's stream is gone, and the client asks the new adapter, which does not know it, for the rest.
		var end outcome
		Eventually(ended).WithContext(ctx).Should(Receive(&end))
		Expect(end.err).To(HaveOccurred())
		expectUnknown(ctx, server, session)
		Expect(onlyPod(ctx, server).UID).To(Equal(pod.UID))
		Expect(restarts(reload(ctx, pod))).To(Equal(map[string]int32{adapterContainer: 1, serverContainer: 0}))
	})

	It("end at once when the server's container is killed, and others can be opened after it is back", func(ctx SpecContext) {
		server := start(ctx, stdioServer(ctx, newNamespace(ctx)))
		session := open(ctx, server)
		pod := onlyPod(ctx, server)
		ended := session.sleep(ctx, 10*time.Minute)
		cluster.kill(ctx, pod, serverContainer)
		expectTold(ctx, ended, time.Now(), "the connection to its container broke")
		awaitRestart(ctx, pod, serverContainer)
		Eventually(func() error { return tryOnce(ctx, server) }).WithContext(ctx).Should(Succeed())
		Expect(restarts(reload(ctx, pod))).To(Equal(map[string]int32{adapterContainer: 0, serverContainer: 1}))
	})

	It("live on when the pod is deleted, at the pod in its place, and may finish their calls", func(ctx SpecContext) {
		server := stdioServer(ctx, newNamespace(ctx))
		server.Spec.Session.DrainTimeout = &metav1.Duration{Duration: 5 * time.Minute} // longer than the spec waits for anything
		start(ctx, server)
		session, quiet := open(ctx, server), open(ctx, server)
		Expect(quiet.call(ctx, "count", nil)).To(Equal("1"))
		pod := onlyPod(ctx, server)
		ended := session.sleep(ctx, 5*time.Second)
		Expect(cluster.Delete(ctx, pod)).To(Succeed())
		awaitReplacement(ctx, server, pod)
		var end outcome
		Eventually(ended).WithContext(ctx).Should(Receive(&end))
		Expect(end.err).NotTo(HaveOccurred())
		Expect(end.text).To(Equal("slept"))
		Expect(statusAt(ctx, server, onlyPod(ctx, server), quiet)).To(Equal(http.StatusOK), "the new pod passes requests on to the old one")
		Expect(quiet.call(ctx, "count", nil)).To(Equal("2"))
		Expect(reload(ctx, pod).DeletionTimestamp).NotTo(BeNil())
		Expect(session.Close()).To(Succeed())
		Expect(quiet.Close()).To(Succeed())
		kubectl(ctx, pod.Namespace, "wait", "--for=delete", "pod/"+pod.Name, "--timeout=30s") // The drain ends with the last session.
		expectUnknown(ctx, server, quiet)
		Eventually(func() error { return tryOnce(ctx, server) }).WithContext(ctx).Should(Succeed())
	})

	It("end with their pod when it may not drain for longer", func(ctx SpecContext) {
		server := stdioServer(ctx, newNamespace(ctx))
		server.Spec.Session.DrainTimeout = &metav1.Duration{Duration: 10 * time.Second}
		start(ctx, server)
		session := open(ctx, server)
		pod := onlyPod(ctx, server)
		ended := session.sleep(ctx, 10*time.Minute)
		Expect(cluster.Delete(ctx, pod)).To(Succeed())
		var end outcome
		Eventually(ended).WithContext(ctx).Should(Receive(&end))
		Expect(end.err).To(MatchError(ContainSubstring("this instance is going away")))
		kubectl(ctx, pod.Namespace, "wait", "--for=delete", "pod/"+pod.Name, "--timeout=30s")
		awaitReady(ctx, server)
		expectUnknown(ctx, server, session)
		Eventually(func() error { return tryOnce(ctx, server) }).WithContext(ctx).Should(Succeed())
	})

	It("end when the pod is killed, and others can be opened in another pod", func(ctx SpecContext) {
		server := start(ctx, stdioServer(ctx, newNamespace(ctx)))
		session := open(ctx, server)
		pod := onlyPod(ctx, server)
		ended := session.sleep(ctx, 10*time.Minute)
		Expect(cluster.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
		var end outcome
		Eventually(ended).WithContext(ctx).Should(Receive(&end))
		Expect(end.err).To(HaveOccurred())
		awaitReady(ctx, server)
		Eventually(func() error { return tryOnce(ctx, server) }).WithContext(ctx).Should(Succeed())
		// The manager's list tells the new pod that the old one is gone, so one attempt to connect is enough.
		Eventually(func() (int, error) {
			_, status, err := get(pingIn(ctx, server, session))
			return status, err
		}).WithContext(ctx).WithTimeout(2 * time.Second).Should(Equal(http.StatusNotFound))
		Expect(onlyPod(ctx, server).UID).NotTo(Equal(pod.UID))
	})

	It("are as many as the limit allows, while the server stays Ready", func(ctx SpecContext) {
		server := stdioServer(ctx, newNamespace(ctx))
		server.Spec.Session.MaxPerPod = new(int32(2))
		start(ctx, server)
		first, _ := open(ctx, server), open(ctx, server)
		_, err := tryOpen(ctx, server)
		Expect(err).To(MatchError(Or(ContainSubstring("503"), ContainSubstring("Service Unavailable"))))
		// The manager looks again, in a slot of its own: a process more is started, and no
		// client can have been the reason.
		pod := onlyPod(ctx, server)
		before := 0
		Eventually(func() bool { // the spares of the two sessions are there
			last := before
			before = processStarts(ctx, pod)
			return last == before
		}).WithContext(ctx).WithPolling(time.Second).Should(BeTrue())
		kubectl(ctx, server.Namespace, "annotate", "mcpserver", server.Name, mcpv1alpha1.AnnotationRefresh+"=now")
		Eventually(func() int { return processStarts(ctx, pod) }).WithContext(ctx).Should(BeNumerically(">", before))
		awaitStatus(ctx, server, 2*time.Minute, HaveField("Status.Sessions", HaveValue(BeEquivalentTo(2))))
		Expect(server.Status.Conditions).To(ContainElements(
			And(HaveField("Type", mcpv1alpha1.ConditionVerified), HaveField("Reason", mcpv1alpha1.ReasonVerified)),
			And(HaveField("Type", mcpv1alpha1.ConditionReady), HaveField("Reason", mcpv1alpha1.ReasonReady), HaveField("Message", ContainSubstring("2 of 2 sessions")))))
		Eventually(func() string {
			return kubectl(ctx, server.Namespace, "get", "events", "--field-selector=reason=SessionsFull", "-o=jsonpath={.items[*].message}")
		}).WithContext(ctx).WithTimeout(2 * time.Minute).Should(ContainSubstring("had no session for a client, once"))
		Expect(first.Close()).To(Succeed())
		Eventually(func() error { return tryOnce(ctx, server) }).WithContext(ctx).Should(Succeed())
	})

	// What the kernel kills depends on the node: docs/promises.md has both.
	It("end as promised when one runs out of memory", func(ctx SpecContext) {
		server := stdioServer(ctx, newNamespace(ctx))
		server.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")}
		start(ctx, server)
		glutton, bystander := open(ctx, server), open(ctx, server)
		Expect(bystander.call(ctx, "count", nil)).To(Equal("1"))
		pod := onlyPod(ctx, server)
		waiting := bystander.sleep(ctx, 10*time.Minute)
		alone := endsAlone(ctx, pod.Spec.NodeName)
		_, err := glutton.tryCall(ctx, "allocate", map[string]any{"n": 256})
		died := time.Now() // no later than this
		if alone {
			By("cgroup v1: " + promise.OutOfMemoryV1)
			Expect(err).To(MatchError(ContainSubstring("out of memory")))
			Consistently(waiting).WithContext(ctx).WithTimeout(time.Second).ShouldNot(Receive())
			Expect(bystander.call(ctx, "count", nil)).To(Equal("2"))
			Expect(restarts(reload(ctx, pod))).To(HaveEach(BeZero()))
		} else {
			By("cgroup v2: " + promise.OutOfMemoryV2)
			Expect(err).To(MatchError(ContainSubstring("the connection to its container broke")))
			expectTold(ctx, waiting, died, "the connection to its container broke")
			awaitRestart(ctx, pod, serverContainer)
		}
		Eventually(func() error { return tryOnce(ctx, server) }).WithContext(ctx).Should(Succeed())
	})
})

// expectTold expects that a call has ended with a JSON-RPC error that says why, in the
// promised time.
func expectTold(ctx context.Context, ended <-chan outcome, died time.Time, words string) {
	GinkgoHelper()
	var end outcome
	Eventually(ended).WithContext(ctx).Should(Receive(&end))
	told := end.at.Sub(died)
	AddReportEntry("told after", told.String())
	var answer *jsonrpc.Error
	Expect(errors.As(end.err, &answer)).To(BeTrue(), "it is no JSON-RPC error: %v", end.err)
	Expect(answer.Message).To(ContainSubstring(words))
	Expect(told).To(BeNumerically("<=", promise.Death))
}

// expectUnknown expects that a session that is gone is answered 404, by which clients
// know that they have to begin another one.
func expectUnknown(ctx context.Context, server *mcpv1alpha1.MCPServer, session *caller) {
	GinkgoHelper()
	body, status, err := get(pingIn(ctx, server, session))
	Expect(err).NotTo(HaveOccurred())
	Expect(status).To(Equal(http.StatusNotFound), body)
}

// pingIn is a ping in a session, through the Service.
func pingIn(ctx context.Context, server *mcpv1alpha1.MCPServer, session *caller) *http.Request {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.Status.Address.URL,
		strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	request.Header.Set("Mcp-Session-Id", session.ID())
	return request
}

// tryOnce opens a session, uses it and closes it, or gives up soon.
func tryOnce(ctx context.Context, server *mcpv1alpha1.MCPServer) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	session, err := tryOpen(ctx, server)
	if err != nil {
		return err
	}
	if _, err := session.tryCall(ctx, "pid", nil); err != nil {
		return err
	}
	return session.Close()
}

func awaitRestart(ctx context.Context, pod *corev1.Pod, container string) {
	GinkgoHelper()
	Eventually(func() int32 { return restarts(reload(ctx, pod))[container] }).WithContext(ctx).Should(BeNumerically(">=", 1))
}

// endsAlone tells whether a process that runs out of memory ends without the rest of its
// container, by what the node's kubelet says of itself.
func endsAlone(ctx context.Context, node string) bool {
	GinkgoHelper()
	proxy := "/api/v1/nodes/" + node + "/proxy/"
	var configuration struct {
		Kubelet struct {
			SingleProcessOOMKill *bool `json:"singleProcessOOMKill"`
		} `json:"kubeletconfig"`
	}
	Expect(json.Unmarshal([]byte(kubectl(ctx, "default", "get", "--raw", proxy+"configz")), &configuration)).To(Succeed())
	if single := configuration.Kubelet.SingleProcessOOMKill; single != nil && *single {
		return true
	}
	version, err := metric(kubectl(ctx, "default", "get", "--raw", proxy+"metrics"), "kubelet_cgroup_version")
	Expect(err).NotTo(HaveOccurred())
	return version == 1
}

// processStarts is how many processes a pod's adapter has started.
func processStarts(ctx context.Context, pod *corev1.Pod) int {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+pod.Status.PodIP+":16271/metrics", http.NoBody)
	Expect(err).NotTo(HaveOccurred())
	body, _, err := get(request)
	Expect(err).NotTo(HaveOccurred())
	number, err := metric(body, "slipway_adapter_server_starts_total")
	Expect(err).NotTo(HaveOccurred())
	return number
}

// metric is the value of a metric without labels.
func metric(text, name string) (int, error) {
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			return strconv.Atoi(strings.TrimSpace(value))
		}
	}
	return 0, fmt.Errorf("there is no metric %s", name)
}
