package forlegacy

import (
	"context"
	"testing"
	"time"
)

type senderKey struct{}

// The modern server is asked on behalf of whoever sent what it is asked for: the call, and
// for further rounds the answer that they need. That somebody else sends something in the
// same session changes nothing.
func TestSenders(t *testing.T) {
	staged(t, func(s *stage) {
		s.meetAll()
		from := func(sender string) context.Context { return context.WithValue(s.t.Context(), senderKey{}, sender) }
		ctx, gone := context.WithCancel(from("caller"))
		s.sendIn(ctx, toolCall)
		gone() // which is no reason to do anything in another's name
		expect := func(want string) *scripted {
			s.t.Helper()
			x := s.next()
			if got := x.ctx.Value(senderKey{}); got != want {
				s.t.Errorf("it is asked on behalf of %v, want %s", got, want)
			}
			return x
		}
		x := expect("caller")
		s.sendIn(from("stranger"), `{"jsonrpc":"2.0","id":4,"method":"ping"}`)
		x.answer(needs("", `"state"`)) // to be repeated
		time.Sleep(testLimits().RetryDelay)
		x = expect("caller")
		x.answer(needs(`{"a":`+elicit+`}`, ""))
		s.heard()
		s.sendIn(from("answerer"), `{"jsonrpc":"2.0","id":"slipway-e1","result":{"action":"decline"}}`)
		x = expect("answerer")
		if x.ctx.Err() != nil {
			s.t.Error("the context has ended, and the call has not")
		}
		s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`)
		if x.ctx.Err() == nil {
			s.t.Error("the context outlasts the call")
		}
	})
}
