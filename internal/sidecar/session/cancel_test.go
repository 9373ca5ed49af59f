package session

import (
	"errors"
	"testing"
	"time"
)

const cancelOne = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`

// U-02: nothing is delivered for a call that its client has cancelled, neither by the
// server nor in its place. The stream ends at once.
func TestCancelledCallIsNotAnswered(t *testing.T) {
	h := newHarness(t, testLimits)
	defer h.End(ErrEnded)
	stream, general := h.call(1, `"_meta":{"progressToken":1}`), h.open()
	h.say(progressOf("1"))
	h.say(ask)
	h.tell(cancelOne)
	if got := h.server.messages(); got[len(got)-1] != cancelOne {
		t.Errorf("the server got %q, want the cancellation", got)
	}
	h.say(progressOf("1"))
	if _, err := h.Call(t.Context(), h.message(`{"jsonrpc":"2.0","id":1,"method":"m"}`)); !errors.Is(err, ErrDuplicateID) {
		t.Errorf("a call that a late answer could be taken for: %v", err)
	}
	h.answer(1)
	expect(t, "call", taken(stream), FailedCancelled, "end")
	expect(t, "Q-03 request that the call had", taken(general), askText)
	stream.Detach()
	if len(h.calls) != 0 || len(h.streams) != 1 || len(h.live) != 0 {
		t.Errorf("left behind: %d calls, %d streams", len(h.calls), len(h.streams))
	}
	if h.metrics.UnmatchedAnswers.Value() != 0 || h.metrics.UnmatchedProgress.Value() != 1 {
		t.Errorf("%d answers and %d times progress are unmatched", h.metrics.UnmatchedAnswers.Value(), h.metrics.UnmatchedProgress.Value())
	}
	again := h.call(1, "")
	h.answer(1)
	expect(t, "call with the id again", taken(again), `"id":1,"result":{}`, "end")
}

// A server need not answer. The session still drops the call.
func TestCancelledCallIsForgotten(t *testing.T) {
	h := newHarness(t, testLimits)
	defer h.End(ErrEnded)
	stream := h.call(1, "")
	h.tell(cancelOne)
	expect(t, "call", taken(stream), FailedCancelled, "end")
	stream.Detach()
	h.Sweep(t.Context(), time.Now())
	if len(h.calls) != 1 {
		t.Error("the id is forgotten at once")
	}
	h.Sweep(t.Context(), time.Now().Add(testLimits.CancelGrace))
	if _, _, idle := h.Idle(); !idle || len(h.calls) != 0 || len(h.streams) != 0 || h.waiting != 0 {
		t.Errorf("idle %v, left behind: %d calls, %d streams, %d bytes", idle, len(h.calls), len(h.streams), h.waiting)
	}
	if got := h.server.messages(); len(got) != 2 {
		t.Errorf("the server got %q, want the call and its cancellation", got)
	}
}

// The other calls of a batch, and those on a stream for everything, are answered.
func TestCancelledOneOfSeveral(t *testing.T) {
	t.Run("batch", func(t *testing.T) {
		h := newHarness(t, testLimits)
		defer h.End(ErrEnded)
		stream, err := h.Call(t.Context(), h.message(`{"jsonrpc":"2.0","id":1,"method":"m"}`), h.message(`{"jsonrpc":"2.0","id":2,"method":"m"}`))
		if err != nil {
			t.Fatal(err)
		}
		h.tell(cancelOne)
		h.say(note)
		h.answer(1)
		h.answer(2)
		expect(t, "batch", taken(stream), FailedCancelled, noteText, `"id":2,"result":{}`, "end")
	})
	t.Run("one stream", func(t *testing.T) {
		h := newHarness(t, testLimits)
		defer h.End(ErrEnded)
		stream := h.open()
		for i, tag := range []any{"tag", nil} {
			message := h.message(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
			message.Tag = tag
			if err := h.CallOn(t.Context(), stream, message); err != nil {
				t.Fatal(err)
			}
			h.tell(cancelOne)
			h.answer(1)
			event, ok, end := stream.Take()
			switch {
			case ok != (i == 0) || end || event.Message != nil:
				t.Errorf("got %q, %v, end: %v", event.Message, ok, end)
			case ok && (event.Tag() != "tag" || event.Failed() != FailedCancelled || event.Last):
				t.Errorf("tag %v, failed: %s", event.Tag(), event.Failed())
			}
		}
		h.say(note)
		expect(t, "what follows", taken(stream), noteText)
	})
}

// A client that was given event ids takes the end of a stream without an answer for a lost
// connection. It is told that there is nothing to come back for.
func TestResumeAfterCancellation(t *testing.T) {
	for name, test := range map[string]struct {
		sent int  // events, before the cancellation
		left bool // by the client, before it
	}{
		"nothing sent":         {0, false},
		"events sent":          {2, false},
		"nothing sent, left":   {0, true},
		"events sent and left": {2, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, testLimits)
			defer h.End(ErrEnded)
			stream := h.call(1, "")
			last := resumable(t, stream)
			for range test.sent {
				h.say(note)
			}
			for _, id := range readIDs(stream) {
				last = id
			}
			if test.left {
				stream.Detach()
			}
			h.tell(cancelOne)
			if !test.left {
				expect(t, "call", taken(stream), FailedCancelled, "end")
				stream.Detach()
			}
			if _, err := h.Resume(last); !errors.Is(err, ErrStreamOver) {
				t.Errorf("resume after %s: %v", last, err)
			}
			if test.sent > 0 {
				again := h.resume("1_1")
				expect(t, "what is kept", readIDs(again), "1_2")
				again.Detach()
			}
			if len(h.detached) != 0 || h.waiting != 0 {
				t.Errorf("%d streams are detached, %d bytes wait", len(h.detached), h.waiting)
			}
		})
	}
	t.Run("what is remembered is bounded", func(t *testing.T) {
		h := newHarness(t, testLimits)
		defer h.End(ErrEnded)
		for range 2 * mostCancelled {
			stream := h.call(1, "")
			resumable(t, stream)
			h.tell(cancelOne)
			h.answer(1)
			taken(stream)
			stream.Detach()
		}
		if len(h.cancelled) != mostCancelled || len(h.streams) != 0 {
			t.Errorf("%d are remembered, %d streams are left", len(h.cancelled), len(h.streams))
		}
	})
}
