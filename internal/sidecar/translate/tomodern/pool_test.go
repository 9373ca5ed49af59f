package tomodern

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/child"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

var _ mux.Server = (*child.Server)(nil)

// B-03: clients that cannot be asked share a process, of their principal.
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

// B-03, Q-05: one call that may ask at a time per process; lists may overlap. A call that
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

// The oldest process that is free is used, which lists come from, too, so that a client
// with one call at a time finds what it did before (B-06).
func TestReuse(t *testing.T) {
	for range 50 { // since starts have no order
		play(t, nil, nil, reuse)
	}
}

func reuse(s *stage) {
	a, b := s.post(elicits, "tools/call", ""), s.post(elicits, "tools/call", "")
	s.processes(2)
	one, two := s.process(1), s.process(2)
	time.Sleep(time.Second)
	one.answer(one.next(), `"result":{}`)
	time.Sleep(time.Second)
	two.answer(two.next(), `"result":{}`)
	a.wantPart("complete")
	b.wantPart("complete")
	for i, method := range []string{"tools/call", "tools/list", "tools/call"} {
		call := s.post(elicits, method, "")
		if i == 0 && two.hasMail() {
			one, two = two, one
		}
		one.answer(one.next(), `"result":{"tools":[]}`)
		call.wantPart("complete")
		time.Sleep(time.Second)
	}
	two.expectNothing()
}

// hasMail says whether the process was sent anything.
func (p *script) hasMail() bool {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.sent) > 0
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

// Of the processes that are idle, the one that was used least recently makes room.
func TestEvictionOfLeastRecentlyUsed(t *testing.T) {
	play(t, func(o *Options) { o.Limits.Children = 2 }, nil, func(s *stage) {
		use := func(principal string, n int) {
			request := s.post(client{principal: principal, capabilities: "{}"}, "tools/call", "")
			s.process(n).answer(s.process(n).next(), `"result":{}`)
			request.wantPart("complete")
			time.Sleep(time.Second)
		}
		use("a", 1)
		use("b", 2)
		use("a", 1)
		use("c", 3)
		if s.process(1).isClosed() || !s.process(2).isClosed() {
			t.Error("the wrong process made room")
		}
	})
}

// Clients of one address never have all processes, by whatever tokens and capabilities
// they tell themselves apart.
func TestOneIsLeftForOtherAddresses(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		const form, both = `{"elicitation":{"form":{}}}`, `{"elicitation":{"form":{},"url":{}}}`
		greedy := func(principal, capabilities string) *posted {
			defer synctest.Wait()
			return s.post(client{principal: principal, capabilities: capabilities, address: "192.0.2.1"}, "tools/call", "")
		}
		greedy("a", form)
		greedy("a", both)
		greedy("made up", form)
		s.processes(3)
		waiting := greedy("made up as well", form)
		waiting.wantNothing()
		s.post(client{principal: "b", capabilities: form, address: "192.0.2.2"}, "tools/call", "")
		s.process(4).next()
		waiting.wantBusy()
		// When one of their own is free, they take its place.
		one := s.process(1)
		one.answer(one.next(), `"result":{}`)
		greedy("made up again", form)
		s.process(5).next()
		if !one.isClosed() {
			t.Error("they have one more")
		}
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

// If they are all idle, the kind that was used least recently makes room.
func TestKeysPerPrincipalLeastRecentlyUsed(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		use := func(c client, n int) {
			list := s.post(c, "tools/list", "")
			s.process(n).answer(s.process(n).next(), `"result":{}`)
			list.wantPart("complete")
			time.Sleep(time.Second)
		}
		use(mute, 1)
		use(elicits, 2)
		use(mute, 1)
		use(able, 3)
		if s.process(1).isClosed() || !s.process(2).isClosed() {
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
		time.Sleep(3 * time.Minute)
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
		initialize := p.next()
		request.leave()
		<-request.done
		if request.err == nil {
			t.Error("no error")
		}
		p.answer(initialize, everything)
		p.expectNothing()
		s.post(mute, "tools/list", "")
		p.next()
		s.processes(1)
	})
}

// M-09, B-06: a process that may ask is free when it is done with a cancelled call, and is
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

// Sessions may have all processes. An idle process of the server makes room. If there is none,
// the next start does not back off.
func TestFull(t *testing.T) {
	var s *stage
	running := func() (n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, p := range s.started {
			if !p.isClosed() {
				n++
			}
		}
		return n
	}
	play(t, func(o *Options) {
		acquire := o.Acquire
		o.Acquire = func(ctx context.Context, from *caller.Caller) (mux.Server, error) {
			if running() > 0 {
				return nil, fault.ErrFull
			}
			return acquire(ctx, from)
		}
	}, nil, func(played *stage) {
		s = played
		one := s.post(client{principal: "a", capabilities: "{}"}, "tools/call", "")
		p := s.process(1)
		request := p.next()
		for range 3 {
			begin := time.Now()
			s.post(client{principal: "b", capabilities: "{}"}, "tools/call", "").wantBusy()
			if waited := time.Since(begin); waited > testLimits().AcquireTimeout+fullPause {
				t.Errorf("it was refused after %s", waited)
			}
		}
		p.answer(request, `"result":{}`)
		one.wantPart("complete")
		s.post(client{principal: "b", capabilities: "{}"}, "tools/call", "")
		time.Sleep(fullPause)
		s.process(2).next()
		equal(t, "failures", s.server.Metrics().StartFailures.Value(), 0)
	})
}

