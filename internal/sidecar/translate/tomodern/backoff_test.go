package tomodern

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
)

// What keeps one caller's processes from starting does not keep others out, and is not
// told to them.
func TestBackOffOfAnotherPrincipal(t *testing.T) {
	bad, good := client{principal: "bad", capabilities: "{}"}, client{principal: "good", capabilities: "{}"}
	tries := 0
	play(t, func(o *Options) {
		acquire := o.Acquire
		o.Acquire = func(ctx context.Context, from *caller.Caller) (mux.Server, error) {
			if from.Principal == "bad" {
				tries++
				return nil, errPlayed
			}
			return acquire(ctx, from)
		}
	}, nil, func(s *stage) {
		for range 6 {
			s.post(bad, "tools/list", "").wantBusy()
		}
		if tries != 2 {
			t.Errorf("got %d starts, want the third to have to wait", tries)
		}
		s.post(good, "tools/list", "")
		s.process(1).next()
		s.post(bad, "tools/list", "").wantBusy() // which another caller's start does not change
		if tries != 2 {
			t.Errorf("got %d starts, want the next to have to wait", tries)
		}
	})
}

// However many principals there are, so many are remembered.
func TestBackOffsAreForgotten(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		v := s.server
		v.mu.Lock()
		defer v.mu.Unlock()
		fail := func(principal string) {
			for range 2 {
				v.startFailedLocked(principal, errPlayed)
			}
		}
		fail("old")
		time.Sleep(mux.OnDemand.Last + 2*mux.OnDemand.First)
		for i := range mostBackOffs {
			fail(strconv.Itoa(i))
		}
		if _, kept := v.backOffs["old"]; kept || len(v.backOffs) != mostBackOffs {
			t.Errorf("%d are kept, with the one that is over: %t", len(v.backOffs), kept)
		}
		for i := range 10 {
			fail("more" + strconv.Itoa(i))
		}
		last := v.backOffs["more9"]
		if err := last.Err(); len(v.backOffs) != mostBackOffs || !errors.Is(err, errPlayed) {
			t.Errorf("%d are kept, the last with error %v", len(v.backOffs), err)
		}
	})
}

// A start that succeeds is a new beginning.
func TestBackOffEnds(t *testing.T) {
	tries := 0
	play(t, func(o *Options) {
		acquire := o.Acquire
		o.Acquire = func(ctx context.Context, from *caller.Caller) (mux.Server, error) {
			if tries++; tries != 2 {
				return nil, errPlayed
			}
			return acquire(ctx, from)
		}
	}, nil, func(s *stage) {
		s.post(mute, "tools/list", "").wantBusy()
		s.post(mute, "tools/list", "")
		s.process(1).end(errPlayed)
		s.post(mute, "tools/list", "").wantBusy()
		s.post(mute, "tools/list", "").wantBusy()
		if tries != 4 {
			t.Errorf("got %d starts, want none to have to wait", tries)
		}
	})
}
