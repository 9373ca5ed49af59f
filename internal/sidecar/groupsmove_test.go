package sidecar

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/test/hang"
)

// When the pod with the memory of a group is gone, the next request begins with a new one elsewhere: at one pod, although the
// list has the old one still.
func TestHomeIsGone(t *testing.T) {
	t.Parallel()
	replicas := startReplicas(t, 4, translating)
	enlist(t, 1, replicas, 4, nil)
	m := member{t: t}
	for i, r := range replicas {
		m.wantCount(r, i+1)
	}
	home, others := homeAmong(t, replicas)
	home.stop()
	for i := range 2 * len(others) {
		m.wantCount(others[i%len(others)], i+1)
	}
	next, _ := homeAmong(t, others)
	var left []adapterapi.PeerPod
	for _, r := range others {
		left = append(left, adapterapi.PeerPod{UID: fmt.Sprintf("%x", r.env.Owner.UID), Address: r.env.Owner.Address.String(), Ready: true, Verified: true, Newest: true})
	}
	for _, r := range others {
		r.list(t, 2, left...)
	}
	for i, r := range others {
		m.wantCount(r, 2*len(others)+i+1)
	}
	if again, _ := homeAmong(t, others); again != next {
		t.Error("the list moves the group that had moved already")
	}
}

// A call that the pod with the memory may have got is not made again.
func TestHomeIsLostInACall(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var connections []net.Conn
	replicas := startReplicas(t, 3, func(c *config.Config) {
		c.StatelessClients = config.Translate
		c.DialPeer = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
			mu.Lock()
			defer mu.Unlock()
			connections = append(connections, connection)
			return connection, err
		}
	})
	enlist(t, 1, replicas, 3, nil)
	m := member{t: t}
	m.wantCount(replicas[0], 1)
	home, others := homeAmong(t, replicas)
	ctx, cancel := context.WithTimeout(t.Context(), hang.Guard)
	defer cancel()
	answered := make(chan int, 1)
	go func() {
		response, err := m.do(ctx, others[0], "tools/call", `"name":"sleep","arguments":{"ms":3600000},`)
		if err != nil {
			t.Error(err)
			answered <- 0
			return
		}
		_ = response.Body.Close()
		answered <- response.StatusCode
	}()
	gomega.NewWithT(t).Eventually(func() string { return home.metric(t, "slipway_adapter_operations_in_flight") }).
		WithTimeout(hang.Guard).Should(gomega.Equal("1"))
	mu.Lock()
	for _, connection := range connections {
		_ = connection.Close()
	}
	mu.Unlock()
	if status := <-answered; status != http.StatusBadGateway {
		t.Errorf("got %d", status)
	}
	if n := others[0].memories(t) + others[1].memories(t); n != 0 {
		t.Errorf("the call was made again: there are %d more memories", n)
	}
}

// A pod that refuses a group's request has answered it. No other pod begins with a second memory.
func TestHomeIsBusy(t *testing.T) {
	t.Parallel()
	replicas := startReplicas(t, 3, func(c *config.Config) { c.StatelessClients, c.MaxSessions = config.Translate, 1 })
	enlist(t, 1, replicas, 3, nil)
	m := member{t: t, capabilities: canBeAsked}
	_, _, parked := m.ask(replicas[0], "tools/call", `"name":"ask","arguments":{"text":"?"},`)
	if parked.Result.State == "" {
		t.Fatalf("the call is not parked: %+v", parked)
	}
	var running sync.WaitGroup
	for _, r := range replicas {
		running.Go(func() {
			status, header, answer := m.ask(r, "tools/call", `"name":"count",`)
			if status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" || !strings.Contains(answer.Error.Message, "every process") {
				t.Errorf("got %d %v %+v", status, header, answer)
			}
		})
	}
	running.Wait()
	homeAmong(t, replicas)
}

// A group leaves a pod that is cordoned. When the cordon is over it comes back, to the memory that it had.
func TestCordonMovesGroups(t *testing.T) {
	t.Parallel()
	replicas := startReplicas(t, 3, translating)
	enlist(t, 1, replicas, 3, nil)
	m := member{t: t}
	for i, r := range replicas {
		m.wantCount(r, i+1)
	}
	home, others := homeAmong(t, replicas)
	enlist(t, 2, replicas, 3, func(i int, pod *adapterapi.PeerPod) { pod.Cordoned = replicas[i] == home })
	for i, r := range replicas {
		m.wantCount(r, i+1)
	}
	homeAmong(t, others)
	enlist(t, 3, replicas, 3, nil)
	for i, r := range replicas {
		m.wantCount(r, len(replicas)+i+1)
	}
}

