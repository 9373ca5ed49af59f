package session

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A client that goes away from its calls, and never comes back for the answers, does
// not stop its own session: T-25, the newest are kept.
func TestAbandonedAnswersMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := testLimits
		limits.TotalBytes = 3 * (300 + eventOverhead + streamOverhead)
		h := newHarness(t, limits)
		var beginnings []string
		for i := range 10 {
			stream := h.call(i, "")
			beginnings = append(beginnings, resumable(t, stream))
			stream.Detach()
			delivered := false
			go func() {
				h.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":%q}`, i, strings.Repeat("x", 300)))
				delivered = true
			}()
			synctest.Wait()
			if !delivered {
				h.End(ErrEnded)
				t.Fatalf("answer %d is not read from the server", i)
			}
		}
		if h.waiting > limits.TotalBytes+400 || h.metrics.AbandonedAnswers.Value() != 7 || h.metrics.Stalls.Value() != 0 {
			t.Errorf("%d bytes wait, %d answers were given up, %d stalls", h.waiting, h.metrics.AbandonedAnswers.Value(), h.metrics.Stalls.Value())
		}
		if _, err := h.Resume(beginnings[0]); err == nil {
			t.Error("the oldest answer is still there")
		}
		stream, err := h.Resume(beginnings[9])
		if err != nil {
			t.Fatalf("the newest answer is not there: %v", err)
		}
		if got := taken(stream); len(got) != 2 {
			t.Errorf("got %q", got)
		}
	})
}

// A client that goes away while its server is not read for its sake lets it go on.
func TestLeavingEndsAStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := testLimits
		limits.TotalBytes = 10
		h := newHarness(t, limits)
		one, two := h.call(1, ""), h.call(2, "")
		resumable(t, one)
		h.answer(1)
		delivered := false
		go func() {
			h.answer(2)
			delivered = true
		}()
		synctest.Wait()
		if delivered || h.metrics.Stalls.Value() != 1 {
			t.Fatalf("delivered: %v, stalls: %d", delivered, h.metrics.Stalls.Value())
		}
		one.Detach()
		synctest.Wait()
		if !delivered {
			h.End(ErrEnded)
			t.Fatal("the server is not read")
		}
		expect(t, "second call", taken(two), `"id":2,"result":{}`, "end")
	})
}

// a request of the server's is not lost with the call it was sent to, though
// that has its answer.
func TestRequestOutlivesItsCall(t *testing.T) {
	for name, leave := range map[string]func(*harness, *Stream){
		"answered and left": func(h *harness, stream *Stream) {
			h.answer(1)
			stream.Detach()
		},
		"left and answered": func(h *harness, stream *Stream) {
			stream.Detach()
			h.answer(1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, testLimits)
				stream := h.call(1, "")
				h.say(ask)
				leave(h, stream)
				time.Sleep(testLimits.DeliveryTimeout)
				synctest.Wait()
				got := h.server.messages()
				if last := got[len(got)-1]; !strings.Contains(last, `"id":"s1","error":{"code":-32603`) {
					t.Errorf("the server got %s last, want an error in place of an answer", last)
				}
			})
		})
	}
}

// A client that loses its connection again while it catches up gets everything once.
func TestResumeTwice(t *testing.T) {
	h := newHarness(t, testLimits)
	stream := h.call(1, "")
	beginning := resumable(t, stream)
	for range 3 {
		h.say(note)
	}
	if got := readIDs(stream); len(got) != 3 {
		t.Fatalf("got %q", got)
	}
	stream.Detach()
	for range 3 {
		h.resume(beginning).Detach()
	}
	stream = h.resume(beginning)
	h.answer(1)
	expect(t, "what is repeated, and the answer", readIDs(stream), "1_1", "1_2", "1_3", "1_4")
	stream.Detach()
	if stream.noticeBytes != 0 || h.waiting != 0 {
		t.Errorf("%d bytes of notifications, %d bytes wait", stream.noticeBytes, h.waiting)
	}
}

// What was repeated to one stream is not given to another, under ids that are not its
// own (T-21).
func TestRepeatsAreNotInherited(t *testing.T) {
	h := newHarness(t, testLimits)
	first := h.open()
	beginning := resumable(t, first)
	h.say(note)
	readIDs(first)
	first.Detach()
	h.resume(beginning).Detach()
	second := h.open()
	resumable(t, second)
	h.say(note)
	expect(t, "ids", readIDs(second), "2_1")
}

// What a reader that does not read costs does not grow with how much waits for it.
func TestDroppingIsCheap(t *testing.T) {
	limits := testLimits
	limits.PendingBytes = 1 << 20
	h := newHarness(t, limits)
	h.open()
	message := h.message(note)
	for n := 0; h.metrics.DroppedNotifications.Value() < 100; n++ {
		if n == 100_000 {
			t.Fatal("nothing was dropped")
		}
		h.Deliver(message)
	}
	const times = 1000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range times {
		h.Deliver(message)
	}
	runtime.ReadMemStats(&after)
	if took := (after.TotalAlloc - before.TotalAlloc) / times; took > 4<<10 {
		t.Errorf("a notification takes %d bytes", took)
	}
}
