package tolegacy

import (
	"context"
	"testing"
	"time"
)

// The adapter makes a request on behalf of the caller that sent the call, and in further rounds
// of the one that sent the input. Messages of other callers in the same session change nothing.
func TestSenders(t *testing.T) {
	staged(t, func(s *stage) {
		s.meetAll()
		ctx, gone := context.WithCancel(s.t.Context())
		s.sendFor(ctx, "caller", toolCall)
		gone() // which does not change the caller
		expect := func(want string) *scripted {
			s.t.Helper()
			x := s.next()
			if x.from == nil || string(x.from.Principal) != want {
				s.t.Errorf("it is asked on behalf of %+v, want %s", x.from, want)
			}
			return x
		}
		x := expect("caller")
		s.sendFor(s.t.Context(), "stranger", `{"jsonrpc":"2.0","id":4,"method":"ping"}`)
		x.answer(needs("", `"state"`)) // to be repeated
		time.Sleep(testLimits().RetryDelay)
		x = expect("caller")
		x.answer(needs(`{"a":`+elicit+`}`, ""))
		s.heard()
		s.sendFor(s.t.Context(), "answerer", `{"jsonrpc":"2.0","id":"slipway-e1","result":{"action":"decline"}}`)
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
