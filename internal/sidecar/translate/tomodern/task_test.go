package tomodern

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/toolindex"
)

const withTasks = `"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"tasks":{"requests":{"tools":{"call":{}}}}},"serverInfo":{"name":"old","version":"1.0"}}`

// slow has tools that can only be called as tasks, and others.
func slow(p *script) {
	p.answers["initialize"] = withTasks
	p.answers["tools/list"] = `"result":{"tools":[{"name":"slow","execution":{"taskSupport":"required"}},{"name":"fast","execution":{"taskSupport":"optional"}}]}`
}

const (
	slowCall = `{"jsonrpc":"2.0","id":N,"method":"tools/call","params":{"task":{"ttl":3600000},"name":"slow","_meta":{}}}`
	begun    = `"result":{"task":{"taskId":"t\"1","status":"working","pollInterval":1000,"ttl":1}}`
	get      = `{"jsonrpc":"2.0","id":N,"method":"tasks/get","params":{"taskId":"t\"1"}}`
	fetch    = `{"jsonrpc":"2.0","id":N,"method":"tasks/result","params":{"taskId":"t\"1"}}`
)

// U-11, U-12: a tool that must be a task is one, for a client that knows of none.
func TestTask(t *testing.T) {
	play(t, nil, slow, func(s *stage) {
		request := s.post(mute, "tools/call", `"name":"slow",`)
		p := s.process(1)
		p.answer(p.expect(slowCall), begun)
		time.Sleep(900 * time.Millisecond)
		p.expectNothing()
		time.Sleep(200 * time.Millisecond)
		p.answer(p.expect(get), `"result":{"taskId":"t\"1","status":"working","pollInterval":1}`)
		time.Sleep(fastestPoll)
		p.answer(p.expect(get), `"result":{"taskId":"t\"1","status":"completed"}`)
		p.answer(p.expect(fetch), `"result":{"content":[],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t\"1"}}}`)
		request.want(result(`"resultType":"complete","content":[],` + info))
		p.expectNothing()
		s.post(mute, "tools/call", `"name":"fast",`)
		p.answer(p.expect(`{"jsonrpc":"2.0","id":N,"method":"tools/call","params":{"name":"fast","_meta":{}}}`), `"error":{"code":-32601,"message":"m"}`)
	})
}

// U-07: the process works on a task until its result is there, and log messages are of it.
func TestLogMessagesOfTask(t *testing.T) {
	play(t, nil, slow, func(s *stage) {
		request := s.post(logs("debug"), "tools/call", `"name":"slow",`)
		p := s.process(1)
		p.answer(p.expect(slowCall), begun)
		p.emit(logMessage)
		request.want(logMessage)
		time.Sleep(time.Second)
		p.answer(p.expect(get), `"result":{"taskId":"t\"1","status":"completed"}`)
		p.answer(p.expect(fetch), `"result":{"content":[]}`)
		next := s.post(logs("debug"), "tools/call", `"name":"fast",`)
		p.next()
		p.emit(logMessage)
		next.want(logMessage)
	})
}

// What the server says at once is the answer.
func TestTaskAtOnce(t *testing.T) {
	for name, test := range map[string]struct{ answer, want string }{
		"an error":  {`"error":{"code":-32602,"message":"m"}`, failure(-32602, "m")},
		"a result":  {`"result":{"content":[]}`, result(`"resultType":"complete",` + info + `,"content":[]`)},
		"no object": {`"result":{"task":7}`, result(`"resultType":"complete",` + info + `,"task":7`)},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, nil, slow, func(s *stage) {
				request := s.post(mute, "tools/call", `"name":"slow",`)
				s.process(1).answer(s.process(1).expect(slowCall), test.answer)
				request.want(test.want)
			})
		})
	}
}

// A task asks while its result is waited for.
func TestTaskAsks(t *testing.T) {
	play(t, nil, slow, func(s *stage) {
		request := s.post(elicits, "tools/call", `"name":"slow",`)
		p := s.process(1)
		p.answer(p.expect(slowCall), `"result":{"task":{"taskId":"t\"1","status":"input_required"}}`)
		waiting := p.expect(fetch)
		p.request("5", form)
		round := request.asked()
		retry := s.post(elicits, "tools/call", `"name":"slow",`+round.with(`"r1":`+accept))
		p.expect(`{"jsonrpc":"2.0","id":5,"result":` + accept + `}`)
		p.answer(waiting, `"result":{}`)
		retry.wantPart(`"complete"`)
		p.expectNothing()
	})
}

