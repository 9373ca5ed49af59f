package tomodern

import (
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// hangs is a process that answers nothing once it is initialized.
func hangs(p *script) {
	delete(p.answers, "ping")
}

// A process hangs, and its clients cannot be asked for input. After a call times out, the process
// gets no other call, and it ends after its last call, because it may still be working on one of them.
func TestHangingProcessIsReplaced(t *testing.T) {
	play(t, nil, hangs, func(s *stage) {
		first, second := s.post(mute, "tools/call", toolX), s.post(mute, "tools/call", toolX)
		p := s.process(1)
		grace := s.server.options.Limits.CancelGrace
		first.abandon()
		time.Sleep(grace - time.Second)
		third := s.post(mute, "tools/call", toolX)
		s.processes(1)
		third.abandon() // which puts nothing off
		time.Sleep(2 * time.Second)
		s.post(mute, "tools/call", toolX)
		s.processes(2)
		time.Sleep(10 * grace)
		if p.isClosed() {
			t.Error("its other call was cut off")
		}
		second.abandon()
		if !p.isClosed() {
			t.Error("it was not ended")
		}
		equal(t, "kills", s.server.Metrics().Kills.Value(), 1)
		if s.process(2).isClosed() {
			t.Error("the other was ended, too")
		}
	})
}

// If it has no other call, or they end, it ends at once.
func TestHangingProcessEndsWithItsCalls(t *testing.T) {
	play(t, nil, hangs, func(s *stage) {
		first, second := s.post(mute, "tools/call", toolX), s.post(mute, "tools/call", toolX)
		p := s.process(1)
		first.abandon()
		time.Sleep(s.server.options.Limits.CancelGrace + time.Second)
		second.abandon()
		if !p.isClosed() {
			t.Error("it was not ended with its last call")
		}
		third := s.post(mute, "tools/call", toolX)
		p = s.process(2)
		third.abandon()
		time.Sleep(s.server.options.Limits.CancelGrace + time.Second)
		if !p.isClosed() {
			t.Error("it was not ended without a call")
		}
	})
}

// A process that says anything does not hang: it is slow with one call only, or rightly
// says nothing of one that was cancelled.
func TestSlowProcessIsKept(t *testing.T) {
	for name, test := range map[string]struct {
		play  func(*script)
		after time.Duration // it speaks
	}{
		"it answers pings":          {nil, 0},
		"it answers another call":   {hangs, 5 * time.Second},
		"it does so when in doubt":  {hangs, 15 * time.Second},
		"it does so while sent one": {hangs, -time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, nil, test.play, func(s *stage) {
				slow, other := s.post(mute, "tools/call", toolX), s.post(mute, "tools/list", "")
				p := s.process(1)
				one, two := p.next(), p.next()
				if string(one.Envelope.Method) == "tools/list" {
					one, two = two, one
				}
				late := s.post(mute, "tools/call", toolX)
				p.next()
				time.Sleep(time.Minute)
				if test.after < 0 {
					p.answer(two, `"result":{}`)
				}
				late.abandon()
				p.next()
				if test.after > 0 {
					time.Sleep(test.after)
					p.answer(two, `"result":{}`)
				}
				time.Sleep(time.Minute)
				p.answer(one, `"result":{}`)
				slow.wantPart("complete")
				if test.after != 0 {
					other.wantPart("complete")
				}
				s.post(mute, "tools/call", toolX)
				p.next()
				s.processes(1)
			})
		})
	}
}

// A process that does not read gets no calls, and is ended if that lasts. One that reads
// again is used as before.
func TestUnreadingProcessIsReplaced(t *testing.T) {
	for name, lasts := range map[string]bool{"for good": true, "for a while": false} {
		t.Run(name, func(t *testing.T) {
			var stuck atomic.Bool
			started := 0
			play(t, nil, func(p *script) {
				if started++; started > 1 {
					return
				}
				p.refuse = func(session.Message) error {
					if stuck.Load() {
						return os.ErrDeadlineExceeded
					}
					return nil
				}
			}, func(s *stage) {
				listed := s.post(mute, "tools/list", "")
				p := s.process(1)
				list := p.next()
				stuck.Store(true)
				s.post(mute, "tools/call", toolX).wantBusy()
				s.post(mute, "tools/call", toolX)
				s.process(2).next()
				time.Sleep(s.server.options.Limits.CancelGrace / 2)
				if stuck.Store(lasts); lasts {
					time.Sleep(s.server.options.Limits.CancelGrace/2 + 2*mux.ReasonGrace)
					listed.wantPart(mux.ErrUnread.Error())
					return
				}
				time.Sleep(time.Minute)
				s.post(mute, "tools/call", toolX)
				p.next()
				p.answer(list, `"result":{}`)
				listed.wantPart("complete")
				s.processes(2)
			})
		})
	}
}

// A session that does not take the question whether it hangs has not been asked.
func TestBusySessionIsNotSilent(t *testing.T) {
	play(t, nil, func(p *script) {
		p.refuse = func(m session.Message) error {
			if string(m.Envelope.Method) == "ping" {
				return session.ErrTooManyCalls
			}
			return nil
		}
	}, func(s *stage) {
		slow, gone := s.post(mute, "tools/call", toolX), s.post(mute, "tools/call", toolX)
		s.process(1)
		gone.abandon()
		time.Sleep(5 * time.Minute)
		if s.process(1).isClosed() {
			t.Errorf("it was ended: %q", slow.got())
		}
	})
}

// A process that may ask is not given up because of a list: its call waits for a client.
func TestAskingProcessIsNotSilent(t *testing.T) {
	play(t, nil, hangs, func(s *stage) {
		p, atProcess, round := s.parked(elicits, form)
		list := s.post(elicits, "tools/list", "")
		p.next()
		list.abandon()
		time.Sleep(5 * time.Minute)
		retry := s.post(elicits, "tools/call", toolX+round.with(`"r1":`+accept))
		p.answer(atProcess, `"result":{}`)
		retry.wantPart("complete")
	})
}
