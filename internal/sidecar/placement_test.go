package sidecar

import (
	"context"
	cryptorand "crypto/rand"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/launcher"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer"
	"github.com/slipway-mcp/slipway/internal/sidecar/places"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/test/hang"
)

// limits has replicas take so many sessions, in their order. One process has all sessions of a replica.
func limits(of ...int) func(*config.Config) {
	return func(c *config.Config) {
		c.Shared, c.MaxSessions = true, of[0]
		of = of[1:]
	}
}

// enlist gives all replicas a list with the first of them. Each is ready, verified and of the newest template, unless
// change says otherwise.
func enlist(t *testing.T, generation int64, replicas []*replica, count int, change func(i int, pod *adapterapi.PeerPod)) {
	t.Helper()
	var pods []adapterapi.PeerPod
	for i, r := range replicas[:count] {
		pod := adapterapi.PeerPod{
			UID: hex.EncodeToString(r.env.Owner.UID[:]), Address: r.env.Owner.Address.String(),
			Ready: true, Verified: true, Newest: true, Sessions: int64(r.env.Sessions.Len()), Limit: int64(r.env.MaxSessions),
		}
		if change != nil {
			change(i, &pod)
		}
		pods = append(pods, pod)
	}
	for _, r := range replicas {
		r.list(t, generation, pods...)
	}
}

// at returns a client of one replica. It keeps its connection.
func at(t *testing.T, r *replica) *client {
	t.Helper()
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &client{url: "http://" + r.host + Path, http: &http.Client{Transport: transport}}
}

// open opens a session. It has no other than the client's own time limit.
func (c *client) open(t *testing.T) {
	t.Helper()
	if err := c.initialize(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// hold opens a session that does not end for another one: it has a stream.
func (c *client) hold(t *testing.T) {
	t.Helper()
	c.open(t)
	stream, err := c.do(t.Context(), http.MethodGet, "")
	if err != nil || stream.StatusCode != http.StatusOK {
		t.Fatalf("got %v, %v", stream, err)
	}
	t.Cleanup(func() { _ = stream.Body.Close() })
}

// work has a call in flight until the test ends.
func (c *client) work(t *testing.T) {
	t.Helper()
	asked, err := c.post(t.Context(), call(1, "ask", `"text":"still there?"`))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = asked.Body.Close() })
	nextEvent(t, asked.Body)
}

func (r *replica) sessions() int { return r.env.Sessions.Len() }

// A pod whose server's container has ended sends new sessions to others, and takes none of them. The kubelet waits before it
// starts the container again, and until it says so to all, clients still come here.
func TestPlacementWithoutAServer(t *testing.T) {
	t.Parallel()
	var replicas []*replica
	var endContainers []func()
	for i, peers := range peerListeners(t, 3) {
		host, endContainer := startContainer(t)
		endContainers = append(endContainers, endContainer)
		cfg := replicaConfig(i, peers)
		cfg.Keys = newKeys(t)
		replicas = append(replicas, serveReplica(t, host, cfg, newListener(t), peers))
	}
	awaitReady(t, replicas...)
	enlist(t, 1, replicas, 3, nil)
	for _, endContainer := range endContainers[:2] {
		endContainer()
	}
	for _, without := range replicas[:2] {
		for range 8 { // half of them ask the other pod without a server first
			newcomer := at(t, without)
			newcomer.open(t)
			newcomer.must(t, 200)
		}
	}
	if got := []int{replicas[0].sessions(), replicas[1].sessions(), replicas[2].sessions()}; !cmp.Equal(got, []int{0, 0, 16}) {
		t.Errorf("sessions: %v, want all where the server is", got)
	}
}

// startContainer starts a launcher of the echo server. The returned function kills it, and waits until the adapter may know.
func startContainer(t *testing.T) (host *launcher.Host, end func()) {
	t.Helper()
	socket := filepath.Join(filepath.Dir(launcherProgram), "s"+cryptorand.Text()[:8])
	host, err := launcher.Listen(socket, launcher.HostOptions{})
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(context.WithoutCancel(t.Context()), launcherProgram, "--socket", socket, "--", echoServer)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		gomega.NewWithT(t).Eventually(host.Connected).WithTimeout(hang.Guard).Should(gomega.BeFalse())
	})
	t.Cleanup(end)
	return host, end
}