// A process that cannot be sent a request has not seen it: another is tried.
func TestSendFails(t *testing.T) {
	n := 0
	play(t, nil, func(p *script) {
		if n++; n == 1 {
			p.refuse = func(m session.Message) error {
				if string(m.Envelope.Method) == "tools/call" {
					return errPlayed
				}
				return nil
			}
		}
	}, func(s *stage) {
		request := s.post(mute, "tools/call", "")
		p := s.process(2)
		p.answer(p.next(), `"result":{}`)
		request.wantPart("complete")
		time.Sleep(2 * mux.ReasonGrace)
		if !s.process(1).isClosed() {
			t.Error("it was not ended")
		}
	})
}

// One that does not read what it is sent was not called either.
func TestSendTimesOut(t *testing.T) {
	play(t, nil, func(p *script) {
		p.refuse = func(m session.Message) error {
			if string(m.Envelope.Method) == "tools/call" {
				return os.ErrDeadlineExceeded
			}
			return nil
		}
	}, func(s *stage) {
		s.post(mute, "tools/call", "").wantBusy()
		s.post(mute, "tools/list", "")
		s.process(1).next()
		s.processes(1)
	})
}

// One that ends just as it has read a request may have acted: the request is answered.
func TestEndsWhileSent(t *testing.T) {
	play(t, nil, func(p *script) {
		p.refuse = func(m session.Message) error {
			if string(m.Envelope.Method) == "tools/call" {
				p.ended(errPlayed)
				return errTaken
			}
			return nil
		}
	}, func(s *stage) {
		s.post(mute, "tools/call", "").want(failure(-32603, errPlayed.Error()))
		s.processes(1)
	})
}

// A process that asks without reading the answers is ended.
func TestFlood(t *testing.T) {
	stop := make(chan struct{})
	play(t, nil, func(p *script) {
		p.refuse = func(m session.Message) error {
			if m.Envelope.Kind == rpc.Response {
				<-stop
			}
			return nil
		}
	}, func(s *stage) {
		stop = make(chan struct{}) // of this bubble
		request := s.post(mute, "tools/call", "")
		p := s.process(1)
		p.next()
		id := `"` + strings.Repeat("x", 1<<16) + `"`
		for range 20 {
			p.request(id, `"method":"ping"`)
		}
		if !p.isClosed() {
			t.Error("it was not ended")
		}
		request.want(failure(-32603, mux.ErrUnread.Error()))
		close(stop)
	})
}

// A client that goes away while its call is prepared: it is not made.
func TestLeaveWhilePreparing(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		request := s.post(logs("debug"), "tools/call", "")
		p := s.process(1)
		level := p.next()
		request.leave()
		<-request.done
		if request.err == nil {
			t.Error("no error")
		}
		p.answer(level, `"result":{}`)
		p.expectNothing()
	})
}

// A process that was used a moment ago is not ended for another client at once: clients that
// come with ever new tokens would have processes start all the time. Few of one address wait.
func TestEvictionWaits(t *testing.T) {
	play(t, func(o *Options) { o.Limits.Children, o.Limits.EvictIdle = 2, 2*time.Second }, nil, func(s *stage) {
		a := s.post(client{principal: "a", capabilities: "{}"}, "tools/call", "")
		s.process(1).answer(s.process(1).next(), `"result":{}`)
		a.wantPart("complete")
		s.post(client{principal: "b", capabilities: "{}"}, "tools/call", "")
		s.process(2).next()
		begin := time.Now()
		s.post(client{principal: "c", capabilities: "{}"}, "tools/call", "")
		synctest.Wait()
		s.processes(2)
		time.Sleep(2*time.Second + time.Millisecond - time.Since(begin))
		s.process(3).next()
		if !s.process(1).isClosed() || s.process(2).isClosed() {
			t.Error("the wrong process made room")
		}
		var waiting []*posted
		for i := range mostWaiting {
			waiting = append(waiting, s.post(client{principal: fmt.Sprint("d", i), capabilities: "{}", address: "192.0.2.1"}, "tools/call", ""))
		}
		synctest.Wait()
		begin = time.Now()
		s.post(client{principal: "e", capabilities: "{}", address: "192.0.2.1"}, "tools/call", "").wantBusy()
		if waited := time.Since(begin); waited != 0 {
			t.Errorf("one more than may wait was refused after %s", waited)
		}
		for _, w := range waiting {
			w.wantBusy()
		}
		if len(s.server.queues) != 0 {
			t.Errorf("%v are left in the queues", s.server.queues)
		}
	})
}
