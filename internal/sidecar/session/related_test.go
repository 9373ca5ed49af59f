package session

import "testing"

// T-07, T-11: a server that knows which call a message belongs to has it go
// there, and what belongs to none to a general stream, however many calls are in flight.
func TestRelated(t *testing.T) {
	related := func(h *harness, text, call string) {
		message := h.message(text)
		message.Call = []byte(call)
		h.Deliver(message)
	}
	unrelated := func(h *harness) {
		message := h.message(note)
		message.Unrelated = true
		h.Deliver(message)
	}
	t.Run("several calls", func(t *testing.T) {
		h := newHarness(t, testLimits)
		one, two, general := h.call(1, ""), h.call(2, ""), h.open()
		related(h, ask, "1")
		related(h, note, "2")
		expect(t, "first call", taken(one), askText)
		expect(t, "second call", taken(two), noteText)
		expect(t, "general", taken(general))
		h.tell(`{"jsonrpc":"2.0","id":"s1","result":{}}`)
		if got := h.server.messages(); got[len(got)-1] != `{"jsonrpc":"2.0","id":"s1","result":{}}` {
			t.Errorf("the server gets %s", got)
		}
	})
	t.Run("another spelling", func(t *testing.T) {
		h := newHarness(t, testLimits)
		one, err := h.Call(t.Context(), h.message(`{"jsonrpc":"2.0","id":"a","method":"m"}`))
		if err != nil {
			t.Fatal(err)
		}
		h.call(2, "")
		related(h, note, `"\u0061"`)
		expect(t, "first call", taken(one), noteText)
	})
	t.Run("a call that is gone", func(t *testing.T) {
		h := newHarness(t, testLimits)
		one, two, general := h.call(1, ""), h.call(2, ""), h.open()
		one.Detach()
		related(h, ask, "1")
		related(h, note, "7")
		expect(t, "other call", taken(two))
		expect(t, "general", taken(general), askText, noteText)
	})
	t.Run("no call", func(t *testing.T) {
		h := newHarness(t, testLimits)
		one, general := h.call(1, ""), h.open()
		unrelated(h)
		expect(t, "call", taken(one))
		expect(t, "general", taken(general), noteText)
	})
	t.Run("no call, and no general stream", func(t *testing.T) {
		h := newHarness(t, testLimits)
		one := h.call(1, "")
		unrelated(h)
		expect(t, "call", taken(one), noteText)
	})
}
