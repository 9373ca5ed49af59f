package session

import (
	"testing"
	"testing/synctest"
	"time"
)

// A call that has no answer for some time is told from one that has; the others are not, and
// the session does not go on looking when there is nothing to find.
func TestLateCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := testLimits
		limits.CommitAfter = time.Second
		h := newHarness(t, limits)
		expect := func(what string, stream *Stream, want bool) {
			t.Helper()
			synctest.Wait()
			if _, _, others, _ := stream.TakeSole(); others != want {
				t.Errorf("%s: late is %v", what, others)
			}
		}
		slow := h.call(1, "")
		time.Sleep(limits.CommitAfter * 3 / 4)
		quick := h.call(2, "")
		expect("at first", slow, false)
		time.Sleep(limits.CommitAfter / 2)
		expect("after a while", slow, true)
		expect("a newer one", quick, false)
		h.answer(2)
		if _, ok, _, _ := quick.TakeSole(); !ok {
			t.Error("an answer that comes soon is not taken alone")
		}
		time.Sleep(limits.CommitAfter)
		synctest.Wait()
		if h.mu.Lock(); !h.tickAt.IsZero() {
			t.Error("the session goes on looking when all are late")
		}
		h.mu.Unlock()
		again := h.call(3, "")
		time.Sleep(2 * limits.CommitAfter)
		expect("one that comes later", again, true)
	})
}
