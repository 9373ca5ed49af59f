package sidecar

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/test/hang"
)

// listOwn gives the replica a list that has nothing but itself.
func (r *replica) listOwn(t *testing.T, own adapterapi.PeerPod) {
	t.Helper()
	own.UID = hex.EncodeToString(r.env.Owner.UID[:])
	r.list(t, 1, own)
}

func (r *replica) awaitSessions(t *testing.T, count int) {
	t.Helper()
	gomega.NewWithT(t).Eventually(r.env.Sessions.Len).WithTimeout(hang.Guard).Should(gomega.Equal(count))
}

func (r *replica) awaitDrained(t *testing.T) {
	t.Helper()
	gomega.NewWithT(t).Eventually(r.Drained()).WithTimeout(hang.Guard).Should(gomega.BeClosed())
}

// longDrain is for drains that end by something else than their time.
func longDrain(c *config.Config) { c.DrainTimeout = longer }

// stream opens the stream of the client's session. The channel closes when it ends.
func (c *client) stream(t *testing.T) (ended <-chan struct{}) {
	t.Helper()
	response, err := c.do(t.Context(), http.MethodGet, "")
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("stream: %v, %v", response, err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}()
	return over
}

// question makes a call that has its answer when the client answers the question.
func (c *client) question(t *testing.T) (stream io.ReadCloser, answer, event string) {
	t.Helper()
	asked, err := c.post(t.Context(), call(1, "ask", `"text":"still there?"`))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = asked.Body.Close() })
	question, event := nextEvent(t, asked.Body)
	return asked.Body, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"answer":"yes"}}}`, idIn(t, question)), event
}

func (c *client) accepted(t *testing.T, message string) {
	t.Helper()
	response, err := c.post(t.Context(), message)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusAccepted {
		t.Errorf("got %s", response.Status)
	}
}

// Sessions of a pod that goes away live on, for clients that reach it and for those that reach another pod, until its
// time is up. Then they are over everywhere.
func TestSessionsOutliveTheBeginningOfADrain(t *testing.T) {
	t.Parallel()
	replicas := startReplicas(t, 2, longDrain)
	owner := replicas[0]
	idle, busy, direct := clientOf(t, replicas), clientOf(t, replicas), mustOpen(t, "http://"+owner.host+Path)
	streams := []<-chan struct{}{idle.stream(t), direct.stream(t)}
	asked, answer, event := busy.question(t)
	owner.Leave()
	gomega.NewWithT(t).Eventually(func() error { return owner.env.Sessions.Draining().Err() }).WithTimeout(hang.Guard).Should(gomega.HaveOccurred())

	for range 20 {
		idle.must(t, http.StatusOK)
		direct.must(t, http.StatusOK)
	}
	_ = asked.Close() // a stream that breaks off
	busy.headers = map[string]string{"Last-Event-ID": event}
	resumed, err := busy.do(t.Context(), http.MethodGet, "")
	if err != nil || resumed.StatusCode != http.StatusOK {
		t.Fatalf("resume: %v, %v", resumed, err)
	}
	defer func() { _ = resumed.Body.Close() }()
	busy.headers = nil
	busy.accepted(t, answer)
	if result, _ := nextEvent(t, resumed.Body); !strings.Contains(result, `"id":1`) || !strings.Contains(result, "result") {
		t.Errorf("got %q", result)
	}
	for i, stream := range streams {
		select {
		case <-stream:
			t.Errorf("stream %d has ended", i)
		default:
		}
	}
	again := idle.stream(t)
	owner.checkDraining(t, 3)

	owner.listOwn(t, adapterapi.PeerPod{DrainSeconds: 1})
	owner.awaitDrained(t)
	for _, stream := range append(streams, again) {
		<-stream
	}
	for _, c := range []*client{idle, busy, direct} {
		c.must(t, http.StatusNotFound)
	}
}

// checkDraining looks at what tells the kubelet and the manager about a pod that drains.
func (r *replica) checkDraining(t *testing.T, sessions int64) {
	t.Helper()
	if got := published(t, r.Adapter, "draining")(); got != 1 {
		t.Errorf("draining is %d", got)
	}
	if got := r.countSessions().Open; got != sessions {
		t.Errorf("it reports %d sessions, want %d", got, sessions)
	}
	select {
	case <-r.Drained():
		t.Error("drained")
	default:
	}
	for path, want := range map[string]string{
		adapterapi.PathReady: "", adapterapi.PathMetrics: fmt.Sprintf("\nslipway_adapter_sessions %d\n", sessions),
	} {
		response, err := http.Get("http://" + r.admin + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(text), want) {
			t.Errorf("%s: %s, %v", path, response.Status, err)
		}
	}
}

// The session of an HTTP server lives on, too.
func TestHTTPSessionsOutliveTheBeginningOfADrain(t *testing.T) {
	t.Parallel()
	at := serveHTTP(t, &httpServer{noDiscover: true, initialize: agreeToInitialize, call: func(w http.ResponseWriter, _ *http.Request, id string, _ []byte) {
		reply(w, id, `{"content":[]}`)
	}})
	replicas := startReplicas(t, 2, func(c *config.Config) {
		longDrain(c)
		c.Transport, c.UpstreamURL = config.StreamableHTTP, at
	})
	c := clientOf(t, replicas)
	replicas[0].Drain()
	for range 20 {
		c.must(t, http.StatusOK)
	}
	replicas[0].checkDraining(t, 1)
	response, err := c.do(t.Context(), http.MethodDelete, "") // the last session is the end of the drain
	if err != nil || response.StatusCode != http.StatusNoContent {
		t.Fatalf("end the session: %v, %v", response, err)
	}
	replicas[0].awaitDrained(t)
	c.must(t, http.StatusNotFound)
}

// A pod without sessions has nothing to wait for.
func TestIdlePodDrainsAtOnce(t *testing.T) {
	t.Parallel()
	replicas := startReplicas(t, 1, longDrain)
	replicas[0].Drain()
	replicas[0].awaitDrained(t)
}

// When all pods of the server end, or the kubelet ends this one, sessions end that have no call in flight. A call may
// finish.
func TestDrainThatIsCutShort(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(*testing.T, *replica){
		"all pods end":            func(t *testing.T, r *replica) { r.listOwn(t, adapterapi.PeerPod{Closing: true}) },
		"the kubelet's signal":    func(_ *testing.T, r *replica) { r.signal() },
		"both, one after another": func(t *testing.T, r *replica) { r.signal(); r.listOwn(t, adapterapi.PeerPod{Closing: true}) },
	} {
		for when, early := range map[string]bool{"before": true, "during": false} {
			t.Run(name+", "+when, func(t *testing.T) {
				t.Parallel()
				replicas := startReplicas(t, 2, longDrain)
				owner := replicas[0]
				idle, busy := clientOf(t, replicas), clientOf(t, replicas)
				asked, answer, _ := busy.question(t)
				if early {
					cut(t, owner)
				} else {
					idle.must(t, http.StatusOK)
				}
				owner.Drain()
				if !early {
					idle.must(t, http.StatusOK)
					cut(t, owner)
				}
				owner.awaitSessions(t, 1)
				idle.must(t, http.StatusNotFound)
				select {
				case <-owner.Drained():
					t.Error("drained with a call in flight")
				default:
				}
				busy.accepted(t, answer)
				if result, _ := nextEvent(t, asked); !strings.Contains(result, `"id":1`) {
					t.Errorf("got %q", result)
				}
				owner.awaitDrained(t)
			})
		}
	}
}

// A call that is in flight at the deadline gets an error.
func TestCallAtTheDeadlineOfADrain(t *testing.T) {
	t.Parallel()
	replicas := startReplicas(t, 2, longDrain)
	busy := clientOf(t, replicas)
	asked, _, _ := busy.question(t)
	replicas[0].listOwn(t, adapterapi.PeerPod{DrainSeconds: 1})
	replicas[0].Drain()
	if result, _ := nextEvent(t, asked); !strings.Contains(result, `"id":1,"error"`) || !strings.Contains(result, "this instance is going away") {
		t.Errorf("got %q", result)
	}
	replicas[0].awaitDrained(t)
	busy.must(t, http.StatusNotFound)
}

// A pod that drains for long keeps no processes for new sessions.
func TestNoSparesInADrain(t *testing.T) {
	t.Parallel()
	replicas := startReplicas(t, 2, func(c *config.Config) {
		longDrain(c)
		c.Warm, c.Era = 1, sessionless.Legacy
	})
	c := clientOf(t, replicas)
	processes := published(t, replicas[0].Adapter, "server_processes")
	g := gomega.NewWithT(t)
	g.Eventually(processes).WithTimeout(hang.Guard).Should(gomega.BeEquivalentTo(3), "of the session, the keeper and a spare")
	replicas[0].Drain()
	g.Eventually(processes).WithTimeout(hang.Guard).Should(gomega.BeEquivalentTo(2))
	c.must(t, http.StatusOK)
}

// awaitProcesses waits until so many processes of the server run.
func (r *replica) awaitProcesses(t *testing.T, want string) {
	t.Helper()
	gomega.NewWithT(t).Eventually(func() string { return r.metric(t, "slipway_adapter_server_processes") }).WithTimeout(hang.Guard).Should(gomega.Equal(want))
}

// Processes of clients without sessions that do nothing end when a drain begins, however long sessions stay. One with a call
// that waits for its client goes on until the client has come back.
func TestDrainEndsIdleProcesses(t *testing.T) {
	t.Parallel()
	replicas := startReplicas(t, 2, func(c *config.Config) {
		longDrain(c)
		c.StatelessClients = config.Translate
	})
	owner, client := replicas[0], asking{t}
	c := mustOpen(t, "http://"+owner.host+Path)
	state := client.park(owner, 1)
	if got := client.call(owner, "echo", `"arguments":{"text":"x"},`); got.text() == "" {
		t.Fatalf("got %+v", got)
	}
	owner.awaitProcesses(t, "4") // of the session, of the two calls, and the keeper's
	owner.Drain()
	owner.awaitProcesses(t, "3")
	if got := client.goOn(replicas[1], 1, state); !strings.Contains(got.text(), "1!") {
		t.Errorf("got %+v", got)
	}
	owner.awaitProcesses(t, "2")
	c.must(t, http.StatusOK)
	if err := c.delete(t.Context()); err != nil {
		t.Error(err)
	}
	owner.awaitDrained(t)
}

// A pod without sessions that drains ends at once, or when the last call that waits for its client has gone on.
func TestDrainWithoutSessions(t *testing.T) {
	t.Parallel()
	for name, parks := range map[string]bool{"idle": false, "with a parked call": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			replicas := startReplicas(t, 2, func(c *config.Config) {
				longDrain(c)
				c.StatelessClients = config.Translate
			})
			owner, client := replicas[0], asking{t}
			var state string
			if parks {
				state = client.park(owner, 1)
			}
			if got := client.call(owner, "echo", `"arguments":{"text":"x"},`); got.text() == "" {
				t.Fatalf("got %+v", got)
			}
			owner.Drain()
			if parks {
				owner.awaitProcesses(t, "2")
				gomega.NewWithT(t).Consistently(owner.Drained()).WithTimeout(time.Second).ShouldNot(gomega.BeClosed())
				if got := client.goOn(replicas[1], 1, state); !strings.Contains(got.text(), "1!") {
					t.Errorf("got %+v", got)
				}
			}
			owner.awaitDrained(t)
		})
	}
}
