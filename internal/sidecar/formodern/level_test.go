package formodern

import (
	"fmt"
	"testing"
)

func logs(level string) client {
	return client{capabilities: "{}", meta: `"io.modelcontextprotocol/logLevel":"` + level + `",`}
}

// U-06, U-07, B-06: the level is told before the call, and only if it is news. A message
// goes to the one call that it can be of.
func TestLogLevel(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		message := func(level string) string {
			return `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"` + level + `","data":1.0}}`
		}
		one := s.post(logs("warning"), "tools/call", `"name":"a",`)
		p := s.process(1)
		set := func(level string) {
			t.Helper()
			request := p.expect(fmt.Sprintf(`{"jsonrpc":"2.0","id":N,"method":"logging/setLevel","params":{"level":"%s"}}`, level))
			p.expectNothing()
			p.answer(request, `"result":{}`)
		}
		set("warning")
		first := p.next()
		silent := s.post(mute, "tools/call", "")
		p.next()
		p.emit(message("info"))
		p.emit(message("warning"))
		p.emit(message("emergency"))
		p.emit(message("loud"))
		one.want(message("warning"), message("emergency"))
		silent.wantNothing()
		equal(t, "dropped", s.server.Metrics().LogMessages.Value(), 2)

		two := s.post(logs("debug"), "tools/call", `"name":"b",`)
		set("debug")
		second := p.next()
		p.emit(message("emergency")) // whose?
		equal(t, "dropped", s.server.Metrics().LogMessages.Value(), 3)
		p.answer(first, `"result":{}`)
		p.emit(message("info"))
		two.want(message("info"))
		p.answer(second, `"result":{}`)
		p.emit(message("emergency"))
		equal(t, "dropped", s.server.Metrics().LogMessages.Value(), 4)

		s.post(logs("debug"), "tools/call", "")
		p.next() // it knows
		s.post(logs("alert"), "tools/list", "")
		p.next() // and the lowest has not changed
	})
}

// The lowest level counts of all calls that want messages, also of one that is still
// prepared; messages are not of that one yet.
func TestLogLevelOfPreparedCall(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		low := s.post(logs("debug"), "tools/call", `"name":"low",`)
		p := s.process(1)
		level := p.expect(`{"jsonrpc":"2.0","id":N,"method":"logging/setLevel","params":{"level":"debug"}}`)
		high := s.post(logs("error"), "tools/call", `"name":"high",`)
		p.expect(`{"jsonrpc":"2.0","id":N,"method":"tools/call","params":{"name":"high","_meta":{}}}`)
		const message = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":1.0}}`
		p.emit(message)
		high.want(message)
		p.answer(level, `"result":{}`)
		p.expect(`{"jsonrpc":"2.0","id":N,"method":"tools/call","params":{"name":"low","_meta":{}}}`)
		p.expectNothing()
		p.emit(message) // whose?
		high.want(message)
		low.wantNothing()
	})
}

// Nothing is left of a call whose client goes away while it is prepared.
func TestLogLevelOfCallNotMade(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		gone := s.post(logs("debug"), "tools/call", "")
		p := s.process(1)
		p.next()
		gone.leave()
		<-gone.done
		s.post(logs("error"), "tools/call", "")
		p.expect(`{"jsonrpc":"2.0","id":N,"method":"logging/setLevel","params":{"level":"error"}}`)
	})
}

// A server without logging is not told anything.
func TestNoLogging(t *testing.T) {
	play(t, nil, func(p *script) {
		p.answers["initialize"] = `"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{}}`
	}, func(s *stage) {
		s.post(logs("debug"), "tools/call", "")
		s.process(1).expect(`{"jsonrpc":"2.0","id":N,"method":"tools/call","params":{"_meta":{}}}`)
	})
}
