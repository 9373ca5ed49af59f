package tomodern

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A drain waits, up to a limit, for clients to come back with the input that they were asked for.
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

// During a drain, a process ends when it does nothing. One with a parked call goes on until the client has come back, or
// its time is up.
func TestRefuseEndsIdleProcesses(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		answered := func(number int, id string) {
			t.Helper()
			done := s.post(elicits, "tools/call", `"name":"`+id+`",`)
			p := s.process(number)
			call := p.next()
			p.answer(call, `"result":{}`)
			done.wantPart("complete")
		}
		parked := s.post(elicits, "tools/call", `"name":"a",`)
		waits := s.process(1)
		call := waits.next()
		waits.request("1", form)
		question := parked.asked()
		answered(2, "b") // the first one is taken
		used := s.process(2)
		working := s.post(elicits, "tools/call", `"name":"c",`)
		long := used.next()
		answered(3, "d")
		idle := s.process(3)

		s.server.Refuse()
		time.Sleep(drainIdle)
		synctest.Wait()
		if waits.isClosed() || used.isClosed() || !idle.isClosed() {
			t.Errorf("closed: with a parked call %t, with a call %t, idle %t", waits.isClosed(), used.isClosed(), idle.isClosed())
		}
		time.Sleep(time.Minute)
		used.answer(long, `"result":{}`)
		working.wantPart("complete")
		time.Sleep(2 * drainIdle)
		synctest.Wait()
		if waits.isClosed() || !used.isClosed() {
			t.Errorf("a while later, closed: with a parked call %t, with a call that is answered %t", waits.isClosed(), used.isClosed())
		}
		retry := s.post(elicits, "tools/call", `"name":"a",`+question.with(`"r1":`+accept))
		waits.next()
		waits.answer(call, `"result":{}`)
		retry.wantPart("complete")
		time.Sleep(2 * drainIdle)
		synctest.Wait()
		if !waits.isClosed() {
			t.Error("a process is left whose call has gone on, and is answered")
		}
	})
}
