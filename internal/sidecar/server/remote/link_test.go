package remote

import (
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
