package sidecar

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/listener"
	"github.com/slipway-mcp/slipway/internal/sidecar/peer/relay"
	"github.com/slipway-mcp/slipway/test/hang"
)

// lifeline is the way of an adapter to its server. An adapter that is cut off ends no session there, as one that is killed.
type lifeline struct {
	*httputil.ReverseProxy
	cut  atomic.Bool
	held chan struct{} // gets a value for each call with "hold" in it, which is not answered

	mu   sync.Mutex
	seen []string // ids of the sessions that the server got requests of clients in
}

func newLifeline(to *url.URL) *lifeline {
	return &lifeline{ReverseProxy: httputil.NewSingleHostReverseProxy(&url.URL{Scheme: to.Scheme, Host: to.Host}), held: make(chan struct{}, 1)}
}

func (l *lifeline) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if l.cut.Load() {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	if id := r.Header.Get("Mcp-Session-Id"); id != "" && r.Header.Get("X-Client") != "" { // the keeper has sessions, too
		l.mu.Lock()
		if !slices.Contains(l.seen, id) {
			l.seen = append(l.seen, id)
		}
		l.mu.Unlock()
	}
	if r.Header.Get("X-Hold") != "" {
		_, _ = io.Copy(io.Discard, r.Body) // otherwise net/http does not notice that the adapter is gone
		l.held <- struct{}{}
		<-r.Context().Done()
		return
	}
	l.ReverseProxy.ServeHTTP(w, r)
}

// sessions returns the server's ids of the sessions that clients used.
func (l *lifeline) sessions() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.seen)
}

// A session of an HTTP server survives a restart of the adapter of its pod, and every replica can serve it. Requests wait for
// the adapter meanwhile. No other client can take the session over, and it does not come back after its end.
func TestSessionsOfHTTPServersOutliveTheAdapter(t *testing.T) {
	t.Parallel()
	line := newLifeline(serveMatrix(t, "legacy"))
	upstream := serveHTTP(t, line)
	replicas := startReplicas(t, 2, func(c *config.Config) { c.Transport, c.UpstreamURL = config.StreamableHTTP, upstream })
	owner, entry := replicas[0], replicas[1]
	as := func(token, session string, to *replica) *client {
		return &client{url: "http://" + to.host + Path, session: session, headers: map[string]string{"Authorization": token, "X-Client": "1"}, http: &http.Client{Transport: &http.Transport{}}}
	}
	opened := as(anna, "", owner)
	if err := opened.initialize(t.Context()); err != nil {
		t.Fatal(err)
	}
	id := opened.session
	status := func(what string, c *client) int {
		response, err := c.post(t.Context(), call(1, "echo", `"text":"x"`))
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return 0
		}
		defer func() { _ = response.Body.Close() }()
		_, _ = io.Copy(io.Discard, response.Body)
		return response.StatusCode
	}
	must := func(what string, want int, c *client) {
		t.Helper()
		if got := status(what, c); got != want {
			t.Errorf("%s: got %d, want %d", what, got, want)
		}
	}
	must("at another replica", http.StatusOK, as(anna, id, entry))
	inFlight := make(chan string, 1)
	go func() {
		c := as(anna, id, entry)
		c.headers["X-Hold"] = "1"
		response, err := c.post(t.Context(), call(2, "echo", `"text":"x"`))
		if err != nil {
			inFlight <- "error: " + err.Error()
			return
		}
		defer func() { _ = response.Body.Close() }()
		body, _ := io.ReadAll(response.Body)
		inFlight <- string(body)
	}()
	<-line.held

	// restart has the adapter end as if it were killed, and start again at the same address.
	restart := func(meanwhile func()) {
		t.Helper()
		line.cut.Store(true)
		cfg, host := owner.env.Config, owner.host
		owner.stop()
		line.cut.Store(false)
		meanwhile()
		cfg.Settings, cfg.Access = nil, nil
		var ports [2]net.Listener
		for i, address := range []string{host, cfg.Owner.Address.String()} {
			var err error
			if ports[i], err = listener.Listen(t.Context(), address); err != nil {
				t.Fatal(err)
			}
		}
		owner = startReplicaAt(t, cfg, ports[0], ports[1])
	}
	waiting := make(chan struct{})
	restart(func() {
		if got := <-inFlight; !strings.Contains(got, "error") {
			t.Errorf("the call in flight: %s", got)
		}
		refused := entry.peers.relay.Dials(relay.Refused)
		go func() {
			defer close(waiting)
			c, got := as(anna, id, entry), http.StatusServiceUnavailable
			for got == http.StatusServiceUnavailable { // when the patience of the entry is over
				got = status("while the adapter restarts", c)
			}
			if got != http.StatusOK {
				t.Errorf("while the adapter restarts: %d", got)
			}
		}()
		gomega.NewWithT(t).Eventually(func() uint64 { return entry.peers.relay.Dials(relay.Refused) }).WithTimeout(hang.Guard).Should(gomega.BeNumerically(">", refused))
	})
	<-waiting
	for _, to := range []*replica{owner, entry} {
		must("after the restart", http.StatusOK, as(anna, id, to))
		must("with a refreshed token", http.StatusOK, as(annaRefreshed, id, to))
		must("another client", http.StatusNotFound, as(bert, id, to))
		must("no token", http.StatusNotFound, as("", id, to))
	}
	ctx, cancel := context.WithTimeout(t.Context(), hang.Guard)
	defer cancel()
	stream, err := as(anna, id, entry).do(ctx, http.MethodGet, "") // the server allows one
	if err != nil || stream.StatusCode != http.StatusOK {
		t.Fatalf("the stream: %v, %v", stream, err)
	}
	defer func() { _ = stream.Body.Close() }()
	if known := line.sessions(); len(known) != 1 || owner.env.Sessions.Len() != 1 {
		t.Errorf("clients used the sessions %v, and the adapter has %d", known, owner.env.Sessions.Len())
	}
	response, err := as(anna, id, entry).do(t.Context(), http.MethodDelete, "")
	if err != nil || response.StatusCode != http.StatusNoContent {
		t.Fatalf("delete: %v, %v", response, err)
	}
	for range 2 {
		must("after delete", http.StatusNotFound, as(anna, id, entry))
		must("after delete", http.StatusNotFound, as(anna, id, owner))
		restart(func() {})
	}
}
