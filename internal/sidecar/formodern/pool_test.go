package formodern

import (
	"testing"
	"testing/synctest"
	"time"
)

// B3: clients that cannot be asked share a process, of their principal.
func TestSharedByPrincipal(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		for range 5 {
			s.post(client{principal: "a", capabilities: "{}"}, "tools/call", "")
			synctest.Wait()
		}
		s.post(client{principal: "b", capabilities: `{"extensions":{"x":{}}}`}, "tools/call", "")
		s.processes(2)
		for range 5 {
			s.process(1).next()
		}
		s.process(2).next()
	})
}

// B3, Q-05: one call that may ask at a time per process; lists may overlap. A call that
// finds none waits, and is refused in the end without having been sent.
func TestLease(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		var calls []*posted
		for _, method := range []string{"tools/call", "prompts/get", "resources/read"} {
			calls = append(calls, s.post(elicits, method, ""))
			synctest.Wait()
		}
		s.processes(3)
		s.post(elicits, "tools/list", "")
		s.post(elicits, "completion/complete", "")
		synctest.Wait()
		first := s.process(1)
		request := first.next()
		first.next()
		first.next()

		waiting := s.post(elicits, "tools/call", `"name":"waits",`)
		late := s.post(elicits, "tools/call", `"name":"late",`)
		waiting.wantNothing()
		time.Sleep(time.Second)
		first.answer(request, `"result":{}`)
		calls[0].wantPart(`"complete"`)
		if name := string(first.next().Envelope.Name); name == "late" {
			late = waiting
		}
		late.wantBusy()
		first.expectNothing()
		s.processes(3)
	})
}

// The process that was used last is used again, so that what it keeps goes on.
func TestReuse(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		a, b := s.post(elicits, "tools/call", ""), s.post(elicits, "tools/call", "")
		s.processes(2)
		one, two := s.process(1), s.process(2)
		first, second := one.next(), two.next()
		time.Sleep(time.Second)
		one.answer(first, `"result":{}`)
		time.Sleep(time.Second)
		two.answer(second, `"result":{}`)
		a.wantPart("complete")
		b.wantPart("complete")
		s.post(elicits, "tools/call", "")
		two.next()
		one.expectNothing()
	})
}

// When there are as many processes as may be, the one goes that was not used for the
// longest time; one in use never does.
func TestEviction(t *testing.T) {
	play(t, func(o *Options) { o.Limits.Children = 2 }, nil, func(s *stage) {
		a := s.post(client{principal: "a", capabilities: "{}"}, "tools/call", "")
		s.process(1).answer(s.process(1).next(), `"result":{}`)
		a.wantPart("complete")
		time.Sleep(time.Second)
		s.post(client{principal: "b", capabilities: "{}"}, "tools/call", "")
		s.process(2).next()
		s.post(client{principal: "c", capabilities: "{}"}, "tools/call", "")
		s.process(3).next()
		if !s.process(1).isClosed() || s.process(2).isClosed() {
			t.Error("the wrong process made room")
		}
		s.post(client{principal: "d", capabilities: "{}"}, "tools/call", "").wantBusy()
		s.processes(3)
		equal(t, "evictions", s.server.Metrics().Evictions.Value(), 1)
		equal(t, "busy", s.server.Metrics().Busy.Value(), 1)
	})
}

// One principal can have so many kinds of clients at a time.
func TestKeysPerPrincipal(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		s.post(mute, "tools/call", "")
		synctest.Wait()
		list := s.post(elicits, "tools/list", "")
		p := s.process(2)
		request := p.next()
		s.post(able, "tools/list", "").wantBusy()
		p.answer(request, `"result":{}`)
		list.wantPart("complete")
		s.post(able, "tools/list", "")
		s.process(3).next()
		if !p.isClosed() || s.process(1).isClosed() {
			t.Error("the wrong process made room")
		}
	})
}

// A process ends when it was not used for long enough, and not before.
func TestIdle(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		s.post(mute, "tools/list", "")
		p := s.process(1)
		request := p.next()
		time.Sleep(6 * time.Minute) // in flight
		p.answer(request, `"result":{}`)
		time.Sleep(4 * time.Minute)
		again := s.post(mute, "tools/list", "")
		p.answer(p.next(), `"result":{}`)
		again.wantPart("complete")
		time.Sleep(5*time.Minute - time.Second)
		if p.isClosed() {
			t.Error("it ended too soon")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !p.isClosed() {
			t.Error("it did not end")
		}
		s.empty()
	})
}

// A client that goes away while it waits for a process does not stop its start, and its
// request is not sent.
func TestLeaveWhileStarting(t *testing.T) {
	play(t, nil, func(p *script) { delete(p.answers, "initialize") }, func(s *stage) {
		request := s.post(mute, "tools/call", "")
		p := s.process(1)
		hello := p.next()
		request.leave()
		<-request.done
		if request.err == nil {
			t.Error("no error")
		}
		p.answer(hello, everything)
		p.expectNothing()
		s.post(mute, "tools/list", "")
		p.next()
		s.processes(1)
	})
}

// M-09, B6: a process that may ask is free when it is done with a cancelled call, and is
// ended if it is not.
func TestCancelLeased(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		a := s.post(elicits, "tools/call", `"name":"a",`)
		p := s.process(1)
		request := p.next()
		a.abandon()
		p.expect(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":N,"reason":"the client has gone"}}`)
		b := s.post(elicits, "tools/call", `"name":"b",`)
		second := s.process(2).next() // since the first may still ask
		p.answer(request, `"error":{"code":0,"message":"cancelled"}`)
		a.wantNothing()
		time.Sleep(time.Minute)
		if p.isClosed() {
			t.Error("it was ended though it was done")
		}
		b.abandon()
		s.process(2).next()
		time.Sleep(9 * time.Second)
		if s.process(2).isClosed() {
			t.Error("it was ended too soon")
		}
		time.Sleep(2 * time.Second)
		if !s.process(2).isClosed() {
			t.Error("it was not ended")
		}
		_ = second
		b.wantNothing()
		equal(t, "kills", s.server.Metrics().Kills.Value(), 1)
	})
}