// U-04: a task is cancelled as such, also if its name is not known yet.
func TestTaskCancelled(t *testing.T) {
	const cancel = `{"jsonrpc":"2.0","id":N,"method":"tasks/cancel","params":{"taskId":"t\"1"}}`
	for name, c := range map[string]client{"shared": mute, "asking": elicits} {
		t.Run(name, func(t *testing.T) {
			play(t, nil, slow, func(s *stage) {
				known := s.post(c, "tools/call", `"name":"slow",`)
				p := s.process(1)
				p.answer(p.expect(slowCall), begun)
				known.abandon()
				p.answer(p.expect(cancel), `"result":{}`)

				unknown := s.post(c, "tools/call", `"name":"slow",`)
				request := p.expect(slowCall)
				unknown.abandon()
				p.expect(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":N,"reason":"the client has gone"}}`)
				p.answer(request, begun)
				p.answer(p.expect(cancel), `"error":{"code":-32602,"message":"over"}`)

				s.post(c, "tools/call", `"name":"fast",`)
				p.next()
				time.Sleep(time.Minute)
				p.expectNothing()
				s.processes(1)
				if p.isClosed() {
					t.Error("it was ended")
				}
			})
		})
	}
}

// A process that ends between two looks at a task.
func TestTaskProcessEnds(t *testing.T) {
	play(t, nil, slow, func(s *stage) {
		request := s.post(mute, "tools/call", `"name":"slow",`)
		p := s.process(1)
		p.answer(p.expect(slowCall), begun)
		p.end(errPlayed)
		request.want(failure(-32603, errPlayed.Error()))
	})
}

// The list is asked for once, and again when it may have changed.
func TestTaskTools(t *testing.T) {
	play(t, nil, func(p *script) { p.answers["initialize"] = withTasks }, func(s *stage) {
		list := func(p *script, tools string) {
			t.Helper()
			p.answer(p.expect(`{"jsonrpc":"2.0","id":N,"method":"tools/list","params":{}}`), `"result":{"tools":[],"nextCursor":"\"c"}`)
			p.answer(p.expect(`{"jsonrpc":"2.0","id":N,"method":"tools/list","params":{"cursor":"\"c"}}`), `"result":{"tools":[`+tools+`]}`)
		}
		const must = `{"name":"slow","execution":{"taskSupport":"required"}}`
		plain := `{"jsonrpc":"2.0","id":N,"method":"tools/call","params":{"name":"slow","_meta":{}}}`
		s.post(mute, "tools/call", `"name":"slow",`)
		p := s.process(1)
		list(p, "")
		request := p.expect(plain)
		s.post(mute, "tools/call", `"name":"slow",`)
		p.expect(plain)
		p.answer(request, `"error":{"code":-32601,"message":"as a task"}`)
		s.post(mute, "tools/call", `"name":"slow",`)
		list(p, must)
		p.expect(slowCall)
		p.notify(toolsChanged, "")
		s.post(mute, "tools/call", `"name":"slow",`)
		list(p, "")
		p.expect(plain)
		synctest.Wait()
	})
}

// A list that the process does not send delays one call, not every call.
func TestTaskToolsUnanswered(t *testing.T) {
	play(t, nil, func(p *script) { p.answers["initialize"], p.answers["tools/list"] = withTasks, "" }, func(s *stage) {
		s.post(mute, "tools/call", `"name":"slow",`)
		p := s.process(1)
		p.expectNothing()
		time.Sleep(toolindex.Timeout)
		p.next()
		for range 3 {
			s.post(mute, "tools/call", `"name":"slow",`)
			p.next()
		}
		time.Sleep(time.Minute + time.Second)
		s.post(mute, "tools/call", `"name":"slow",`)
		p.expectNothing()
		time.Sleep(toolindex.Timeout)
		p.next()
	})
}

// An error is no list: what it does not say is asked for again. A change of the list is
// reason enough to ask sooner.
func TestTaskToolsRefused(t *testing.T) {
	refuse := func(p *script) {
		p.answers["initialize"], p.answers["tools/list"] = withTasks, `"error":{"code":-32603,"message":"busy"}`
	}
	plain := `{"jsonrpc":"2.0","id":N,"method":"tools/call","params":{"name":"slow","_meta":{}}}`
	for name, then := range map[string]func(p *script){
		"later":   func(*script) { time.Sleep(time.Minute + time.Second) },
		"changed": func(p *script) { p.notify(toolsChanged, "") },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, nil, refuse, func(s *stage) {
				s.post(mute, "tools/call", `"name":"slow",`)
				p := s.process(1)
				p.answer(p.expect(plain), `"error":{"code":-32601,"message":"as a task"}`)
				s.post(mute, "tools/call", `"name":"slow",`)
				p.expect(plain)
				slow(p)
				then(p)
				s.post(mute, "tools/call", `"name":"slow",`)
				p.expect(slowCall)
			})
		})
	}
}

// P-05: servers with sessions also end a list by an empty cursor, and a list that goes in
// circles has no end.
func TestTaskToolsEnd(t *testing.T) {
	const must = `"result":{"tools":[{"name":"slow","execution":{"taskSupport":"required"}},{"name":"odd","execution":7}],"nextCursor":`
	ends := func(p *script) { p.answers["initialize"], p.answers["tools/list"] = withTasks, must+`""}` }
	play(t, nil, ends, func(s *stage) {
		s.post(mute, "tools/call", `"name":"slow",`)
		s.process(1).expect(slowCall)
	})
	play(t, nil, func(p *script) { p.answers["initialize"] = withTasks }, func(s *stage) {
		s.post(mute, "tools/call", `"name":"slow",`)
		p := s.process(1)
		for range 2 {
			p.answer(p.next(), must+`"again"}`)
		}
		p.expect(`{"jsonrpc":"2.0","id":N,"method":"tools/call","params":{"name":"slow","_meta":{}}}`)
	})
}

// That a process ends says nothing of the list.
func TestTaskToolsOfEndedProcess(t *testing.T) {
	started := 0
	play(t, nil, func(p *script) {
		if slow(p); started == 0 {
			p.answers["tools/list"] = ""
		}
		started++
	}, func(s *stage) {
		s.post(mute, "tools/call", `"name":"slow",`)
		s.process(1).end(errPlayed)
		s.process(2).expect(slowCall)
	})
}
