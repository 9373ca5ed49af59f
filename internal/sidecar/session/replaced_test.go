package session

import (
	"testing"
)

// isReplaced checks that a reader has learned that it was replaced.
func isReplaced(t *testing.T, what string, reader *Stream) {
	t.Helper()
	select {
	case <-reader.Ready():
	default:
		t.Errorf("%s is not woken", what)
	}
	if event, ok, end := reader.Take(); ok || !end || !reader.Replaced() {
		t.Errorf("%s got %q, end: %v, replaced: %v", what, event.Message, end, reader.Replaced())
	}
}

// A client that comes back is heard at once, though its old connection seems to be there
// still. The new reader gets everything after the event that the client has, once.
func TestNewestReaderWins(t *testing.T) {
	h := newHarness(t, testLimits)
	defer h.End(ErrEnded)
	first := h.call(1, "")
	resumable(t, first)
	for range 3 {
		h.say(note)
	}
	expect(t, "first reader", readIDs(first), "1_1", "1_2", "1_3")
	h.say(note) // which it does not take
	<-first.Ready()

	second := h.resume("1_1")
	isReplaced(t, "first reader", first)
	if event, _, _ := second.Take(); string(second.AppendID(nil, event)) != "1_2" {
		t.Errorf("second reader got %s", second.AppendID(nil, event))
	}
	third := h.resume("1_1")
	isReplaced(t, "second reader", second)
	first.Detach() // they are slow to go
	second.Detach()
	h.answer(1)
	expect(t, "third reader", readIDs(third), "1_2", "1_3", "1_4", "1_5")
	if _, _, end := third.Take(); !end || third.Replaced() {
		t.Errorf("third reader: end %v, replaced %v", end, third.Replaced())
	}
	if _, _, idle := h.Idle(); idle || h.attached != 1 {
		t.Errorf("idle %v, %d streams are read", idle, h.attached)
	}
	third.Detach()
	if _, _, idle := h.Idle(); !idle || h.waiting != 0 || h.attached != 0 {
		t.Errorf("idle %v, %d bytes wait, %d streams are read", idle, h.waiting, h.attached)
	}
}

// What the old reader holds counts until it lets go of it.
func TestReplacedReaderHolds(t *testing.T) {
	h := newHarness(t, testLimits)
	defer h.End(ErrEnded)
	first := h.open()
	beginning := resumable(t, first)
	h.say(note)
	if _, ok, _ := first.Take(); !ok {
		t.Fatal("nothing to take")
	}
	second := h.resume(beginning)
	if cost := len(note) + eventOverhead; h.waiting != 2*cost {
		t.Errorf("%d bytes wait, want %d", h.waiting, 2*cost)
	}
	readIDs(second)
	first.Detach()
	if h.waiting != 0 {
		t.Errorf("%d bytes wait", h.waiting)
	}
	h.say(note)
	expect(t, "second reader", readIDs(second), "1_2")
}

// A stream that cannot be resumed stays with its reader.
func TestFailedResumeReplacesNone(t *testing.T) {
	limits := testLimits
	limits.ReplayBytes = streamOverhead + len(note) + eventOverhead
	h := newHarness(t, limits)
	defer h.End(ErrEnded)
	stream := h.open()
	beginning := resumable(t, stream)
	h.say(note)
	h.say(note)
	readIDs(stream)
	if _, err := h.Resume(beginning); err == nil {
		t.Fatal("resumed, though an event is lost")
	}
	h.say(note)
	expect(t, "reader", readIDs(stream), "1_3")
}

// One general stream more than there may be ends the oldest, and has what waited there.
func TestNewestGeneralStreamWins(t *testing.T) {
	h := newHarness(t, testLimits)
	defer h.End(ErrEnded)
	first := h.open()
	h.say(note)
	h.say(ask)
	<-first.Ready()
	second, third := h.open(), h.open()
	isReplaced(t, "first stream", first)
	first.Detach()
	expect(t, "third stream", taken(third), noteText, askText)
	expect(t, "second stream", taken(second))
	h.say(note)
	expect(t, "third stream", taken(third), noteText)
	third.Detach()
	h.say(note)
	expect(t, "second stream", taken(second), noteText)
	if len(h.streams) != 2 || len(h.generals) != 1 || len(h.left) != 1 {
		t.Errorf("%d streams, %d are read, %d were left", len(h.streams), len(h.generals), len(h.left))
	}
}
