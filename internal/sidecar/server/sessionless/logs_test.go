package sessionless

import (
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

const logMessage = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1.50}}`

// wantingLogs is a request whose client wants log messages.
func wantingLogs(id string) string {
	return strings.Replace(enveloped(id, "some/method", ""), `"_meta":{`, `"_meta":{"io.modelcontextprotocol/logLevel":"info",`, 1)
}

// U-07: a process serves several clients, and does not say which call a log message belongs
// to. A call gets one only if the process has worked on nothing else since that call began.
func TestLogMessages(t *testing.T) {
	silent := enveloped("1", "some/method", "")
	const answer = `"result":{}`
	const listenToResource = `"notifications":{"resourceSubscriptions":["a://x"]},`
	for name, test := range map[string]struct {
		first  string                                                      // what the process is asked at first
		before func(s *stage, p *script, call *posted, at session.Message) // the second call begins
		after  func(s *stage, p *script, call *posted, at session.Message)
		got    bool // the second call gets the message
	}{
		"alone": {
			first:  wantingLogs("1"),
			before: func(_ *stage, p *script, _ *posted, at session.Message) { p.Answer(at, answer) },
			got:    true,
		},
		"beside one that wants none": {first: silent},
		"beside one that wants some": {first: wantingLogs("1")},
		"beside one that is answered since": {
			first: silent,
			after: func(_ *stage, p *script, _ *posted, at session.Message) { p.Answer(at, answer) },
		},
		"beside one that is cancelled since": {
			first: wantingLogs("1"),
			after: func(s *stage, p *script, call *posted, at session.Message) {
				call.leave()
				s.wantCancelled(p, at)
			},
		},
		"after one that was cancelled": {
			first: silent,
			before: func(s *stage, p *script, call *posted, at session.Message) {
				call.leave()
				s.wantCancelled(p, at)
			},
		},
		"after one that was cancelled and answered": {
			first: silent,
			before: func(s *stage, p *script, call *posted, at session.Message) {
				call.leave()
				s.wantCancelled(p, at)
				p.Answer(at, answer)
			},
			got: true,
		},
		"beside a task": {
			first: strings.Replace(silent, `clientCapabilities":{}`, `clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}`, 1),
			before: func(_ *stage, p *script, _ *posted, at session.Message) {
				p.Answer(at, `"result":{"resultType":"task","taskId":"1"}`)
			},
		},
		"beside a subscription": {
			first: enveloped("1", methodListen, listen),
			before: func(_ *stage, p *script, _ *posted, at session.Message) {
				p.Emit(changed(acknowledged, at, `"notifications":{`+allKinds+`},`))
			},
			got: true,
		},
		// The adapter opens it when a session begins, and clients make their first call right then.
		"beside a subscription to lists that is being opened": {first: enveloped("1", methodListen, listen), got: true},
		"before a subscription to lists that is being opened": {
			first:  silent,
			before: func(_ *stage, p *script, _ *posted, at session.Message) { p.Answer(at, answer) },
			after: func(s *stage, p *script, _ *posted, _ session.Message) {
				s.post(enveloped("3", methodListen, listen))
				s.wantUpstream(p, allKinds)
			},
			got: true,
		},
		"beside a subscription to a resource that is being opened": {first: enveloped("1", methodListen, listenToResource)},
		"beside a subscription to a resource that is opened since": {
			first: enveloped("1", methodListen, listenToResource),
			after: func(_ *stage, p *script, _ *posted, at session.Message) {
				p.Emit(changed(acknowledged, at, `"notifications":{`+allKinds+`,"resourceSubscriptions":["a://x"]},`))
			},
		},
		"before a subscription to a resource that is being opened": {
			first:  silent,
			before: func(_ *stage, p *script, _ *posted, at session.Message) { p.Answer(at, answer) },
			after: func(s *stage, p *script, _ *posted, _ session.Message) {
				s.post(enveloped("3", methodListen, listenToResource))
				s.wantUpstream(p, allKinds+`,"resourceSubscriptions":["a://x"]`)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, nil, nil)
			first := s.post(test.first)
			p := s.process()
			at := p.Next(t)
			if test.before != nil {
				test.before(s, p, first, at)
			}
			second := s.post(wantingLogs("2"))
			request := p.Next(t)
			if test.after != nil {
				test.after(s, p, first, at)
			}
			p.Emit(logMessage)
			p.Answer(request, answer)
			if got := strings.Contains(second.want(), "notifications/message"); got != test.got {
				t.Errorf("the second call got the message: %t, want %t", got, test.got)
			}
			dropped := uint64(1)
			if test.got {
				dropped = 0
			}
			if got := s.server.Metrics().LogMessages.Value(); got != dropped {
				t.Errorf("%d log messages were dropped, want %d", got, dropped)
			}
		})
	}
}