func (r *replica) wantPlaced(t *testing.T, here, peers, refused uint64) {
	t.Helper()
	p := r.peers.placer
	got := []uint64{p.Placed(peer.Here), p.Placed(peer.Peer), p.Placed(peer.Refused)}
	if diff := cmp.Diff([]uint64{here, peers, refused}, got); diff != "" {
		t.Errorf("placed here, at peers, refused (-want +got):\n%s", diff)
	}
}

// metric returns the value of a metric.
func (r *replica) metric(t *testing.T, name string) string {
	t.Helper()
	w := httptest.NewRecorder()
	r.Adapter.admin.Handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("there is no metric %s", name)
	return ""
}

// No client is refused while a pod has a free slot, wherever it connects: at a pod that is full, cordoned, draining, or
// that has one. The cordoned pod is the last resort, and the draining one opens none.
func TestPlacement(t *testing.T) {
	t.Parallel()
	const count = 100
	set := limits(1, 1, 5, count)
	replicas := startReplicas(t, 4, func(c *config.Config) {
		set(c)
		c.Shared = c.MaxSessions > 1 // a shared process asks its clients nothing, as busy below is asked
	})
	full, drains, cordoned, free := replicas[0], replicas[1], replicas[2], replicas[3]
	at(t, full).hold(t)
	busy := at(t, drains)
	busy.open(t)
	busy.work(t)
	drains.Drain()
	enlist(t, 1, replicas, 4, func(i int, pod *adapterapi.PeerPod) {
		switch replicas[i] {
		case drains:
			pod.Ready, pod.Terminating = false, true
		case cordoned:
			pod.Cordoned = true
		}
	})
	fill := func(sessions int) {
		t.Helper()
		var running sync.WaitGroup
		for n := range sessions {
			running.Go(func() {
				c := at(t, replicas[n%len(replicas)])
				if err := c.initialize(t.Context()); err != nil {
					t.Error(err)
					return
				}
				c.url = "http://" + replicas[rand.IntN(len(replicas))].host + Path
				c.must(t, http.StatusOK)
			})
		}
		running.Wait()
	}
	fill(count)
	if got := []int{full.sessions(), drains.sessions(), cordoned.sessions(), free.sessions()}; !slices.Equal(got, []int{1, 1, 0, count}) {
		t.Errorf("the full, draining, cordoned and free pods have %v sessions", got)
	}
	fill(5)
	if got := []int{full.sessions(), drains.sessions(), cordoned.sessions(), free.sessions()}; !slices.Equal(got, []int{1, 1, 5, count}) {
		t.Errorf("with the free pod full, they have %v sessions", got)
	}
	if cordoned.metric(t, "slipway_adapter_cordoned") != "1" || free.metric(t, "slipway_adapter_cordoned") != "0" {
		t.Error("the metrics do not say which pod is cordoned")
	}
	if got := full.metric(t, `slipway_adapter_placed_total{where="peer"}`); got == "0" {
		t.Error("the full pod has passed on nothing")
	}
}

