//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/rpc"
)

var _ = Describe("Clients of the transport of 2024-11-05", Label("replicas"), func() {
	It("post at replicas that do not have their connection, and are answered on it", func(ctx SpecContext) {
		const connections, posts = 50, 20
		server := stdioServer(ctx, newNamespace(ctx))
		server.Spec.Replicas = new(int32(3))
		server.Spec.Session.MaxPerPod = new(int32(sessionsPerPod))
		server.Spec.Adapter.LegacySSE = true
		start(ctx, server)
		awaitServing(ctx, server, 3)
		replicas := pods(ctx, server)
		before := forwardedByAll(ctx, replicas)

		var running sync.WaitGroup
		owners := make([]string, connections)
		for n := range connections {
			running.Go(func() {
				defer GinkgoRecover()
				c := connectByEvents(ctx, server, &replicas[n%len(replicas)], n)
				Expect(c.initialize(ctx, &replicas[n%len(replicas)])).To(Succeed(), "connection %d", n)
				Expect(c.tick(ctx, &replicas[n%len(replicas)])).To(Succeed(), "connection %d", n)
				_, others := podNamed(replicas, c.owner)
				for post := range posts {
					entry := &others[(n+post)%len(others)]
					Expect(c.tick(ctx, entry)).To(Succeed(), "connection %d, at pod %s, entry %s", n, c.owner, entry.Name)
				}
				owners[n] = c.owner
			})
		}
		running.Wait()
		for i := range replicas {
			Expect(owners).To(ContainElement(replicas[i].Name), "every replica has connections")
		}
		Expect(forwardedByAll(ctx, replicas)-before).To(BeNumerically(">=", connections*posts), "none of the posts came to the pod with the connection")
	})
})

// forwardedByAll is how many requests replicas have passed on and got an answer for.
func forwardedByAll(ctx context.Context, replicas []corev1.Pod) (sum int) {
	GinkgoHelper()
	for i := range replicas {
		number, err := strconv.Atoi(forwardedBy(ctx, &replicas[i]))
		Expect(err).NotTo(HaveOccurred())
		sum += number
	}
	return sum
}

// byEvents is a connection of the transport of 2024-11-05: an event stream, and a URL to post to.
type byEvents struct {
	number   int
	url      string // to post to
	messages chan string
	broken   error // why there are no more messages, when the channel is closed
	owner    string
	process  string
	ticks    int
}

// connectByEvents opens an event stream, which lives as long as the spec, and waits for the URL to post to.
func connectByEvents(ctx context.Context, server *mcpv1alpha1.MCPServer, entry *corev1.Pod, number int) *byEvents {
	GinkgoHelper()
	base := strings.TrimSuffix(server.Status.Address.URL, "/mcp")
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/sse", http.NoBody)
	Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Accept", "text/event-stream")
	response, err := byEntry(entry).Do(request)
	Expect(err).NotTo(HaveOccurred())
	c := &byEvents{number: number, messages: make(chan string, 100)}
	go c.read(response.Body)
	Expect(response.StatusCode).To(Equal(http.StatusOK), "connection %d", number)
	endpoint, err := c.next(ctx)
	Expect(err).NotTo(HaveOccurred(), "connection %d", number)
	Expect(endpoint).To(HavePrefix("/messages?"))
	c.url = base + endpoint
	return c
}

func (c *byEvents) read(stream io.ReadCloser) {
	defer close(c.messages)
	defer func() { _ = stream.Close() }()
	for events := rpc.NewEventReader(stream, 1<<20); ; {
		event, err := events.Next()
		if err != nil {
			c.broken = err
			return
		}
		if len(event.Data) > 0 {
			c.messages <- string(event.Data)
		}
	}
}

// next waits for the next message on the stream.
func (c *byEvents) next(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case message, open := <-c.messages:
		if !open {
			return "", fmt.Errorf("the stream is over: %w", c.broken)
		}
		return message, nil
	case <-ctx.Done():
		return "", fmt.Errorf("nothing comes on the stream: %w", ctx.Err())
	}
}

// initialize begins the session of the connection.
func (c *byEvents) initialize(ctx context.Context, entry *corev1.Pod) error {
	client := byEntry(entry)
	if err := c.post(ctx, client, strings.Replace(initializeRequest, "2025-11-25", "2024-11-05", 1)); err != nil {
		return err
	}
	if _, err := c.answer(ctx, 0); err != nil {
		return err
	}
	return c.post(ctx, client, initialized)
}

// post sends a message, which is to be acknowledged.
func (c *byEvents) post(ctx context.Context, client *http.Client, message string) error {
	status, _, body, err := post(ctx, client, c.url, message, nil)
	if err == nil && status != http.StatusAccepted {
		err = fmt.Errorf("the status is %d: %.300s", status, body)
	}
	if err != nil {
		return fmt.Errorf("post %.60s: %w", message, err)
	}
	return nil
}

// answer waits for an answer, which must be the next message.
func (c *byEvents) answer(ctx context.Context, id int) (string, error) {
	message, err := c.next(ctx)
	if err != nil {
		return "", fmt.Errorf("wait for the answer to %d: %w", id, err)
	}
	var said struct {
		ID     *int            `json:"id"`
		Result json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal([]byte(message), &said); err != nil || said.ID == nil || *said.ID != id || said.Result == nil {
		return "", fmt.Errorf("%.300s came in the place of the answer to %d", message, id)
	}
	return message, nil
}

// tick posts a call at an entry, and compares what comes on the stream with what came before.
func (c *byEvents) tick(ctx context.Context, entry *corev1.Pod) error {
	id := c.ticks + 1
	word := fmt.Sprintf("%d/%d", c.number, id)
	message := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"tick","arguments":{"text":"%s"}}}`, id, word)
	if err := c.post(ctx, byEntry(entry), message); err != nil {
		return err
	}
	text, err := c.answer(ctx, id)
	if err != nil {
		return err
	}
	said := tickText.FindStringSubmatch(text)
	switch {
	case said == nil || !slices.Equal(said[3:], []string{strconv.Itoa(id), word}):
		return fmt.Errorf("call %s was answered %.300s", word, text)
	case c.process != "" && c.process != said[2]:
		return errors.New("process " + said[2] + " answered in the place of process " + c.process)
	}
	c.owner, c.process, c.ticks = said[1], said[2], id
	return nil
}
