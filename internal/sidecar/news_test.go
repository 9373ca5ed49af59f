package sidecar

import (
	"bufio"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/listener"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/news"
	"github.com/slipway-mcp/slipway/test/hang"
)

const toolsChanged = "notifications/tools/list_changed"

// newsReplicas serves the server matrix in one of matrixBackends by several replicas, all of which have a list.
func newsReplicas(t *testing.T, count int, g *guard, backend string) []*replica {
	t.Helper()
	b := matrixBackends[backend]
	command := []string{matrixServer}
	if b.command != nil {
		command = []string{eraFilter, b.command[0], matrixServer}
	}
	replicas := startReplicas(t, count, func(c *config.Config) {
		c.MaxSessions = 64
		if g.gate != nil {
			c.Access = g.gate
		}
		if b.change != nil {
			b.change(c)
		}
	}, command...)
	enlist(t, 1, replicas, count, nil)
	return replicas
}

// hearer is a client without a session that listens at one replica.
type hearer struct {
	t      *testing.T
	events chan string
}

// listenAt has a client listen.
func (r *replica) listenAt(g *guard, token, filter string) *hearer {
	g.t.Helper()
	h := &hearer{g.t, make(chan string, 1024)}
	go h.read(subscribe(g, "http://"+r.host+Path, token, filter))
	return h
}

// read puts what the client hears of into the channel: the URI of a resource, or else the method.
func (h *hearer) read(events *bufio.Reader) {
	defer close(h.events)
	for {
		line, err := events.ReadString('\n')
		if err != nil {
			return
		}
		_, method, ok := strings.Cut(line, `"method":"`)
		if _, uri, updated := strings.Cut(line, `"uri":"`); updated {
			method = uri
		}
		if method, _, _ = strings.Cut(method, `"`); ok {
			h.events <- method
		}
	}
}

// next returns what the client hears of next.
func (h *hearer) next() string {
	h.t.Helper()
	select {
	case event, ok := <-h.events:
		if !ok {
			h.t.Fatal("the stream of the client has ended")
		}
		return event
	case <-time.After(hang.Guard):
		h.t.Fatal("the client hears of nothing")
		return ""
	}
}

// wants checks what the client hears of next, and that it hears of nothing before.
func (h *hearer) wants(event string) {
	h.t.Helper()
	if got := h.next(); got != event {
		h.t.Errorf("the client hears of %s, want %s", got, event)
	}
}

// hears does something once, and checks that the client hears of it, and of nothing before. The process must know that other
// pods listen.
func (h *hearer) hears(event string, change func()) {
	h.t.Helper()
	change()
	h.wants(event)
}

// starts has a request start a process at another replica. Clients hear that everything may have changed when that process
// knows that other pods listen.
func (h *hearer) starts(r *replica, g *guard, token string, events ...string) {
	h.t.Helper()
	r.callTool(g, token, "touch", "nothing")
	for _, event := range events {
		h.wants(event)
	}
}

// awaitStreams waits until so many pods tell the replica of their changes.
func (r *replica) awaitStreams(t *testing.T, count int) {
	t.Helper()
	gomega.NewWithT(t).Eventually(r.peers.news.Streams).WithTimeout(hang.Guard).Should(gomega.Equal(count))
}

// callTool calls a tool of a replica.
func (r *replica) callTool(g *guard, token, tool, key string) {
	g.t.Helper()
	s := &statelessSpeaker{g, "http://" + r.host + Path, token}
	if got := s.ask("tools/call", `"name":"`+tool+`","arguments":{"key":"`+key+`"}`); got.status != http.StatusOK || !strings.Contains(got.message, `"result"`) {
		g.t.Fatalf("%s: %d %s", tool, got.status, got.message)
	}
}

