package sidecar

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/audit"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/test/hang"
)

// The client gets what the owner says, byte for byte, and no header between pods.
func TestPlacedAnswer(t *testing.T) {
	t.Parallel()
	server := &httpServer{initialize: func(w http.ResponseWriter, r *http.Request, id string) {
		for name := range r.Header {
			if strings.HasPrefix(name, "Slipway-") {
				t.Errorf("the server gets %s", name)
			}
		}
		w.Header().Set("Slipway-Load", "sessions=0, limit=1, refused") // a lie
		w.Header().Set("X-Own", "kept")
		agreeToInitialize(w, r, id)
	}}
	for name, kind := range map[string]func(*config.Config){
		"a process for each session": func(*config.Config) {},
		"one process for all":        func(c *config.Config) { c.Shared = true },
		"an HTTP server":             func(c *config.Config) { c.Transport, c.UpstreamURL = config.StreamableHTTP, serveHTTP(t, server) },
		"an HTTP server, translated": func(c *config.Config) {
			c.Transport, c.UpstreamURL = config.StreamableHTTP, serveHTTP(t, &httpServer{initialize: refuseInitialize})
		},
		"an HTTP server without ids": func(c *config.Config) {
			c.Transport, c.UpstreamURL = config.StreamableHTTP, serveHTTP(t, &httpServer{initialize: agreeWithoutID})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			replicas := startReplicas(t, 2, kind)
			enlist(t, 1, replicas, 2, func(i int, pod *adapterapi.PeerPod) { pod.Cordoned = i == 0 })
			var answers [2]string
			for i, r := range replicas {
				response, err := at(t, r).post(t.Context(), initializeMessage)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(response.Body)
				_ = response.Body.Close()
				if err != nil || response.StatusCode != http.StatusOK {
					t.Fatalf("got %s (%v): %s", response.Status, err, body)
				}
				id := response.Header.Get("Mcp-Session-Id")
				if owner, err := r.env.Keys.Parse(id); name != "an HTTP server without ids" && (err != nil || owner.UID != replicas[1].env.Owner.UID) {
					t.Errorf("the session is at %v: %v", owner, err)
				}
				response.Header.Del("Mcp-Session-Id")
				response.Header.Del("Date")
				answers[i] = fmt.Sprint(response.Status, response.Header, string(body))
			}
			if diff := cmp.Diff(answers[1], answers[0]); diff != "" || strings.Contains(answers[0], "Slipway") {
				t.Errorf("through another pod (-direct +placed):\n%s", diff)
			}
			replicas[0].wantPlaced(t, 0, 1, 0)
		})
	}
}