// A pod that drains passes requests on to where the group is now, and tells clients to connect elsewhere. Calls that it
// has begun finish.
func TestHomeDrains(t *testing.T) {
	t.Parallel()
	replicas := startReplicas(t, 3, translating)
	enlist(t, 1, replicas, 3, nil)
	m := member{t: t, capabilities: canBeAsked}
	_, _, parked := m.ask(replicas[0], "tools/call", `"name":"ask","arguments":{"text":"?"},`)
	home, others := homeAmong(t, replicas)
	home.Drain()
	enlist(t, 2, replicas, 3, func(i int, pod *adapterapi.PeerPod) {
		if replicas[i] == home {
			pod.Ready, pod.Terminating = false, true
		}
	})
	response, err := m.do(t.Context(), home, "tools/call", `"name":"count",`)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK || !response.Close {
		t.Errorf("at the pod that drains: %s, to be closed: %t", response.Status, response.Close)
	}
	m.wantCount(others[0], 2)
	m.wantCount(others[1], 3)
	// The call goes on where its state says.
	_, _, answer := m.ask(others[0], "tools/call", `"name":"ask","arguments":{"text":"?"},"requestState":"`+parked.Result.State+`","inputResponses":{"r1":{"action":"accept","content":{"answer":"yes"}}},`)
	if !strings.Contains(answer.text(), "yes") {
		t.Errorf("the call goes on with %+v", answer)
	}
}

// A subscription belongs to the pod with the group's memory. It hears of what calls at other entries change. It breaks
// off when its entry drains, so that the client subscribes elsewhere.
func TestSubscriptionsOfGroups(t *testing.T) {
	t.Parallel()
	replicas := startReplicas(t, 3, translating)
	enlist(t, 1, replicas, 3, nil)
	m := member{t: t}
	m.wantCount(replicas[0], 1)
	_, others := homeAmong(t, replicas)
	ctx, cancel := context.WithTimeout(t.Context(), hang.Guard)
	defer cancel()
	stream, err := m.do(ctx, others[0], "subscriptions/listen", `"notifications":{"toolsListChanged":true},`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Body.Close() }()
	lines := bufio.NewScanner(stream.Body)
	next := func() string {
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return data
			}
		}
		return ""
	}
	if first := next(); !strings.Contains(first, "acknowledged") {
		t.Fatalf("got %q", first)
	}
	if streams := others[0].peers.relay.Streams(); streams != 1 {
		t.Errorf("the entry passes on %d streams", streams)
	}
	if status, _, answer := m.ask(others[1], "tools/call", `"name":"changed",`); status != http.StatusOK || answer.Error.Code != 0 {
		t.Fatalf("got %d %+v", status, answer)
	}
	if change := next(); !strings.Contains(change, "tools/list_changed") {
		t.Fatalf("got %q", change)
	}
	others[0].Drain()
	if rest := next(); rest != "" || lines.Err() == nil {
		t.Errorf("the stream ends with %q, %v", rest, lines.Err())
	}
	select {
	case <-others[0].Drained():
	case <-ctx.Done():
		t.Error("the drain waits for the subscription")
	}
}

// When the list gives a group another home, the subscriptions of its clients end: the former home hears of no change any more. The
// next ones do.
func TestSubscriptionsMoveWithTheirGroup(t *testing.T) {
	t.Parallel()
	for name, atHome := range map[string]bool{"passed on": false, "at the home": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			replicas := startReplicas(t, 3, translating)
			enlist(t, 1, replicas, 3, nil)
			m := member{t: t}
			m.wantCount(replicas[0], 1)
			home, others := homeAmong(t, replicas)
			at := others[0]
			if atHome {
				at = home
			}
			ctx, cancel := context.WithTimeout(t.Context(), hang.Guard)
			defer cancel()
			listen := func() (next func() string) {
				t.Helper()
				stream, err := m.do(ctx, at, "subscriptions/listen", `"notifications":{"toolsListChanged":true},`)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = stream.Body.Close() })
				lines := bufio.NewScanner(stream.Body)
				next = func() string {
					for lines.Scan() {
						if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
							return data
						}
					}
					return ""
				}
				if first := next(); !strings.Contains(first, "acknowledged") {
					t.Fatalf("the subscription begins with %q", first)
				}
				return next
			}
			next := listen()
			enlist(t, 2, replicas, 3, func(i int, pod *adapterapi.PeerPod) { pod.Cordoned = replicas[i] == home })
			if event := next(); event != "" || ctx.Err() != nil {
				t.Fatalf("the subscription goes on with %q, %v", event, ctx.Err())
			}
			next = listen()
			if status, _, answer := m.ask(others[1], "tools/call", `"name":"changed",`); status != http.StatusOK || answer.Error.Code != 0 {
				t.Fatalf("got %d %+v", status, answer)
			}
			if event := next(); !strings.Contains(event, toolsChanged) {
				t.Errorf("the next subscription hears of %q", event)
			}
		})
	}
}
