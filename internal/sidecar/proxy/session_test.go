package proxy

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/places"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/test/hang"
)

// newOffline returns a Proxy whose server cannot be reached.
func newOffline(sessions *session.Registry, limits Limits) *Proxy {
	p := New(Options{URL: &url.URL{Scheme: "http", Host: "server"}, Number: func() string { return "1" }, Sessions: sessions, Limits: limits})
	p.server.Transport.DialContext = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no network") }
	return p
}

// opened opens a session for an anonymous caller. The call that opens it is over.
func (p *Proxy) opened(t *testing.T, id string, use places.Use) *proxySession {
	t.Helper()
	slot, err := p.Sessions.Reserve(t.Context(), &caller.Caller{})
	if err != nil {
		t.Fatalf("reserve for %s: %v", id, err)
	}
	s := p.newSession("s", "", &caller.Caller{})
	s.use = use
	slot.Fill(t.Context(), id, s)
	s.leave(false)
	return s
}

// T-26: a session ends when it is idle for too long, and when it is used for too long.
func TestProxySessionKeepsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const idleTimeout = 10 * time.Minute
		r := session.NewRegistry(session.Policy{Max: 4, IdleTimeout: idleTimeout, MaxLifetime: time.Hour})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.Run(ctx)
		p := newOffline(r, Limits{Calls: 1, Streams: 1})
		sessions := map[string]*proxySession{}
		for id, use := range map[string]places.Use{"silent": places.Opened, "idle": places.Listed, "called": places.Listed, "read": places.Listed} {
			sessions[id] = p.opened(t, id, use)
		}
		if _, err := r.Reserve(t.Context(), &caller.Caller{}); !errors.Is(err, places.ErrFull) {
			t.Errorf("one too many: %v", err)
		}
		for id, stream := range map[string]bool{"called": false, "read": true} {
			if err := sessions[id].enter(&caller.Caller{}, stream, places.Worked); err != nil {
				t.Fatal(err)
			}
		}
		wantEnded := func(after time.Duration, id string, want error) {
			t.Helper()
			time.Sleep(after - 2*time.Second)
			if got := sessions[id].EndedBy(); got != nil {
				t.Errorf("%s ended too early: %v", id, got)
			}
			time.Sleep(4 * time.Second)
			synctest.Wait()
			if got := sessions[id].EndedBy(); !errors.Is(got, want) || r.Find(id) != nil || !errors.Is(context.Cause(sessions[id].over), want) {
				t.Errorf("%s ended by %v, want %v; over: %v", id, got, want, context.Cause(sessions[id].over))
			}
		}
		began := time.Now()
		wantEnded(session.SilentTimeout, "silent", session.ErrSilent)
		wantEnded(idleTimeout-time.Since(began), "idle", session.ErrIdle)
		sessions["called"].leave(false)
		wantEnded(idleTimeout, "called", session.ErrIdle)
		wantEnded(time.Hour-time.Since(began), "read", session.ErrLifetime)
		if r.Len() != 0 {
			t.Errorf("%d are left", r.Len())
		}
	})
}

// A session ends for another only if its client does not use it, and has not used it
// since Idle returned.
func TestProxySessionYields(t *testing.T) {
	use := func(stream bool) func(*proxySession) {
		return func(s *proxySession) { _ = s.enter(&caller.Caller{}, stream, places.Worked) }
	}
	for name, test := range map[string]struct {
		use  func(s *proxySession)
		want bool
	}{
		"nothing happens":  {func(*proxySession) {}, true},
		"a stream is open": {use(true), false},
		"a call in flight": {use(false), false},
		"a call is over":   {func(s *proxySession) { use(false)(s); s.leave(false) }, false},
		"it has ended":     {func(s *proxySession) { s.End(session.ErrClient) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newOffline(newRegistry(1, time.Hour), Limits{Calls: 1, Streams: 1}).opened(t, "a", places.Listed)
				since, _, _ := s.Idle()
				time.Sleep(time.Second)
				test.use(s)
				if got := s.Yield(since); got != test.want || errors.Is(s.EndedBy(), session.ErrYielded) != test.want {
					t.Errorf("yielded is %v, want %v; it ended by %v", got, test.want, s.EndedBy())
				}
				s.End(session.ErrClient)
				<-s.Done()
				if err := s.enter(&caller.Caller{}, false, places.Worked); !errors.Is(err, errUnknown) {
					t.Errorf("a request after the end: %v", err)
				}
			})
		})
	}
}

