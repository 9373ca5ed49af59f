//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
)

// replacements is how often specs replace, scale, kill or cut off pods: each of it SLIPWAY_REPLACEMENTS times, or once.
func replacements() int {
	text := os.Getenv("SLIPWAY_REPLACEMENTS")
	if text == "" {
		return 1
	}
	number, err := strconv.Atoi(text)
	Expect(err).NotTo(HaveOccurred(), "SLIPWAY_REPLACEMENTS")
	return number
}

var _ = Describe("A server whose pods are replaced", Label("disruptive"), func() {
	DescribeTable("loses no request", func(ctx SpecContext, replicas int) {
		server := stdioServer(ctx, newNamespace(ctx), "/everything-server")
		server.Spec.Replicas = new(int32(replicas))
		start(ctx, server)
		awaitReplicas(ctx, server, replicas)
		clients := gate.askAllTheTime(ctx, server)
		for round := range replacements() {
			change(ctx, server, func(spec *mcpv1alpha1.MCPServerSpec) {
				spec.Env = []corev1.EnvVar{{Name: "ROUND", Value: strconv.Itoa(round + 1)}}
			})
			awaitReplicas(ctx, server, replicas)
		}
		if replicas > 1 {
			for range replacements() {
				deleted := pods(ctx, server)[0]
				Expect(cluster.Delete(ctx, &deleted)).To(Succeed())
				// The status is of the pods that there are then.
				Eventually(func() []corev1.Pod { return allPods(ctx, server) }).WithContext(ctx).WithTimeout(2 * patience).
					Should(And(HaveLen(replicas), HaveEach(HaveField("UID", Not(Equal(deleted.UID))))))
				awaitStatus(ctx, server, 2*patience, WithTransform(instanceNames, ConsistOf(podNames(pods(ctx, server)))))
				awaitReplicas(ctx, server, replicas)
			}
		}
		clients.stop()
		By(fmt.Sprintf("%d requests on connections of their own, %d in sessions, %d sessions", clients.single, clients.kept, clients.sessions))
		Expect(clients.lost).To(BeEmpty())
		// The suite's own proxy is not what this is about, but it has to work nearly always.
		By(fmt.Sprintf("%d did not get as far as the gate: %q", len(clients.unasked), clients.unasked))
		Expect(len(clients.unasked)).To(BeNumerically("<", 10))
		Expect(clients.single).To(BeNumerically(">", 20))
		Expect(clients.kept).To(BeNumerically(">", 20))
	},
		Entry("of a single pod", 1),
		Entry("of two pods, which are also deleted", 2),
	)
})

func instanceNames(server *mcpv1alpha1.MCPServer) (names []string) {
	for _, instance := range server.Status.Instances {
		names = append(names, instance.Pod)
	}
	return names
}

func podNames(pods []corev1.Pod) (names []string) {
	for i := range pods {
		names = append(names, pods[i].Name)
	}
	return names
}

// asking is a client without sessions that opens a connection for each request, and one that
// keeps its session and its connection as long as it can.
type asking struct {
	way  *wayIn
	url  string
	end  context.CancelFunc
	done sync.WaitGroup

	mu                     sync.Mutex
	single, kept, sessions int
	lost                   []string
	unasked                []string // requests that did not get as far as the gate
}

// askInterval is the time between two requests of a client.
const askInterval = 50 * time.Millisecond

func (g *wayIn) askAllTheTime(ctx context.Context, server *mcpv1alpha1.MCPServer) *asking {
	ctx, end := context.WithCancel(ctx)
	a := &asking{way: g, url: server.Status.Address.URL, end: end}
	DeferCleanup(a.stop)
	a.done.Go(func() { a.repeat(ctx, func() error { return a.askOnce(ctx) }, &a.single) })
	session := &keptSession{asking: a, client: &http.Client{Transport: &http.Transport{DialContext: g.dial, MaxConnsPerHost: 1}}}
	a.done.Go(func() { a.repeat(ctx, func() error { return session.ask(ctx) }, &a.kept) })
	return a
}

func (a *asking) stop() {
	a.end()
	a.done.Wait()
}

func (a *asking) repeat(ctx context.Context, ask func() error, count *int) {
	ticker := time.NewTicker(askInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := ask()
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errNoGate): // the server was not asked
			a.mu.Lock()
			a.unasked = append(a.unasked, err.Error())
			a.mu.Unlock()
			continue
		}
		a.mu.Lock()
		*count++
		if err != nil {
			a.lost = append(a.lost, time.Now().Format(time.StampMilli)+" "+err.Error())
		}
		a.mu.Unlock()
	}
}

// askOnce asks without a session, over a connection of its own.
func (a *asking) askOnce(ctx context.Context) error {
	transport := &http.Transport{DialContext: a.way.dial, DisableKeepAlives: true}
	status, _, body, err := post(ctx, &http.Client{Transport: transport}, a.url, statelessList, map[string]string{
		"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list",
	})
	return verdict("a request without a session", status, body, err)
}

const (
	statelessList = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"e2e","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
	initializeRequest = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"e2e","version":"1"}}}`
	initialized       = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	list              = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
)

// keptSession is a client with a session. When the server says that the session has ended, it
// begins a new one, as the protocol has it.
type keptSession struct {
	*asking
	client *http.Client
	id     string
}

func (k *keptSession) ask(ctx context.Context) error {
	if k.id != "" {
		status, _, body, err := post(ctx, k.client, k.url, list, map[string]string{"Mcp-Session-Id": k.id})
		if status != http.StatusNotFound {
			return verdict("a request in a session", status, body, err)
		}
	}
	status, header, body, err := post(ctx, k.client, k.url, initializeRequest, nil)
	if err := verdict("initialize", status, body, err); err != nil {
		return err
	}
	k.id = header.Get("Mcp-Session-Id")
	k.mu.Lock()
	k.sessions++
	k.mu.Unlock()
	status, _, body, err = post(ctx, k.client, k.url, initialized, map[string]string{"Mcp-Session-Id": k.id})
	switch status {
	case http.StatusAccepted:
		return nil
	case http.StatusNotFound: // it has ended already
		k.id = ""
		return nil
	}
	return verdict("notifications/initialized", status, body, err)
}

func post(ctx context.Context, client *http.Client, url, message string, headers map[string]string) (status int, header http.Header, body string, err error) {
	response, err := send(ctx, client, url, message, headers)
	if err != nil {
		return 0, nil, "", err
	}
	body, err = readAll(response)
	return response.StatusCode, response.Header, body, err
}

// send posts a message. The caller reads the answer.
func send(ctx context.Context, client *http.Client, url, message string, headers map[string]string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(message))
	if err != nil {
		return nil, err
	}
	request.GetBody = nil // so that the client does not try again by itself
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	return client.Do(request)
}

// readAll reads what comes of an answer.
func readAll(response *http.Response) (string, error) {
	text, err := io.ReadAll(response.Body)
	return string(text), errors.Join(err, response.Body.Close())
}

func verdict(what string, status int, body string, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", what, err)
	case status != http.StatusOK || !strings.Contains(body, `"result"`):
		return fmt.Errorf("%s: %d %.300s", what, status, body)
	}
	return nil
}
