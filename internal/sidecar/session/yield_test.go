package session

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/places"
)

// A session ends for another only if its client does not use it, and has not used it
// since Idle returned.
func TestYield(t *testing.T) {
	for name, test := range map[string]struct {
		use  func(h *harness)
		want bool
	}{
		"nothing happens":  {func(*harness) {}, true},
		"a stream is open": {func(h *harness) { h.open() }, false},
		"a stream is left": {func(h *harness) { h.open().Detach() }, false},
		"a call in flight": {func(h *harness) { h.call(1, "").Detach() }, false},
		"a notification":   {func(h *harness) { h.tell(`{"jsonrpc":"2.0","method":"notifications/initialized"}`) }, false},
		"it has ended":     {func(h *harness) { h.End(ErrClient) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, testLimits)
				since, _, _ := h.Idle()
				time.Sleep(time.Second)
				test.use(h)
				if got := h.Yield(since); got != test.want || errors.Is(h.EndedBy(), ErrYielded) != test.want {
					t.Errorf("yielded is %v, want %v; it ended by %v", got, test.want, h.EndedBy())
				}
				h.End(ErrClient)
			})
		})
	}
}

// What a client has done with its session only grows.
func TestUse(t *testing.T) {
	h := newHarness(t, testLimits)
	for i, step := range []struct {
		does func()
		want places.Use
	}{
		{func() {}, places.Opened},
		{func() { h.tell(`{"jsonrpc":"2.0","method":"notifications/initialized"}`) }, places.Listed},
		{func() {
			if _, err := h.Call(t.Context(), h.message(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)); err != nil {
				t.Fatal(err)
			}
		}, places.Listed},
		{func() { h.call(2, "") }, places.Worked},
		{func() { h.tell(`{"jsonrpc":"2.0","method":"notifications/initialized"}`) }, places.Worked},
	} {
		step.does()
		if _, use, _ := h.Idle(); use != step.want {
			t.Errorf("step %d: %s, want %s", i, use, step.want)
		}
	}
}

// The adapter tells only the owner of an ended session why it ended.
func TestEnded(t *testing.T) {
	r := NewRegistry(Policy{Max: 1, IdleTimeout: time.Hour, MaxLifetime: time.Hour})
	owner, other := &caller.Caller{Principal: "jwt a"}, &caller.Caller{Principal: "jwt b"}
	end := func(id string) {
		h := newHarness(t, testLimits)
		h.Owner = caller.NewOwner(owner)
		r.add(t, h, id)
		h.End(ErrIdle)
	}
	tells := func(id string, from *caller.Caller) bool {
		return strings.Contains(r.NoSuch(id, from), ErrIdle.Error())
	}
	end("first")
	if !tells("first", owner) {
		t.Error("the owner is not told")
	}
	if tells("first", other) {
		t.Error("another is told")
	}
	for i := range mostEndings {
		end(strconv.Itoa(i))
	}
	if tells("first", owner) || len(r.endings) != mostEndings {
		t.Errorf("after many others the owner is told, or more are remembered: %d", len(r.endings))
	}
	if !tells("0", owner) || !tells(strconv.Itoa(mostEndings-1), owner) {
		t.Error("the owner of a later one is not told")
	}
}
