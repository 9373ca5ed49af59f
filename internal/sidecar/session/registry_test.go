package session

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/places"
)

var (
	client  = &caller.Caller{Address: "192.0.2.1"}
	manager = &caller.Caller{Address: "192.0.2.2", Probe: true}
)

var testPolicy = Policy{Max: 2, IdleTimeout: time.Minute, MaxLifetime: time.Hour}

func (r *Registry) add(t *testing.T, h *harness, id string) {
	t.Helper()
	slot, err := r.Reserve(t.Context(), client)
	if err != nil {
		t.Fatalf("reserve: %v", err)
	}
	slot.Fill(t.Context(), id, h.Session)
	slot.Release()
}

func TestRegistryIsBounded(t *testing.T) {
	r := NewRegistry(testPolicy)
	h := newHarness(t, testLimits)
	r.add(t, h, "a")
	slot, err := r.Reserve(t.Context(), client)
	if err != nil {
		t.Fatalf("reserve: %v", err)
	}
	if _, err := r.Reserve(t.Context(), client); !errors.Is(err, places.ErrFull) {
		t.Errorf("one too many: got %v", err)
	}
	slot.Release()
	slot.Release()
	if r.Find("a") != Member(h.Session) {
		t.Error("the session is not found")
	}
	h.End(errors.New("gone"))
	if r.Find("a") != nil {
		t.Error("T-17: a session that ended is found")
	}
	for i := range 2 {
		r.add(t, newHarness(t, testLimits), strconv.Itoa(i))
	}
	dead := newHarness(t, testLimits)
	dead.End(errors.New("died while it was opened"))
	r.sessions["0"].End(errors.New("gone"))
	r.add(t, dead, "dead")
	if r.Len() != 1 {
		t.Errorf("%d sessions, want 1", r.Len())
	}
}

// Architecture §4.5: the manager's probe has one slot beyond all others, and not for
// long.
func TestRegistryHasASlotForTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry(Policy{Max: 1, IdleTimeout: time.Hour, MaxLifetime: time.Hour})
		probe := func(h *harness, id string) {
			t.Helper()
			slot, err := r.Reserve(t.Context(), manager)
			if err != nil {
				t.Fatalf("reserve for %s: %v", id, err)
			}
			if _, err := r.Reserve(t.Context(), manager); !errors.Is(err, errProbing) {
				t.Errorf("a second probe while %s is opened: %v", id, err)
			}
			slot.Fill(t.Context(), id, h.Session)
		}
		first := newHarness(t, testLimits)
		probe(first, "first")
		r.add(t, newHarness(t, testLimits), "other") // the probe has taken no place of a client
		if _, err := r.Reserve(t.Context(), client); !errors.Is(err, places.ErrFull) {
			t.Errorf("one too many: %v", err)
		}
		if _, err := r.Reserve(t.Context(), manager); !errors.Is(err, errProbing) {
			t.Errorf("a second probe: %v", err)
		}
		if r.Find("first") == nil || r.Len() != 1 || len(r.All()) != 2 {
			t.Errorf("found %v, %d counted of %d, want 1 of 2", r.Find("first"), r.Len(), len(r.All()))
		}
		first.End(errors.New("deleted"))
		if slot, err := r.Reserve(t.Context(), manager); err != nil {
			t.Errorf("after the first: %v", err)
		} else {
			slot.Release()
		}

		// One that is forgotten makes room soon; an ordinary session stays.
		forgotten := newHarness(t, testLimits)
		probe(forgotten, "forgotten")
		time.Sleep(ProbeIdleTimeout - time.Nanosecond)
		for _, s := range r.All() {
			r.sweep(t.Context(), s, time.Now())
		}
		if len(r.All()) != 2 {
			t.Error("ended too early")
		}
		time.Sleep(time.Nanosecond)
		for _, s := range r.All() {
			r.sweep(t.Context(), s, time.Now())
		}
		if r.Find("other") == nil || len(r.All()) != 1 {
			t.Errorf("%d sessions are left, the ordinary one: %v", len(r.All()), r.Find("other"))
		}
		probe(newHarness(t, testLimits), "after the forgotten one")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r.Drain(ctx)
		if len(r.All()) != 0 || r.probe != nil || r.Len() != 0 {
			t.Errorf("after the drain %d sessions are left, %d counted, and the probe's slot is taken: %v", len(r.All()), r.Len(), r.probe != nil)
		}
	})
}

// T-26, L-07: the registry ends sessions that are idle, and sessions that last too long.
func TestRegistryKeepsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := NewRegistry(testPolicy)
		go r.Run(ctx)

		idle, used := newHarness(t, testLimits), newHarness(t, testLimits)
		r.add(t, idle, "idle")
		r.add(t, used, "used")
		stream := used.open()
		time.Sleep(testPolicy.IdleTimeout + 2*sweepInterval)
		synctest.Wait()
		if r.Find("idle") != nil || !idle.server.closed {
			t.Error("the idle session is still there")
		}
		if r.Find("used") == nil {
			t.Fatal("a session whose stream is read has gone")
		}

		call := used.call(1, "")
		time.Sleep(testLimits.CallTimeout + 2*sweepInterval)
		synctest.Wait()
		if got := taken(call); len(got) != 2 || !strings.Contains(got[0], "took longer than") {
			t.Errorf("the call got %q, want a time-out", got)
		}
		time.Sleep(testPolicy.MaxLifetime)
		synctest.Wait()
		if r.Find("used") != nil {
			t.Error("the session lives longer than it may")
		}
		expect(t, "stream", taken(stream), "end")
	})
}

