//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

var _ = Describe("Calls of clients without sessions that wait for an answer", Label("replicas"), func() {
	It("go on where they wait, at whichever replica the answer comes, and have to be made again when that pod's adapter has died", func(ctx SpecContext) {
		const going, atOnce, lost = 100, 20, 20
		server := stdioServer(ctx, newNamespace(ctx))
		server.Spec.Replicas = new(int32(3))
		server.Spec.Session.StatelessClients = mcpv1alpha1.StatelessClientsTranslate
		server.Spec.Session.MaxPerPod = new(int32(4 * lost)) // half of the processes are for one principal
		start(ctx, server)
		awaitServing(ctx, server, 3)
		replicas := pods(ctx, server)

		By("answering at another replica")
		before := forwardedByAll(ctx, replicas)
		var running sync.WaitGroup
		slots := make(chan struct{}, atOnce)
		for n := range going {
			running.Go(func() {
				defer GinkgoRecover()
				slots <- struct{}{}
				defer func() { <-slots }()
				state := park(ctx, server, &replicas[n%len(replicas)], n)
				said := goOn(ctx, server, &replicas[(n+1)%len(replicas)], n, state)
				Expect(said.text).To(ContainSubstring(fmt.Sprintf(`"answer":"%d!"`, n)), "call %d: %s", n, said)
			})
		}
		running.Wait()
		Expect(forwardedByAll(ctx, replicas)-before).To(BeNumerically(">=", going), "for each call, at least one of two requests came to another pod than that of the call")

		By("killing the adapter of the pod at which calls wait")
		host, _, _ := strings.Cut(stateless(ctx, server, &replicas[0], "tick", `"arguments":{"text":"who?"},`).text, " ")
		owner, others := podNamed(replicas, host)
		states := make([]string, lost)
		for n := range states {
			running.Go(func() {
				defer GinkgoRecover()
				states[n] = park(ctx, server, &replicas[0], n)
			})
		}
		running.Wait()
		Expect(states).NotTo(ContainElement(""), "every call waits")
		cluster.kill(ctx, owner, adapterContainer)
		awaitDeath(ctx, owner)
		for n, state := range states {
			running.Go(func() {
				defer GinkgoRecover()
				said := goOn(ctx, server, &others[n%len(others)], n, state)
				Expect(said.status).To(Equal(http.StatusOK), "call %d: %s", n, said)
				Expect(said.code).To(Equal(-32602), "call %d: %s", n, said)
				Expect(said.message).To(ContainSubstring("call again"), "call %d: %s", n, said)
			})
		}
		running.Wait()

		By("calling again")
		state := park(ctx, server, &others[0], lost)
		Expect(goOn(ctx, server, &others[1], lost, state).text).To(ContainSubstring(fmt.Sprintf(`"answer":"%d!"`, lost)))
	})
})

// said is what a server says to a client without a session.
type said struct {
	status        int
	code          int
	message, text string
	state         string // with which the call goes on
	body          string
}

func (s said) String() string { return fmt.Sprintf("status %d: %.500s", s.status, s.body) }

// park begins a call that asks its client something, and returns the state to go on with.
func park(ctx context.Context, server *mcpv1alpha1.MCPServer, entry *corev1.Pod, n int) string {
	GinkgoHelper()
	s := stateless(ctx, server, entry, "ask", fmt.Sprintf(`"arguments":{"text":"%d?"},`, n))
	Expect(s.state).NotTo(BeEmpty(), "call %d does not wait: %s", n, s)
	return s.state
}

// goOn goes on with the call.
func goOn(ctx context.Context, server *mcpv1alpha1.MCPServer, entry *corev1.Pod, n int, state string) said {
	GinkgoHelper()
	return stateless(ctx, server, entry, "ask", fmt.Sprintf(
		`"arguments":{"text":"%d?"},"requestState":"%s","inputResponses":{"r1":{"action":"accept","content":{"answer":"%d!"}}},`, n, state, n))
}

// stateless calls a tool at an entry, on a new connection, as a client of 2026-07-28 that can be asked.
func stateless(ctx context.Context, server *mcpv1alpha1.MCPServer, entry *corev1.Pod, tool, params string) said {
	GinkgoHelper()
	message := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `",` + params +
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"e2e","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}}}}`
	status, _, body, err := post(ctx, byEntry(entry), server.Status.Address.URL, message, map[string]string{
		"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool,
	})
	Expect(err).NotTo(HaveOccurred())
	s := said{status: status, body: body}
	if at := strings.LastIndex(body, "data: "); at >= 0 { // a slow answer comes as an event
		body = body[at+len("data: "):]
	}
	var answer struct {
		Result struct {
			State   string                  `json:"requestState"`
			Content []struct{ Text string } `json:"content"`
		} `json:"result"`
		Error struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	Expect(json.Unmarshal([]byte(body), &answer)).To(Succeed(), s.String())
	s.code, s.message, s.state = answer.Error.Code, answer.Error.Message, answer.Result.State
	if len(answer.Result.Content) > 0 {
		s.text = answer.Result.Content[0].Text
	}
	return s
}

// awaitDeath waits until the adapter of a pod has ended, whose container was killed.
func awaitDeath(ctx context.Context, pod *corev1.Pod) {
	GinkgoHelper()
	Eventually(func() bool {
		conn, err := gate.at(pod).dial(ctx, "tcp", "")
		if err != nil {
			return true
		}
		_ = conn.Close()
		return restarts(reload(ctx, pod))[adapterContainer] > 0
	}).WithContext(ctx).Should(BeTrue(), "the adapter of %s lives on", pod.Name)
}
