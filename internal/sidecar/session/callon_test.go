package session

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// with one stream for everything the server's order is the stream's, and the
// stream outlives its calls, whatever becomes of them.
func TestCallOn(t *testing.T) {
	h := newHarness(t, testLimits)
	stream, err := h.Open()
	if err != nil {
		t.Fatal(err)
	}
	callOn := func(ids ...int) error {
		var requests []Message
		for _, id := range ids {
			requests = append(requests, h.message(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call"}`, id)))
		}
		return h.CallOn(t.Context(), stream, requests...)
	}
	said := []string{
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":1}}`,
		`{"jsonrpc":"2.0","id":2,"result":{}}`,
		`{"jsonrpc":"2.0","id":"s","method":"roots/list"}`,
		`{"jsonrpc":"2.0","id":1,"result":{}}`,
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":2}}`,
	}
	if err := errors.Join(callOn(1), callOn(2)); err != nil {
		t.Fatal(err)
	}
	if err := callOn(3, 1); !errors.Is(err, ErrDuplicateID) {
		t.Errorf("id in use: got %v", err)
	}
	h.server.err = errors.New("it does not read")
	if err := callOn(4); err == nil {
		t.Error("a call that was not sent was taken")
	}
	h.server.err = nil
	if err := callOn(3, 4); err != nil { // the two left nothing behind
		t.Fatal(err)
	}
	said = append(said, `{"jsonrpc":"2.0","id":4,"result":{}}`)
	for _, message := range said {
		h.Deliver(h.message(message))
	}
	h.End(errors.New("over"))
	said = append(said, `{"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"over"}}`)
	got := takeAll(t, stream)
	if diff := cmp.Diff(said, got); diff != "" {
		t.Errorf("said (-) and got (+):\n%s", diff)
	}
}

// takeAll reads a stream to its end, where its last event must say so.
func takeAll(t *testing.T, stream *Stream) (messages []string) {
	t.Helper()
	last := false
	for {
		event, ok, end := stream.Take()
		if !ok {
			if !end || !last {
				t.Errorf("after %q: end is %t, last was %t", messages, end, last)
			}
			return messages
		}
		if last {
			t.Errorf("%s follows the last event", event.Message)
		}
		last = event.Last
		messages = append(messages, string(event.Message))
	}
}