// A client that listens at one replica hears of the changes at another: of lists and of resources, and of nothing else. That holds for servers that speak 2026-07-28, and for those with
// sessions only whose process all clients share.
func TestNews(t *testing.T) {
	t.Parallel()
	for name, isShared := range map[string]bool{
		"a process for each session": false, "2026-07-28 only": false, "one process, and 2026-07-28": false, "one process, sessions only": true,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &guard{t: t}
			replicas := newsReplicas(t, 2, g, name)
			items := replicas[0].listenAt(g, "", `"resourceSubscriptions":["`+itemURI+`a","`+itemURI+`b"]`)
			replicas[0].awaitStreams(t, 1)
			if isShared { // the other process ran before, so it may have changed the resources
				items.wants(itemURI + "a")
				items.wants(itemURI + "b")
			} else {
				items.starts(replicas[1], g, "", itemURI+"a", itemURI+"b")
			}
			tools := replicas[0].listenAt(g, "", `"toolsListChanged":true`)
			items.hears(itemURI+"a", func() {
				replicas[1].callTool(g, "", "touch", "c")
				replicas[1].callTool(g, "", "touch", "a")
			})
			tools.hears(toolsChanged, func() { replicas[1].callTool(g, "", "grow", "x") })
			// More is wanted by now. It may have changed before.
			more := replicas[0].listenAt(g, "", `"resourceSubscriptions":["`+itemURI+`c"]`)
			more.wants(itemURI + "c")
		})
	}
}

// Clients that are translated have a part of the server at one replica, and need no news.
func TestNoNewsForTranslatedClients(t *testing.T) {
	t.Parallel()
	g := &guard{t: t}
	b := matrixBackends["sessions only"]
	replicas := startReplicas(t, 2, func(c *config.Config) { c.StatelessClients = config.Translate }, eraFilter, b.command[0], matrixServer)
	enlist(t, 1, replicas, 2, nil)
	replicas[0].listenAt(g, "", `"toolsListChanged":true`)
	if wants, _ := replicas[0].backend.Changes().Wanted(); len(wants) > 0 {
		t.Errorf("other pods are asked for %+v", wants)
	}
}

// A client hears only of what it would hear of with one replica: of the processes of its own user, or of the resources that
// it may read. The pod of the client decides.
func TestNewsByRights(t *testing.T) {
	t.Parallel()
	t.Run("processes of users", func(t *testing.T) {
		t.Parallel()
		g := newGuard(t, func(a *adapterapi.Access) {
			a.Rules[0].Tools = []string{"touch"} // of alice
			a.Hidden = nil
		})
		replicas := newsReplicas(t, 2, g, "a process for each session")
		root, alice := g.token("root", nil), g.token("alice", nil)
		filter := `"resourceSubscriptions":["` + itemURI + `a","` + itemURI + `b"]`
		hears := replicas[0].listenAt(g, alice, filter)
		replicas[0].awaitStreams(t, 1)
		rootHears := replicas[0].listenAt(g, root, filter)
		gomega.NewWithT(t).Eventually(func() int { return replicas[1].peers.news.Wants() }).WithTimeout(hang.Guard).Should(gomega.Equal(2))
		rootHears.starts(replicas[1], g, root, itemURI+"a", itemURI+"b")
		hears.starts(replicas[1], g, alice, itemURI+"a", itemURI+"b")
		rootHears.hears(itemURI+"a", func() { replicas[1].callTool(g, root, "touch", "a") })
		hears.hears(itemURI+"b", func() { replicas[1].callTool(g, alice, "touch", "b") })
	})
	t.Run("resources", func(t *testing.T) {
		t.Parallel()
		g := newGuard(t, func(a *adapterapi.Access) { a.Rules[1].Resources = []string{itemURI} }) // of bob
		replicas := newsReplicas(t, 2, g, "one process, and 2026-07-28")
		hears := replicas[0].listenAt(g, g.token("bob", nil), `"resourceSubscriptions":["`+itemURI+`a","`+itemURI+`b"]`)
		replicas[0].awaitStreams(t, 1)
		g.take(func(a *adapterapi.Access) { a.Rules[1].Resources = []string{itemURI + "b"} }) // since he subscribed
		root := g.token("root", nil)
		hears.starts(replicas[1], g, root, itemURI+"b")
		hears.hears(itemURI+"b", func() {
			replicas[1].callTool(g, root, "touch", "a")
			replicas[1].callTool(g, root, "touch", "b")
		})
	})
}

// A pod whose adapter was away may have changed everything when it comes back.
func TestNewsOfAPodThatComesBack(t *testing.T) {
	t.Parallel()
	g := &guard{t: t}
	replicas := newsReplicas(t, 2, g, "2026-07-28 only")
	hears := replicas[0].listenAt(g, "", `"toolsListChanged":true,"resourceSubscriptions":["`+itemURI+`a"]`)
	replicas[0].awaitStreams(t, 1)
	replicas[1].stop()
	replicas[0].awaitStreams(t, 0)
	cfg := replicas[1].env.Config
	cfg.Settings, cfg.Access = nil, nil
	l, err := listener.Listen(t.Context(), cfg.Owner.Address.String())
	if err != nil {
		t.Fatal(err)
	}
	again := startReplica(t, cfg, l, eraFilter, "modern", matrixServer)
	hears.wants(toolsChanged)
	hears.wants(itemURI + "a")
	hears.starts(again, g, "", toolsChanged, itemURI+"a")
	hears.hears(itemURI+"a", func() { again.callTool(g, "", "touch", "a") })
}

