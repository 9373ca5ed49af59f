package remote

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// An error that names no call is about the call that it answers, however it says so.
func TestErrorsWithoutAnID(t *testing.T) {
	for _, id := range []string{``, `"id":null,`, `"id":7,`} {
		got := string(errorIn(&call{id: []byte("7")}, 400, []byte(`{"jsonrpc":"2.0",`+id+`"error":{"code":-32020,"message":"mismatch"}}`)))
		if !strings.Contains(got, "-32020") {
			t.Errorf("%s becomes %s", id, got)
		}
	}
}

// What comes on the stream of a call belongs to it, and nothing else does.
func TestMessagesOfACall(t *testing.T) {
	l := newLink(&Server{}, nil)
	var got []string
	l.Serve(func(m session.Message) { got = append(got, string(m.Bytes)+" of "+string(m.Call)) }, func(error) {})
	const log, answer = `{"jsonrpc":"2.0","method":"notifications/message"}`, `{"jsonrpc":"2.0","id":"a","result":{}}`
	of := &call{id: []byte(`"a"`)}
	l.deliver(of, []byte(log), false)
	l.deliver(nil, []byte(log), false)
	l.deliver(of, []byte("["+log+","+answer+"]"), false)
	if diff := cmp.Diff([]string{log + ` of "a"`, log + ` of `, log + ` of "a"`, answer + ` of "a"`}, got); diff != "" {
		t.Errorf("received (-want +got):\n%s", diff)
	}
}

// An id may be used again once its request has the answer. The rest of the first request does not
// touch the second.
func TestCallsAreForgotten(t *testing.T) {
	l := newLink(&Server{}, nil)
	l.Serve(func(session.Message) {}, func(error) {})
	cancellation, err := session.Message{Bytes: []byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)}.Scanned()
	if err != nil {
		t.Fatal(err)
	}
	first := l.begin(t.Context(), []byte("1"), sender{})
	l.deliver(first, []byte(pong), false)
	if l.find(cancellation) != nil {
		t.Error("a request that has its answer can be cancelled")
	}
	second := l.begin(t.Context(), []byte("1"), sender{})
	l.forget(first)
	if l.find(cancellation) != second {
		t.Error("the second request cannot be cancelled")
	}
}

// Nothing is received after the end.
func TestNothingIsReceivedAfterTheEnd(t *testing.T) {
	l := newLink(&Server{}, nil)
	received, ended := 0, make(chan error, 2)
	l.Serve(func(session.Message) { received++ }, func(reason error) { ended <- reason })
	l.end(errNoSession)
	l.Close()
	l.deliver(nil, []byte(`{"jsonrpc":"2.0","method":"m"}`), false)
	if reason := within(t, "end", ended); !errors.Is(reason, errNoSession) || received != 0 {
		t.Errorf("ended by %v, %d messages received", reason, received)
	}
}

// A connection uses the bytes of a message after Send only if they are its own.
func TestKeptBytes(t *testing.T) {
	text := []byte("text")
	if copied := kept(session.Message{Bytes: text}); &copied[0] == &text[0] || string(copied) != "text" {
		t.Error("the bytes of another are kept")
	}
	if own := kept(session.Message{Bytes: text, Owned: true}); &own[0] != &text[0] {
		t.Error("bytes are copied without need")
	}
}

// What a server calls a revision becomes a header only if it can be one.
func TestNameSession(t *testing.T) {
	for revision, want := range map[string]string{"2025-11-25": "2025-11-25", "": "", "a\nb": "", "é": "", strings.Repeat("x", 5000): ""} {
		header := http.Header{}
		nameSession(header, "id", revision)
		if got := header.Get(headerRevision); got != want || header.Get(headerSession) != "id" {
			t.Errorf("%q: got %v", revision, header)
		}
	}
}