// agreeWithoutID is a server that has no sessions to tell apart.
func agreeWithoutID(w http.ResponseWriter, _ *http.Request, id string) {
	reply(w, id, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`)
}

// A pod that is lost after it has got the request may have begun with the session, so no other one gets it.
func TestNoPlaceIsAskedAfterOneThatIsLost(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	began, over := make(chan struct{}), make(chan struct{})
	server := &httpServer{initialize: func(w http.ResponseWriter, r *http.Request, id string) {
		if r.Header.Get("X-Newcomer") != "" {
			asked.Add(1)
			close(began)
			<-over
		}
		agreeToInitialize(w, r, id)
	}}
	upstream := serveHTTP(t, server)
	replicas := startReplicas(t, 3, func(c *config.Config) {
		c.Transport, c.UpstreamURL, c.Era = config.StreamableHTTP, upstream, sessionless.Legacy
	})
	defer close(over)
	var wires []*wire
	enlist(t, 1, replicas, 3, func(i int, pod *adapterapi.PeerPod) {
		wires = append(wires, newWire(t, pod.Address))
		pod.Cordoned, pod.Address = i == 0, wires[i].Addr().String()
	})
	c := at(t, replicas[0])
	c.headers = map[string]string{"X-Newcomer": "yes"}
	status := make(chan string, 1)
	go func() {
		response, err := c.post(t.Context(), initializeMessage)
		if err != nil {
			status <- err.Error()
			return
		}
		_ = response.Body.Close()
		status <- response.Status
	}()
	<-began
	for _, w := range wires {
		w.cut()
	}
	if got := <-status; got != "502 Bad Gateway" || asked.Load() != 1 {
		t.Errorf("got %s, and the server was asked %d times", got, asked.Load())
	}
}

// wire passes connections on to a pod.
type wire struct {
	net.Listener
	mu   sync.Mutex
	ends []net.Conn
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	w := &wire{Listener: newListener(t)}
	t.Cleanup(func() {
		_ = w.Close()
		w.cut()
	})
	go func() {
		for {
			near, err := w.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				_ = near.Close()
				continue
			}
			w.mu.Lock()
			w.ends = append(w.ends, near, far)
			w.mu.Unlock()
			go func() { _, _ = io.Copy(near, far) }()
			go func() { _, _ = io.Copy(far, near) }()
		}
	}()
	return w
}

// cut closes the connections.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, end := range w.ends {
		_ = end.Close()
	}
}

// A connection of the SSE transport is placed, too. It lasts as long as its entry, even if that drains.
func TestPlacedStream(t *testing.T) {
	t.Parallel()
	replicas := startReplicas(t, 2, func(c *config.Config) { c.LegacySSE = true })
	entry, owner := replicas[0], replicas[1]
	enlist(t, 1, replicas, 2, func(i int, pod *adapterapi.PeerPod) { pod.Cordoned = i == 0 })
	ctx, cancel := context.WithTimeout(t.Context(), hang.Guard)
	defer cancel()
	stream := get(ctx, t, "http://"+entry.host+"/sse")
	defer func() { _ = stream.Close() }()
	lines := bufio.NewScanner(stream)
	endpoint := dataLine(lines)
	if entry.sessions() != 0 || owner.sessions() != 1 {
		t.Errorf("the entry has %d sessions, and the owner %d", entry.sessions(), owner.sessions())
	}
	say := func(message, want string) {
		t.Helper()
		response, err := http.Post("http://"+entry.host+endpoint, "application/json", strings.NewReader(message))
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if got := dataLine(lines); response.StatusCode != http.StatusAccepted || !strings.Contains(got, want) {
			t.Errorf("got %s and %q", response.Status, got)
		}
	}
	say(initializeMessage, "protocolVersion")
	entry.Drain()
	say(pingMessage, `"result"`)
	_ = stream.Close()
	<-entry.Drained()
}

// A placed connection of the SSE transport counts as one session of its pod, and not as one that is still on its way, too.
func TestPlacedStreamCountsOnce(t *testing.T) {
	t.Parallel()
	set := limits(1, 2)
	replicas := startReplicas(t, 2, func(c *config.Config) {
		set(c)
		c.LegacySSE, c.Patience = true, longer
	})
	entry, owner := replicas[0], replicas[1]
	at(t, entry).hold(t)
	enlist(t, 1, replicas, 2, nil)
	ctx, cancel := context.WithTimeout(t.Context(), hang.Guard)
	defer cancel()
	stream := get(ctx, t, "http://"+entry.host+"/sse")
	defer func() { _ = stream.Close() }()
	if lines := bufio.NewScanner(stream); dataLine(lines) == "" {
		t.Fatal(lines.Err())
	}
	entry.wantPlaced(t, 1, 1, 0)
	last := at(t, owner)
	last.open(t)
	enlist(t, 2, replicas, 2, nil)
	opened := make(chan error, 1)
	go func() { opened <- at(t, entry).initialize(ctx) }()
	gomega.NewWithT(t).Eventually(entry.env.Sessions.Places.Waiting).WithTimeout(hang.Guard).Should(gomega.Equal(1))
	if err := last.delete(ctx); err != nil {
		t.Fatal(err)
	}
	owner.awaitSessions(t, 1)
	enlist(t, 3, replicas, 2, nil)
	if err := <-opened; err != nil || owner.sessions() != 2 {
		t.Errorf("%v; the owner has %d sessions", err, owner.sessions())
	}
}

// dataLine returns the data of the next event.
func dataLine(lines *bufio.Scanner) string {
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			return data
		}
	}
	return ""
}

// A client that keeps its connection to a draining pod gets its next session at another pod, and is told to open a
// new connection.
func TestInitializeWhileTheEntryDrains(t *testing.T) {
	t.Parallel()
	replicas := startReplicas(t, 2, nil)
	enlist(t, 1, replicas, 2, nil)
	c := at(t, replicas[0])
	c.open(t)
	c.work(t)
	c.must(t, http.StatusOK) // at a connection that stays
	if got := replicas[0].sessions(); got != 1 {
		t.Fatalf("the entry has %d sessions", got)
	}
	replicas[0].Drain()
	c.session = ""
	response, err := c.post(t.Context(), initializeMessage)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK || !response.Close {
		t.Errorf("got %s, and the connection ends: %v", response.Status, response.Close)
	}
	if got := replicas[1].sessions(); got != 1 {
		t.Errorf("the other replica has %d sessions", got)
	}
}

// A client that names a session that is over gets its new one where new sessions begin, and not at the pod that had
// the old one.
func TestInitializeAgainIsPlaced(t *testing.T) {
	t.Parallel()
	replicas := startReplicas(t, 3, nil)
	former, entry, free := replicas[0], replicas[1], replicas[2]
	for i, test := range []struct {
		cordoned []*replica
		want     *replica
	}{{nil, entry}, {[]*replica{former, entry}, free}} {
		enlist(t, int64(2*i+1), replicas, 3, nil)
		c := at(t, former)
		c.open(t)
		if err := c.delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		enlist(t, int64(2*i+2), replicas, 3, func(i int, pod *adapterapi.PeerPod) { pod.Cordoned = slices.Contains(test.cordoned, replicas[i]) })
		c.url = "http://" + entry.host + Path
		c.open(t)
		if owner, err := entry.env.Keys.Parse(c.session); err != nil || owner.UID != test.want.env.Owner.UID {
			t.Errorf("case %d: the session is at %v, %v", i, owner, err)
		}
	}
	if former.sessions() != 0 {
		t.Errorf("the former owner has %d sessions", former.sessions())
	}
}

// The manager's probe asks about the pod that it connects to. A client cannot use the header by which pods ask each other.
func TestNotPlaced(t *testing.T) {
	t.Parallel()
	replicas := startReplicas(t, 2, nil)
	enlist(t, 1, replicas, 2, func(i int, pod *adapterapi.PeerPod) { pod.Cordoned = i == 0 })
	probe := at(t, replicas[0])
	probe.headers = map[string]string{adapterapi.HeaderProbe: proofOf(testKey, testPodUID, time.Now())}
	probe.open(t)
	if owner, err := replicas[0].env.Keys.Parse(probe.session); err != nil || owner.UID != replicas[0].env.Owner.UID {
		t.Errorf("the probe's session is at %v: %v", owner, err)
	}
	forger := at(t, replicas[1])
	forger.headers = map[string]string{"Slipway-Peer-Place": "never"}
	forger.open(t)
	replicas[1].wantPlaced(t, 1, 0, 0)
	replicas[0].wantPlaced(t, 0, 0, 0)
	if replicas[0].dials() != 0 {
		t.Error("the pod asks others")
	}
}

// A placed initialize leaves one line, at the owner. One that the entry refuses leaves it there.
func TestPlacedAudit(t *testing.T) {
	t.Parallel()
	g := newGuard(t, func(a *adapterapi.Access) { a.Audit.Level = adapterapi.AuditMetadata })
	var written [2]bytes.Buffer
	var logs []*audit.Log
	var records [2]recorded
	replicas := startReplicas(t, 2, func(c *config.Config) {
		n := len(logs)
		logs = append(logs, audit.New(&written[n], nil))
		c.Access, c.Audit, c.Recorded = g.gate, logs[n], records[n].note
	})
	enlist(t, 1, replicas, 2, func(i int, pod *adapterapi.PeerPod) { pod.Cordoned = i == 0 })
	client, entry, owner := awayClient(t), replicas[0], replicas[1]
	header := http.Header{"Authorization": {g.token("root", nil)}, "User-Agent": {"away/1"}}
	if status, id := away(t, client, entry, header, initializeMessage); status != http.StatusOK || id == "" {
		t.Fatalf("got %d and session %q", status, id)
	}
	header.Del("Authorization")
	if status, _ := away(t, client, entry, header, initializeMessage); status != http.StatusUnauthorized {
		t.Errorf("without a token: got %d", status)
	}
	if about := owner.env.Sessions.All()[0].About(); about.Owner.Identity().User != "corp:root" || about.Owner.Address() != awayAddress {
		t.Errorf("the session is of %v at %s", about.Owner.Identity(), about.Owner.Address())
	}
	entry.stop()
	owner.stop()
	if want := "initialize by corp:root from " + awayAddress; !records[1].has(want) {
		t.Errorf("the owner has no record %q", want)
	}
	for i, want := range [][]string{
		{"http/post system:anonymous / 401 401 deny missing"},
		{"session/begin corp:root / 200 0 allow ", "session/end corp:root / 200 0 allow "},
	} {
		if err := logs[i].Close(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
		var got []string
		for text := range strings.Lines(written[i].String()) {
			var line auditLine
			if err := json.Unmarshal([]byte(text), &line); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if !slices.Equal(line.SourceIPs, []string{awayAddress}) || line.UserAgent != "away/1" {
				t.Errorf("the line does not say where the request came from: %s", text)
			}
			got = append(got, line.brief())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("lines of replica %d (-want +got):\n%s", i, diff)
		}
	}
}