// A client that opens a session and then says nothing at all is not waited for as others are.
func TestRegistryEndsSilentSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry(Policy{Max: 2, IdleTimeout: time.Hour, MaxLifetime: time.Hour})
		silent, initialized := newHarness(t, testLimits), newHarness(t, testLimits)
		r.add(t, silent, "silent")
		r.add(t, initialized, "initialized")
		initialized.tell(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		time.Sleep(SilentTimeout)
		for _, s := range r.All() {
			r.sweep(t.Context(), s, time.Now())
		}
		if !errors.Is(silent.EndedBy(), ErrSilent) || initialized.EndedBy() != nil {
			t.Errorf("ended by %v, and the other by %v", silent.EndedBy(), initialized.EndedBy())
		}
	})
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry(testPolicy)
		quiet, busy := newHarness(t, testLimits), newHarness(t, testLimits)
		r.add(t, quiet, "quiet")
		r.add(t, busy, "busy")
		stream, call := quiet.open(), busy.call(1, "")
		drained := make(chan struct{})
		go func() {
			r.Drain(t.Context())
			close(drained)
		}()
		synctest.Wait()
		expect(t, "idle session's stream", taken(stream), "end")
		if _, err := r.Reserve(t.Context(), client); !errors.Is(err, fault.ErrDraining) {
			t.Errorf("new session: got %v", err)
		}
		select {
		case <-drained:
			t.Fatal("drained while a call is in flight")
		default:
		}
		busy.answer(1)
		expect(t, "R13 call", taken(call), `"id":1,"result":{}`, "end")
		call.Detach()
		<-drained
		if r.Len() != 0 {
			t.Errorf("%d sessions are left", r.Len())
		}
	})
}

func TestDrainRunsOutOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry(testPolicy)
		busy := newHarness(t, testLimits)
		r.add(t, busy, "busy")
		call := busy.call(1, "")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		r.Drain(ctx)
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("gave up after %s, want 10s", took)
		}
		expect(t, "call", taken(call), `"id":1,"error":{"code":-32603,"message":"this instance is going away"}`, "end")
	})
}

// Requests that belong to no session hold up a drain, and are told when it begins and when
// its time is up.
func TestDrainWithoutSessions(t *testing.T) {
	for name, leaves := range map[string]bool{"the request ends": true, "the time is up": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := NewRegistry(testPolicy)
				if err := r.Enter(); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				drained := make(chan struct{})
				go func() {
					r.Drain(ctx)
					close(drained)
				}()
				synctest.Wait()
				if err := context.Cause(r.Draining()); !errors.Is(err, fault.ErrDraining) || r.Over().Err() != nil {
					t.Errorf("draining is %v, over is %v", err, r.Over().Err())
				}
				if err := r.Enter(); !errors.Is(err, fault.ErrDraining) {
					t.Errorf("another request: %v", err)
				}
				select {
				case <-drained:
					t.Fatal("drained while a request is in flight")
				default:
				}
				began := time.Now()
				if leaves {
					r.Leave()
				}
				<-drained
				if took := time.Since(began); leaves != (took == 0) {
					t.Errorf("the drain took %s", took)
				}
				if err := context.Cause(r.Over()); leaves != (err == nil) || !leaves && !errors.Is(err, fault.ErrDraining) {
					t.Errorf("over is %v", err)
				}
			})
		})
	}
}

// slowly is a session whose server is told some time after the session has ended.
type slowly struct {
	*Session
	told chan struct{}
}

func (s slowly) Done() <-chan struct{} { return s.told }

// A drain is over when the servers know of it.
func TestDrainWaitsForServers(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"in time": time.Minute, "the time is up": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := NewRegistry(testPolicy)
				h := newHarness(t, testLimits)
				if timeout == 0 {
					h.call(1, "")
				}
				slot, err := r.Reserve(t.Context(), client)
				if err != nil {
					t.Fatal(err)
				}
				s := slowly{h.Session, make(chan struct{})}
				slot.Fill(t.Context(), "a", s)
				time.AfterFunc(time.Hour, func() { close(s.told) })
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				began := time.Now()
				r.Drain(ctx)
				if took := time.Since(began); took != time.Hour {
					t.Errorf("the drain took %s", took)
				}
			})
		})
	}
}

// The adapter learns of a session from the request that opened it.
func TestRegistryTellsOfOpenedSessions(t *testing.T) {
	type key struct{}
	var told []Member
	policy := testPolicy
	policy.Opened = func(ctx context.Context, opened Member) {
		if ctx.Value(key{}) == "request" {
			told = append(told, opened)
		}
	}
	slot, err := NewRegistry(policy).Reserve(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, testLimits)
	slot.Fill(context.WithValue(t.Context(), key{}, "request"), "a", h.Session)
	if len(told) != 1 || told[0] != Member(h.Session) {
		t.Errorf("told of %v", told)
	}
}
