package session

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// endsAt notes when each session ends, counted from now. The slice is complete when all have ended.
func endsAt(sessions []*harness) *[]time.Duration {
	begin, at := time.Now(), &[]time.Duration{}
	for _, h := range sessions {
		h.OnEnd(func() { *at = append(*at, time.Since(begin)) })
	}
	return at
}

func (r *Registry) addMany(t *testing.T, count int) (added []*harness) {
	t.Helper()
	for i := range count {
		h := newHarness(t, testLimits)
		r.add(t, h, strconv.Itoa(i))
		added = append(added, h)
	}
	return added
}

// Sessions stay, with their streams, until they end by themselves or the time to stay is over.
func TestStay(t *testing.T) {
	for name, leaves := range map[string]bool{"the session ends": true, "the time is up": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, begin := NewRegistry(testPolicy), time.Now()
				h := r.addMany(t, 1)[0]
				stream := h.open()
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				stayed := make(chan time.Duration, 1)
				go func() {
					r.Stay(ctx)
					stayed <- time.Since(begin)
				}()
				time.Sleep(time.Minute)
				expect(t, "stream", taken(stream))
				expect(t, "call", taken(answered(h, 1)), `"id":1,"result":{}`, "end")
				if _, err := r.Reserve(t.Context(), client); err == nil {
					t.Error("it opens a session")
				}
				if leaves {
					h.End(ErrClient)
				}
				if took := <-stayed; leaves != (took == time.Minute) || !leaves && took != time.Hour {
					t.Errorf("stayed for %s", took)
				}
				if !leaves && h.EndedBy() != nil {
					t.Errorf("ended by %v", h.EndedBy())
				}
				h.End(ErrClient)
			})
		})
	}
}

// answered is a call with its answer.
func answered(h *harness, id int) *Stream {
	stream := h.call(id, "")
	h.answer(id)
	return stream
}

// Sessions without a call in flight end one after the other. The others are left for Drain, with all that are left when
// the context ends.
func TestPart(t *testing.T) {
	const many = 8
	for name, test := range map[string]struct {
		within time.Duration
		busy   int
		want   int // sessions that end, one each second
	}{
		"all":          {time.Hour, 0, many},
		"all are busy": {time.Hour, many, 0},
		"some busy":    {time.Hour, many / 2, many / 2},
		"cut short":    {2500 * time.Millisecond, 0, 3},
		"without time": {0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				policy := testPolicy
				policy.Max = many
				r := NewRegistry(policy)
				sessions := r.addMany(t, many)
				for _, h := range sessions[:test.busy] {
					h.call(1, "")
				}
				r.Refuse()
				at := endsAt(sessions)
				ctx, cancel := context.WithTimeout(t.Context(), test.within)
				defer cancel()
				if test.within == 0 {
					cancel()
				}
				r.Part(ctx, many*time.Second)
				if len(*at) != test.want {
					t.Errorf("%d sessions ended, want %d", len(*at), test.want)
				}
				for i, after := range *at {
					if test.busy == 0 && after != time.Duration(i)*time.Second || after%time.Second != 0 {
						t.Errorf("session %d ended after %s", i, after)
					}
				}
				cancel()
				r.Drain(ctx)
			})
		})
	}
}

// A drain is over when the servers know of the sessions that have parted, too.
func TestDrainWaitsForParted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, h := NewRegistry(testPolicy), newHarness(t, testLimits)
		slot, err := r.Reserve(t.Context(), client)
		if err != nil {
			t.Fatal(err)
		}
		s := slowly{h.Session, make(chan struct{})}
		slot.Fill(t.Context(), "a", s)
		time.AfterFunc(time.Hour, func() { close(s.told) })
		began := time.Now()
		r.Refuse()
		r.Part(t.Context(), time.Second)
		if took := time.Since(began); took != 0 || h.EndedBy() == nil {
			t.Errorf("parting took %s; ended by %v", took, h.EndedBy())
		}
		r.Drain(t.Context())
		if took := time.Since(began); took != time.Hour {
			t.Errorf("the drain took %s", took)
		}
	})
}
