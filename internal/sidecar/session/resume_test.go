package session

import (
	"errors"
	"testing"
)

// readIDs takes what waits on a stream and returns the events' ids.
func readIDs(stream *Stream) (ids []string) {
	for {
		event, ok, _ := stream.Take()
		if !ok {
			return ids
		}
		ids = append(ids, string(stream.AppendID(nil, event)))
	}
}

func resumable(t *testing.T, stream *Stream) string {
	t.Helper()
	beginning, ok := stream.MakeResumable()
	if !ok {
		t.Fatal("the stream cannot be resumed")
	}
	return beginning
}

func (h *harness) resume(lastEventID string) *Stream {
	h.t.Helper()
	stream, err := h.Resume(lastEventID)
	if err != nil {
		h.t.Fatalf("resume after %s: %v", lastEventID, err)
	}
	return stream
}

// T-21: a client that lost its connection gets what followed, on that stream only.
func TestResume(t *testing.T) {
	h := newHarness(t, testLimits)
	one, two := h.call(1, `"_meta":{"progressToken":1}`), h.call(2, `"_meta":{"progressToken":2}`)
	beginning := resumable(t, one)
	resumable(t, two)
	progress := func(token string) {
		h.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + token + `}}`)
	}
	progress("1")
	progress("2")
	ids := readIDs(one)
	expect(t, "ids", ids, "1_1")
	one.Detach() // T-08: this cancels nothing
	progress("1")
	h.answer(1)

	for _, from := range []struct {
		id   string
		want []string
	}{
		{ids[0], []string{"1_2", "1_3"}},
		{beginning, []string{"1_1", "1_2", "1_3"}},
		{"1_3", nil},
	} {
		stream, err := h.Resume(from.id)
		if err != nil {
			t.Fatalf("resume after %s: %v", from.id, err)
		}
		expect(t, "after "+from.id, readIDs(stream), from.want...)
		if _, _, end := stream.Take(); !end {
			t.Errorf("resumed after %s: the stream does not end", from.id)
		}
		stream.Detach()
	}
	expect(t, "the other call", readIDs(two), "2_1")
}

func TestResumeRefuses(t *testing.T) {
	h := newHarness(t, testLimits)
	one := h.call(1, "")
	h.say(note)
	for name, id := range map[string]string{
		"not resumable yet": "1_0", "no such stream": "9_0", "hostile": "x", "empty": "", "no number": "1_", "negative": "1_-1",
		"too large": "1_99999999999999999999999", "long": "1_0000000000000000000000000000000000000000000000000000000001",
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := h.Resume(id); !errors.Is(err, ErrUnknownEvent) {
				t.Errorf("resume after %q: got %v, want ErrUnknownEvent", id, err)
			}
		})
	}
	resumable(t, one)
	readIDs(one)
	one.Detach()
	if _, err := h.Resume("1_2"); !errors.Is(err, ErrUnknownEvent) {
		t.Errorf("an event that was never sent: got %v", err)
	}
}

// R50, T-25: the buffer is bounded, and what it loses is not made up.
func TestReplayIsBounded(t *testing.T) {
	limits := testLimits
	limits.ReplayBytes = streamOverhead + 3*(len(note)+eventOverhead)
	h := newHarness(t, limits)
	general := h.open()
	beginning := resumable(t, general)
	for range 10 {
		h.say(note)
		readIDs(general)
	}
	general.Detach()
	if h.replay.bytes > limits.ReplayBytes || h.replay.sent.len() != 3 {
		t.Errorf("kept %d events of %d bytes", h.replay.sent.len(), h.replay.bytes)
	}
	for _, lost := range []string{beginning, "1_6"} {
		if _, err := h.Resume(lost); !errors.Is(err, ErrUnknownEvent) {
			t.Errorf("resume after %s: got %v, want ErrUnknownEvent", lost, err)
		}
	}
	stream, err := h.Resume("1_7")
	if err != nil {
		t.Fatalf("resume: %v", err)
	}
	expect(t, "what is kept", readIDs(stream), "1_8", "1_9", "1_10")
}

// Streams that are over go away with their last event.
func TestFinishedStreamsAreForgotten(t *testing.T) {
	limits := testLimits
	limits.ReplayBytes = 4 << 10
	h := newHarness(t, limits)
	for i := range 1000 {
		stream := h.call(i, "")
		resumable(t, stream)
		h.answer(i)
		readIDs(stream)
		stream.Detach()
	}
	if len(h.streams) > 10 {
		t.Errorf("%d streams are remembered", len(h.streams))
	}
}

// R22: a client that opens streams and drops them leaves nothing behind.
func TestDroppedGeneralStreamsAreForgotten(t *testing.T) {
	for name, resume := range map[string]bool{"with ids": true, "without ids": false} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, testLimits)
			for range 1000 {
				stream := h.open()
				if resume {
					resumable(t, stream)
				}
				stream.Detach()
			}
			if len(h.streams) > 1 {
				t.Errorf("%d streams are remembered", len(h.streams))
			}
		})
	}
}

func TestWithoutReplay(t *testing.T) {
	limits := testLimits
	limits.ReplayBytes = 0
	h := newHarness(t, limits)
	one := h.call(1, "")
	if _, ok := one.MakeResumable(); ok {
		t.Error("a stream is resumable without a buffer")
	}
	one.Detach()
	h.answer(1)
	if len(h.streams) != 0 {
		t.Error("the session keeps an answer that no client can read")
	}
}

// What a general stream was left with is not lost: the next one has it.
func TestNextStreamInherits(t *testing.T) {
	h := newHarness(t, testLimits)
	first := h.open()
	h.say(note)
	first.Detach()
	h.say(ask)
	second := h.open()
	expect(t, "second stream", taken(second), noteText, askText)
	h.tell(`{"jsonrpc":"2.0","id":"s1","result":{}}`)
	expect(t, "server", h.server.messages(), `{"jsonrpc":"2.0","id":"s1","result":{}}`)
}

// A client that resumes its general stream gets what came meanwhile. A stream that another one has replaced has only what
// was sent on it.
func TestResumedStreamInherits(t *testing.T) {
	h := newHarness(t, testLimits)
	replaced := h.open()
	resumable(t, replaced)
	h.say(note)
	before := readIDs(replaced)
	replaced.Detach()
	last := h.open()
	resumable(t, last)
	h.say(note)
	ids := readIDs(last)
	last.Detach()
	h.say(ask)
	h.say(note)
	expect(t, "stream that was replaced", taken(h.resume(before[0])), "end")
	expect(t, "resumed stream", taken(h.resume(ids[0])), askText, noteText)
	h.tell(`{"jsonrpc":"2.0","id":"s1","result":{}}`)
	expect(t, "server", h.server.messages(), `{"jsonrpc":"2.0","id":"s1","result":{}}`)
}
