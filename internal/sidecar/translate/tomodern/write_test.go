package tomodern

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// A session that has as many calls as it may have, or as much on its way, does not take a
// request. It has not ended: its other calls go on, and later it takes more.
func TestSendBusy(t *testing.T) {
	for _, busy := range []error{session.ErrTooManyCalls, session.ErrServerBusy, fault.Busy("one limit or another is reached")} {
		t.Run(busy.Error(), func(t *testing.T) {
			play(t, nil, func(p *script) {
				calls := 0
				p.refuse = func(m session.Message) error {
					if string(m.Envelope.Method) == "tools/call" {
						if calls++; calls == 2 {
							return fmt.Errorf("send request to server: %w", busy)
						}
					}
					return nil
				}
			}, func(s *stage) {
				first := s.post(mute, "tools/call", toolX)
				p := s.process(1)
				request := p.next()
				s.post(mute, "tools/call", toolX).wantBusy()
				time.Sleep(2 * mux.ReasonGrace)
				third := s.post(mute, "tools/call", toolX)
				p.answer(p.next(), `"result":{}`)
				third.wantPart("complete")
				p.answer(request, `"result":{}`)
				first.wantPart("complete")
				s.processes(1)
			})
		})
	}
}

// The adapter's own requests to a process that takes no more calls wait. Messages that may make
// room for calls go first.
func TestOwnMessagesWhileBusy(t *testing.T) {
	var open atomic.Bool
	play(t, nil, func(p *script) {
		p.refuse = func(m session.Message) error {
			if !open.Load() && m.Envelope.Kind == rpc.Request && string(m.Envelope.Method) == "logging/setLevel" {
				return session.ErrTooManyCalls
			}
			return nil
		}
	}, func(s *stage) {
		first := s.post(mute, "tools/call", toolX)
		p := s.process(1)
		p.next()
		s.post(logs("debug"), "tools/call", toolX)
		p.expectNothing()
		time.Sleep(2 * mux.BusyPause)
		first.abandon()
		time.Sleep(mux.BusyPause)
		p.expect(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":N,"reason":"the client has gone"}}`)
		p.expectNothing()
		open.Store(true)
		time.Sleep(mux.BusyPause)
		p.expect(`{"jsonrpc":"2.0","id":N,"method":"logging/setLevel","params":{"level":"debug"}}`)
	})
}

// The answers of a client that came back are not lost, either, nor is their order.
func TestAnswersWhileBusy(t *testing.T) {
	refused := 0
	play(t, nil, func(p *script) {
		p.refuse = func(m session.Message) error {
			if m.Envelope.Kind == rpc.Response && refused < 3 {
				refused++
				return session.ErrServerBusy
			}
			return nil
		}
	}, func(s *stage) {
		p, atProcess, round := s.parked(elicits, form, form)
		retry := s.post(elicits, "tools/call", toolX+round.with(`"r1":`+accept+`,"r2":`+accept))
		time.Sleep(3 * mux.BusyPause)
		p.expect(`{"jsonrpc":"2.0","id":1,"result":` + accept + `}`)
		p.expect(`{"jsonrpc":"2.0","id":2,"result":` + accept + `}`)
		p.answer(atProcess, `"result":{}`)
		retry.wantPart("complete")
		s.processes(1)
	})
}
