package tomodern

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A drain waits for clients that were asked for input to come back, and not for ever.
func TestAwaitParked(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		ctx, leave := context.WithCancel(context.Background())
		defer leave()
		s.server.AwaitParked(ctx) // there is none
		first := s.post(elicits, "tools/call", `"name":"a",`)
		p := s.process(1)
		call := p.next()
		p.request("1", form)
		question := first.asked()

		hasty, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		s.server.AwaitParked(hasty)
		if hasty.Err() == nil {
			t.Error("a call that is parked was not waited for")
		}

		over := make(chan struct{})
		go func() {
			defer close(over)
			s.server.AwaitParked(ctx)
		}()
		retry := s.post(elicits, "tools/call", `"name":"a",`+question.with(`"r1":`+accept))
		p.next()
		p.answer(call, `"result":{}`)
		retry.wantPart("complete")
		synctest.Wait()
		select {
		case <-over:
		default:
			t.Error("a call that was answered is waited for")
		}
	})
}