// A server without sessions finds room for the probe's requests, too.
func TestProbeWithoutSession(t *testing.T) {
	g := newGate()
	e := newEndpoint(t, newBackend(t, g), func(o *Options) { o.Single = 1 }, func(o *edge.Options) {
		o.Authenticate = edge.Unverified{IsProbe: func(r *http.Request) bool { return r.Header.Get("Probe") != "" }}
	})
	statuses := make(chan int, probeSingles+1)
	begin := func(headers ...string) {
		t.Helper()
		go func() { statuses <- e.Do("POST", ping, headers...).StatusCode }()
		within(t, "POST", g.entered)
	}
	refused := func(headers ...string) {
		t.Helper()
		if got := e.Do("POST", ping, headers...); got.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("one too many, %v: %s", headers, got.Status)
		}
	}
	begin()
	refused()
	for range probeSingles {
		begin("Probe", "yes")
	}
	refused("Probe", "yes")
	if got := e.proxy.InFlight(); got != 1 {
		t.Errorf("%d requests are counted", got)
	}
	drained := make(chan struct{})
	go func() {
		e.proxy.Sessions.Drain(t.Context())
		close(drained)
	}()
	<-e.proxy.Sessions.Draining().Done()
	for range cap(statuses) {
		select {
		case <-drained:
			t.Error("the drain waits for some of the requests only")
		default:
		}
		g.let <- struct{}{}
		if got := within(t, "answer", statuses); got != http.StatusOK {
			t.Errorf("a request that was let in: %d", got)
		}
	}
	within(t, "drain", drained)
}

// Sessions whose time is up end at the server, and so do their streams.
func TestRunEndsSessions(t *testing.T) {
	g := newGate()
	b := newBackend(t, g)
	e := newEndpoint(t, b, func(o *Options) { o.Sessions = newRegistry(8, time.Millisecond) })
	id := e.Open()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	stream := e.Do("GET", "", headerSession, id)
	go func() {
		e.proxy.Sessions.Run(ctx)
		close(done)
	}()
	_ = text(t, stream)
	gomega.NewWithT(t).Eventually(e.proxy.Sessions.Len).WithTimeout(hang.Guard).Should(gomega.BeZero())
	gomega.NewWithT(t).Eventually(func() int { return len(b.Requests("DELETE")) }).WithTimeout(hang.Guard).Should(gomega.Equal(1))
	if got := b.Requests("DELETE"); len(got) != 1 || got[0].Header.Get(headerSession) != "gated" || got[0].Header.Get(headerRevision) != "2025-11-25" {
		t.Errorf("DELETE: %v", got)
	}
	if got := e.Do("POST", ping, headerSession, id); got.StatusCode != 404 {
		t.Errorf("T-17 afterwards: %s", got.Status)
	}
	cancel()
	within(t, "run", done)
}

// A drain ends streams that belong to no session when it begins, and lets calls finish.
func TestDrainEndsStreamsWithoutSession(t *testing.T) {
	g := newGate()
	e := newEndpoint(t, newBackend(t, g), nil)
	stream := e.Do("GET", "")
	within(t, "GET", g.entered)
	answered := make(chan int, 1)
	go func() { answered <- e.Do("POST", ping).StatusCode }()
	within(t, "POST", g.entered)
	drained := make(chan struct{})
	go func() {
		e.proxy.Sessions.Drain(t.Context())
		close(drained)
	}()
	if body := text(t, stream); strings.Contains(body, "data") {
		t.Errorf("the stream had %q", body)
	}
	select {
	case <-drained:
		t.Error("drained while a call is in flight")
	default:
	}
	close(g.let)
	if got := within(t, "answer", answered); got != http.StatusOK {
		t.Errorf("the call in flight: %d", got)
	}
	within(t, "drain", drained)
}

// The drain runs out of time: calls in flight are answered, in a session or not.
func TestDrainRunsOutOfTime(t *testing.T) {
	g := newGate()
	e := newEndpoint(t, newBackend(t, g), nil)
	id := e.Open()
	answers := make(chan string, 2)
	for _, session := range []string{id, ""} {
		go func() {
			headers := []string{}
			if session != "" {
				headers = []string{headerSession, session}
			}
			response := e.Do("POST", ping, headers...)
			answers <- response.Status + text(t, response)
		}()
		within(t, "call", g.entered)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	e.proxy.Sessions.Drain(ctx)
	for range 2 {
		if got := within(t, "answer", answers); got != `200 OK{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"this instance is going away"}}` {
			t.Errorf("got %s", got)
		}
	}
}
