package upstream

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/places"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/test/hang"
)

// T-26: time ends what nobody uses, and what is used for too long.
func TestTableKeepsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(Limits{Calls: 1, Streams: 1, IdleTimeout: time.Minute, MaxLifetime: time.Hour}, places.New(places.Options{Max: 3}))
		for _, id := range []string{"idle", "called", "read"} {
			place, err := table.reserve(t.Context(), &caller.Caller{})
			if err != nil {
				t.Fatal(err)
			}
			e := newEntry(id, "s", "", &caller.Caller{})
			e.place, e.use = place, places.Listed
			table.fill(e)
		}
		if _, err := table.reserve(t.Context(), &caller.Caller{}); !errors.Is(err, places.ErrFull) {
			t.Errorf("one too many: %v", err)
		}
		called, _ := table.enter("called", &caller.Caller{}, false, places.Worked)
		if _, err := table.enter("read", &caller.Caller{}, true, places.Worked); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		ended := table.expire(time.Now())
		if len(ended) != 1 || ended[0].entry.id != "idle" || !errors.Is(ended[0].reason, session.ErrIdle) {
			t.Errorf("idle: %v", ended)
		}
		table.leave(called, false)
		time.Sleep(time.Minute - time.Nanosecond)
		if ended = table.expire(time.Now()); len(ended) != 0 {
			t.Errorf("just used: %v", ended)
		}
		time.Sleep(time.Nanosecond)
		if ended = table.expire(time.Now()); len(ended) != 1 || ended[0].entry != called {
			t.Errorf("no longer used: %v", ended)
		}
		time.Sleep(time.Hour)
		if ended = table.expire(time.Now()); len(ended) != 1 || !errors.Is(ended[0].reason, session.ErrLifetime) {
			t.Errorf("too old: %v", ended)
		}
		if table.len() != 0 {
			t.Errorf("%d are left", table.len())
		}
	})
}

// A client that opens a session and then says nothing at all is not waited for as others are.
func TestTableEndsSilentSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(Limits{IdleTimeout: time.Hour, MaxLifetime: time.Hour}, places.New(places.Options{Max: 2}))
		for id, use := range map[string]places.Use{"silent": places.Opened, "initialized": places.Listed} {
			e := newEntry(id, "s", "", &caller.Caller{})
			e.use = use
			table.reserved++
			table.fill(e)
		}
		time.Sleep(session.SilentTimeout)
		ended := table.expire(time.Now())
		if len(ended) != 1 || ended[0].entry.id != "silent" || !errors.Is(ended[0].reason, session.ErrSilent) {
			t.Errorf("ended are %v", ended)
		}
	})
}

// Architecture §4.5: the manager's probe has one place beyond all others, and not for
// long.
func TestTableHasAPlaceForTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(Limits{Single: 1, IdleTimeout: time.Hour, MaxLifetime: time.Hour}, places.New(places.Options{Max: 1}))
		open := func(id string, probe bool) *entry {
			t.Helper()
			from := &caller.Caller{Probe: probe}
			place, err := table.reserve(t.Context(), from)
			if err != nil {
				t.Fatalf("reserve for %s: %v", id, err)
			}
			e := newEntry(id, "s", "", from)
			e.place = place
			table.fill(e)
			return e
		}
		full := func(probe bool) {
			t.Helper()
			want := places.ErrFull
			if probe {
				want = errProbing
			}
			if _, err := table.reserve(t.Context(), &caller.Caller{Probe: probe}); !errors.Is(err, want) {
				t.Errorf("one too many (probe: %v): %v", probe, err)
			}
		}
		open("probe", true)
		open("other", false)
		full(true)
		full(false)
		if table.len() != 1 {
			t.Errorf("%d sessions, want 1", table.len())
		}
		time.Sleep(session.ProbeIdleTimeout)
		if ended := table.expire(time.Now()); len(ended) != 1 || ended[0].entry.id != "probe" {
			t.Errorf("idle: %v", ended)
		}
		full(false)
		if _, err := table.reserve(t.Context(), &caller.Caller{Probe: true}); err != nil {
			t.Errorf("the next probe: %v", err)
		}
		table.release(nil)
		table.remove(open("deleted", true))
		open("drained", true)
		if ended, _ := table.drain(true); len(ended) != 2 || table.probing || table.len() != 0 {
			t.Errorf("drained: %v, probing %v", ended, table.probing)
		}
	})
}

// A server without sessions finds room for the probe's requests, too.
func TestProbeWithoutSession(t *testing.T) {
	table := newTable(Limits{Single: 1}, places.New(places.Options{}))
	leaveOther, err := table.enterSingle(false, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.enterSingle(false, false); !errors.Is(err, errTooManyRequests) {
		t.Errorf("one too many: %v", err)
	}
	var leave []func()
	for range probeSingles {
		done, err := table.enterSingle(false, true)
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, done)
	}
	if _, err := table.enterSingle(false, true); !errors.Is(err, errTooManyRequests) {
		t.Errorf("one too many of a probe's: %v", err)
	}
	leaveOther()
	if _, busy := table.drain(false); !busy {
		t.Error("the probe's requests are not waited for")
	}
	for _, done := range leave {
		done()
	}
	if _, busy := table.drain(false); busy {
		t.Error("busy without a request")
	}
}

// Sessions whose time is up end at the server, and so do their streams.
func TestRunEndsSessions(t *testing.T) {
	g := newGate()
	b := newBackend(t, g)
	e := newEndpoint(t, b, func(o *Options) { o.MaxLifetime = time.Millisecond })
	id := e.open()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	stream := e.do("GET", "", headerSession, id)
	go func() {
		e.proxy.Run(ctx)
		close(done)
	}()
	_ = text(t, stream)
	gomega.NewWithT(t).Eventually(e.proxy.Sessions).WithTimeout(hang.Guard).Should(gomega.BeZero())
	gomega.NewWithT(t).Eventually(func() int { return len(b.requests("DELETE")) }).WithTimeout(hang.Guard).Should(gomega.Equal(1))
	if got := b.requests("DELETE"); len(got) != 1 || got[0].header.Get(headerSession) != "gated" || got[0].header.Get(headerRevision) != "2025-11-25" {
		t.Errorf("DELETE: %v", got)
	}
	if got := e.do("POST", ping, headerSession, id); got.StatusCode != 404 {
		t.Errorf("T-17 afterwards: %s", got.Status)
	}
	cancel()
	within(t, "run", done)
}

// The drain runs out of time: calls in flight are answered, in a session or not.
func TestDrainRunsOutOfTime(t *testing.T) {
	g := newGate()
	e := newEndpoint(t, newBackend(t, g), nil)
	id := e.open()
	answers := make(chan string, 2)
	for _, session := range []string{id, ""} {
		go func() {
			headers := []string{}
			if session != "" {
				headers = []string{headerSession, session}
			}
			response := e.do("POST", ping, headers...)
			answers <- response.Status + text(t, response)
		}()
		within(t, "call", g.entered)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	e.proxy.Drain(ctx)
	for range 2 {
		if got := within(t, "answer", answers); got != `200 OK{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"this instance is going away"}}` {
			t.Errorf("got %s", got)
		}
	}
}
