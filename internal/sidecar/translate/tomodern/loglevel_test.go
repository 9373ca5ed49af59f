package tomodern

import (
	"context"
	"fmt"
	"testing"

	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

func logs(level string) client {
	return client{capabilities: "{}", meta: `"io.modelcontextprotocol/logLevel":"` + level + `",`}
}

const logMessage = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"emergency","data":1.0}}`

// U-06, U-07, B-06: the process gets the level before the call, and only if the level has
// changed. A message goes to the call if it is severe enough.
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
		p.next()
		p.emit(message("info"))
		p.emit(message("warning"))
		p.emit(message("emergency"))
		p.emit(message("loud"))
		one.want(message("warning"), message("emergency"))
		equal(t, "dropped", s.server.Metrics().LogMessages.Value(), 2)

		s.post(logs("debug"), "tools/call", `"name":"b",`)
		set("debug")
		p.next()
		s.post(logs("debug"), "tools/call", "")
		p.next() // it knows
		s.post(logs("alert"), "tools/list", "")
		p.next() // and the lowest has not changed
	})
}

// U-07: a process does not say which call a log message belongs to, so a call gets one only
// if the process has had no other call since that one began.
func TestLogMessagesOfOneCall(t *testing.T) {
	newCall := func(s *stage, p **script, c client) (*posted, session.Message) {
		posted := s.post(c, "tools/call", `"name":"a",`)
		*p = s.process(1)
		request := (*p).next()
		if string(request.Envelope.Method) == "logging/setLevel" {
			(*p).answer(request, `"result":{}`)
			request = (*p).next()
		}
		return posted, request
	}
	for name, test := range map[string]struct {
		first  client
		before func(p *script, first *posted, at session.Message) // the second call begins
		after  func(p *script, first *posted, at session.Message)
		got    bool // the second call gets it
	}{
		"alone": {
			before: func(p *script, _ *posted, at session.Message) { p.answer(at, `"result":{}`) },
			got:    true,
		},
		"beside one that wants none": {},
		"beside one that wants some": {first: logs("debug")},
		"beside one that was there at first": {
			after: func(p *script, _ *posted, at session.Message) { p.answer(at, `"result":{}`) },
		},
		"after one that was cancelled": {
			before: func(p *script, first *posted, _ session.Message) {
				first.abandon()
				p.expect(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":N,"reason":"the client has gone"}}`)
			},
		},
		"after one that was cancelled and answered": {
			before: func(p *script, first *posted, at session.Message) {
				first.abandon()
				p.next()
				p.answer(at, `"result":{}`)
			},
			got: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, nil, nil, func(s *stage) {
				var p *script
				if test.first.capabilities == "" {
					test.first = mute
				}
				first, at := newCall(s, &p, test.first)
				if test.before != nil {
					test.before(p, first, at)
				}
				second, _ := newCall(s, &p, logs("debug"))
				if test.after != nil {
					test.after(p, first, at)
				}
				p.emit(logMessage)
				for _, got := range first.got() {
					if got == logMessage {
						t.Error("the first call got the message")
					}
				}
				if test.got {
					second.want(logMessage)
				} else {
					second.wantNothing()
				}
			})
		})
	}
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

// A call that was answered before its client came back wants no more log messages.
func TestLevelOfAnsweredCall(t *testing.T) {
	play(t, nil, func(p *script) { p.answers["logging/setLevel"] = `"result":{}` }, func(s *stage) {
		s.post(mute, "tools/list", "")
		s.process(1).next()
		s.server.mu.Lock()
		var p *process
		for _, g := range s.server.groups {
			p = g.processes[0]
		}
		s.server.mu.Unlock()
		p.setLevel(context.Background(), &call{level: 1, done: true})
		s.server.mu.Lock()
		defer s.server.mu.Unlock()
		if len(p.logging) != 0 {
			t.Error("its log messages are waited for")
		}
	})
}