// A burst at one entry fills that, and spreads over the others. No pod is asked for more than it takes.
func TestBurst(t *testing.T) {
	t.Parallel()
	const limit, others, sessions = 20, 4, 80
	replicas := startReplicas(t, 1+others, limits(limit, limit, limit, limit, limit))
	enlist(t, 1, replicas, len(replicas), nil)
	var running sync.WaitGroup
	for range sessions {
		running.Go(func() {
			if err := at(t, replicas[0]).initialize(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	replicas[0].wantPlaced(t, limit, sessions-limit, 0)
	const mean = (sessions - limit) / others
	for i, r := range replicas[1:] {
		if got := r.sessions(); got < mean-4 || got > mean+4 {
			t.Errorf("replica %d has %d sessions, and they have %d on average", i+1, got, mean)
		}
		r.wantPlaced(t, 0, 0, 0)
	}
}

// By chance alone, some pod would be overfilled in every second case.
func TestNoChanceOverfillsAPod(t *testing.T) {
	t.Parallel()
	const limit, sessions = 20, 80
	replicas := startReplicas(t, 5, limits(limit, limit, limit, limit, limit))
	enlist(t, 1, replicas, len(replicas), nil)
	var running sync.WaitGroup
	for range sessions {
		running.Go(func() {
			// A third of the clients go to the first.
			if err := at(t, replicas[max(0, rand.IntN(6)-1)]).initialize(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	sum := 0
	for _, r := range replicas {
		sum += r.sessions()
	}
	if sum != sessions {
		t.Errorf("%d sessions are open, want %d", sum, sessions)
	}
}

// A pod that has no slot, although the list says so, refuses before it starts a process. The next one takes the session,
// and the client notices nothing.
func TestRefusedPlaceStartsNothing(t *testing.T) {
	t.Parallel()
	replicas := startReplicas(t, 3, func(c *config.Config) { c.MaxSessions, c.Era = 2, sessionless.Legacy })
	entry, full, free := replicas[0], replicas[1], replicas[2]
	for range 2 {
		at(t, full).hold(t)
		at(t, entry).hold(t)
	}
	enlist(t, 1, replicas, 3, func(i int, pod *adapterapi.PeerPod) {
		switch replicas[i] {
		case full:
			pod.Sessions = 0
		case free:
			pod.Sessions = 2
		}
	})
	const starts, refused, answers = "slipway_adapter_server_starts_total", "slipway_adapter_refused_sessions_total", `slipway_adapter_answers_total{code="503"}`
	before := full.metric(t, starts)
	c := at(t, entry)
	c.open(t)
	c.must(t, http.StatusOK)
	if full.metric(t, starts) != before || full.sessions() != 2 || free.sessions() != 1 || entry.sessions() != 2 {
		t.Errorf("%s processes were started and then %s; sessions: %d, %d, %d", before, full.metric(t, starts), entry.sessions(), full.sessions(), free.sessions())
	}
	if full.metric(t, refused) != "0" || full.metric(t, answers) != "0" {
		t.Error("the pod counts a client as refused that has a session elsewhere")
	}
	entry.wantPlaced(t, 2, 1, 0)
	began := full.metric(t, `mcp_server_operation_duration_seconds_count{error_type="",mcp_method_name="initialize",mcp_protocol_version="2025-11-25"}`)
	if began != "2" {
		t.Errorf("the pod counts %s clients that began", began)
	}
}

// When all pods are full, a newcomer waits for a slot of any of them before an idle session ends for it.
func TestIdleSessionEndsLast(t *testing.T) {
	t.Parallel()
	const patience = 7 * time.Second // an idle session could end after 5 s
	replicas := startReplicas(t, 2, func(c *config.Config) { c.MaxSessions, c.Patience, c.Shared = 1, patience, true })
	idle := at(t, replicas[0])
	idle.open(t)
	at(t, replicas[1]).hold(t)
	enlist(t, 1, replicas, 2, nil)
	began := time.Now()
	c := at(t, replicas[0])
	c.open(t)
	if waited := time.Since(began); waited < patience-patience/10 {
		t.Errorf("an idle session ended after %s", waited)
	}
	idle.must(t, http.StatusNotFound)
	c.must(t, http.StatusOK)
	if got := replicas[0].env.Sessions.Places.Evicted(places.Opened); got != 1 {
		t.Errorf("%d sessions ended for others", got)
	}
	replicas[0].wantPlaced(t, 2, 0, 0)
}

// newcomer has a client wait for a session, at a pod that has none.
func newcomer(t *testing.T, r *replica) (c *client, opened chan error) {
	t.Helper()
	c, opened = at(t, r), make(chan error, 1)
	go func() { opened <- c.initialize(t.Context()) }()
	for deadline := time.Now().Add(hang.Guard); r.env.Sessions.Places.Waiting() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the newcomer does not wait")
		}
	}
	return c, opened
}

// A newcomer that waits gets a slot here as soon as one is free, or one of a pod that a new list names.
func TestNewcomerWaits(t *testing.T) {
	t.Parallel()
	for name, free := range map[string]struct {
		do  func(t *testing.T, replicas []*replica, occupant *client)
		at  int // the replica that gets the session
		say []uint64
	}{
		"here": {func(t *testing.T, _ []*replica, occupant *client) {
			if err := occupant.delete(t.Context()); err != nil {
				t.Error(err)
			}
		}, 0, []uint64{2, 0, 0}},
		"at a new pod": {func(t *testing.T, replicas []*replica, _ *client) {
			enlist(t, 2, replicas, 3, nil)
		}, 2, []uint64{1, 1, 0}},
		"at a pod that the list says has one": {func(t *testing.T, replicas []*replica, _ *client) {
			replicas[1].env.Sessions.All()[0].End(context.Canceled)
			enlist(t, 2, replicas, 2, nil)
		}, 1, []uint64{1, 1, 0}},
		"at a pod that no list says has one, because this pod drains": {func(t *testing.T, replicas []*replica, _ *client) {
			replicas[1].env.Sessions.All()[0].End(context.Canceled)
			gomega.NewWithT(t).Eventually(replicas[1].env.Sessions.Places.Taken).WithTimeout(hang.Guard).Should(gomega.BeZero())
			replicas[0].Drain()
		}, 1, []uint64{1, 1, 0}},
		"at a new pod, while this pod drains": {func(t *testing.T, replicas []*replica, _ *client) {
			replicas[0].Drain()
			gomega.NewWithT(t).Eventually(replicas[0].env.Sessions.Places.Waiting).WithTimeout(hang.Guard).Should(gomega.BeZero())
			enlist(t, 2, replicas, 3, nil)
		}, 2, []uint64{1, 1, 0}},
		"at a new pod, although nothing else is left here": {func(t *testing.T, replicas []*replica, occupant *client) {
			replicas[0].Drain()
			if err := occupant.delete(t.Context()); err != nil {
				t.Error(err)
			}
			gomega.NewWithT(t).Eventually(replicas[0].env.Sessions.Len).WithTimeout(hang.Guard).Should(gomega.BeZero())
			gomega.NewWithT(t).Consistently(replicas[0].Drained()).WithTimeout(time.Second).ShouldNot(gomega.BeClosed(), "the newcomer waits")
			enlist(t, 2, replicas, 3, nil)
		}, 2, []uint64{1, 1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			replicas := startReplicas(t, 3, func(c *config.Config) { c.MaxSessions, c.Patience, c.Shared = 1, hang.Guard, true })
			occupant := at(t, replicas[0])
			occupant.open(t)
			at(t, replicas[1]).open(t)
			enlist(t, 1, replicas, 2, nil)
			c, opened := newcomer(t, replicas[0])
			free.do(t, replicas, occupant)
			if err := <-opened; err != nil {
				t.Fatal(err)
			}
			c.url = "http://" + replicas[free.at].host + Path
			c.must(t, http.StatusOK)
			if owner, err := replicas[0].env.Keys.Parse(c.session); err != nil || owner.UID != replicas[free.at].env.Owner.UID {
				t.Errorf("the session is at %v (%v), want replica %d", owner, err, free.at)
			}
			replicas[0].wantPlaced(t, free.say[0], free.say[1], free.say[2])
			if waiting := replicas[0].env.Sessions.Places.Waiting(); waiting != 0 {
				t.Errorf("%d still wait", waiting)
			}
		})
	}
}

// A newcomer that waits at a pod which begins to drain is refused when its patience is over, and no pod has had room by then.
// The drain does not end before. One that comes later is refused at once, to try another pod.
func TestNewcomerAtADrainingPodWithoutRoom(t *testing.T) {
	t.Parallel()
	const patience = 3 * time.Second
	replicas := startReplicas(t, 2, func(c *config.Config) { c.MaxSessions, c.Patience, c.Shared = 1, patience, true })
	for _, r := range replicas {
		at(t, r).hold(t)
	}
	enlist(t, 1, replicas, 2, nil)
	began := time.Now()
	_, opened := newcomer(t, replicas[0])
	replicas[0].Drain()
	gomega.NewWithT(t).Eventually(func() error { return at(t, replicas[0]).initialize(t.Context()) }).WithTimeout(hang.Guard).
		Should(gomega.MatchError(gomega.ContainSubstring("503")))
	if err := <-opened; err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("the newcomer got %v", err)
	}
	if waited := time.Since(began); waited < patience-patience/10 {
		t.Errorf("it was refused after %s", waited)
	}
}

// A list that is out of date places nothing: everything is as without one.
func TestPlacementWithoutAList(t *testing.T) {
	t.Parallel()
	replicas := startReplicas(t, 2, func(c *config.Config) { c.MaxSessions, c.Patience, c.Shared = 1, 50*time.Millisecond, true })
	at(t, replicas[0]).hold(t)
	response, err := at(t, replicas[0]).post(t.Context(), initializeMessage)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" {
		t.Errorf("got %s, %v", response.Status, response.Header)
	}
	replicas[0].wantPlaced(t, 1, 0, 1)
	if replicas[0].dials() != 0 {
		t.Error("the pod asks others")
	}
}