// A pod that drains tells of changes until it ends: its sessions go on. Clients hear that everything may have changed when it
// is gone, because its last news may be lost.
func TestNewsOfAPodThatDrains(t *testing.T) {
	t.Parallel()
	for name, isShared := range map[string]bool{"2026-07-28 only": false, "one process, sessions only": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &guard{t: t}
			replicas := newsReplicas(t, 2, g, name)
			hears := replicas[0].listenAt(g, "", `"resourceSubscriptions":["`+itemURI+`a"]`)
			replicas[0].awaitStreams(t, 1)
			session := at(t, replicas[1])
			session.open(t)
			if isShared {
				hears.wants(itemURI + "a")
			} else {
				hears.hears(itemURI+"a", func() { session.touch(t, "nothing") }) // the process has started
			}
			enlist(t, 2, replicas, 2, func(i int, pod *adapterapi.PeerPod) { pod.Terminating = i == 1 })
			replicas[1].Drain()
			hears.hears(itemURI+"a", func() { session.touch(t, "a") })
			if err := session.delete(t.Context()); err != nil {
				t.Fatal(err)
			}
			<-replicas[1].Drained()
			replicas[0].awaitStreams(t, 0)
			enlist(t, 3, replicas, 1, nil)
			hears.wants(itemURI + "a")
		})
	}
}

// touch changes a resource of the server matrix.
func (c *client) touch(t *testing.T, key string) {
	t.Helper()
	if err := c.expect(t.Context(), call(1, "touch", `"key":"`+key+`"`), "touched"); err != nil {
		t.Fatal(err)
	}
}

// However many clients listen, there is one stream from each other pod, and none when all have gone.
func TestNewsStreams(t *testing.T) {
	t.Parallel()
	g := &guard{t: t}
	replicas := newsReplicas(t, 3, g, "2026-07-28 only")
	transport := &http.Transport{}
	client := &http.Client{Transport: transport}
	var bodies []io.Closer
	for i := range 50 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+replicas[0].host+Path,
			strings.NewReader(requestText("subscriptions/listen", `"notifications":{"toolsListChanged":true,"resourceSubscriptions":["`+itemURI+strconv.Itoa(i%2)+`"]},`+modernMeta)))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{
			"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen",
		} {
			r.Header.Set(name, value)
		}
		response, err := client.Do(r)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%v %v", response, err)
		}
		bodies = append(bodies, response.Body)
		defer func() { _ = response.Body.Close() }()
		if method := nextNotice(t, bufio.NewReader(response.Body)); !strings.HasSuffix(method, "acknowledged") {
			t.Fatalf("the subscription begins with %s", method)
		}
	}
	replicas[0].awaitStreams(t, 2)
	gomega.NewWithT(t).Eventually(replicas[0].peers.newsRelay.Streams).WithTimeout(hang.Guard).Should(gomega.Equal(2))
	if text := replicas[0].metric(t, "slipway_adapter_news_streams"); !strings.Contains(text, "2") {
		t.Errorf("the metric is %s", text)
	}
	for i, r := range replicas[1:] {
		if n := r.peers.newsRelay.Streams(); n > 0 {
			t.Errorf("replica %d has %d streams, and nothing listens there", i+1, n)
		}
	}
	for _, body := range slices.Backward(bodies) {
		_ = body.Close()
	}
	transport.CloseIdleConnections()
	replicas[0].awaitStreams(t, 0)
	gomega.NewWithT(t).Eventually(func() int { return replicas[1].peers.news.Wants() + replicas[2].peers.news.Wants() }).WithTimeout(hang.Guard).Should(gomega.Equal(0))
}

// The port for clients knows nothing of news.
func TestNewsAreForPods(t *testing.T) {
	t.Parallel()
	replicas := startReplicas(t, 1, nil)
	response := (&guard{t: t}).request(http.MethodGet, "http://"+replicas[0].host+news.Path, "", "")
	_ = response.Body.Close()
	if response.StatusCode != http.StatusNotFound {
		t.Errorf("got %s", response.Status)
	}
}
