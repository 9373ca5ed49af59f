package stateless

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless/sessionlesstest"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// J-02, J-03, J-23: clients may choose equal ids; each gets its own answer, under its own
// spelling, and nothing else in a message changes.
func TestCalls(t *testing.T) {
	s := newStage(t, nil, nil)
	const params = `"big":12345678901234567890,"x":"\u00e9",`
	one := s.post(enveloped("1", "prompts/list", params))
	p := s.process()
	first := p.Next(t)
	two := s.post(enveloped("1", "prompts/list", params))
	second := p.Next(t)
	text := s.post(enveloped(`"1"`, "prompts/list", params))
	third := p.Next(t)
	for _, request := range []session.Message{first, second, third} {
		s.equal("sent", sessionlesstest.Unnumbered(request), strings.Replace(enveloped("1", "prompts/list", params), `"id":1`, `"id":N`, 1))
	}
	p.Answer(third, `"result":{"n":3.10,"id":7}`)
	p.Answer(second, `"result":{"n":2}`)
	p.Answer(first, `"result":{"n":1}`)
	s.equal("first", one.want(200), `{"jsonrpc":"2.0","id":1,"result":{"n":1}}`)
	s.equal("second", two.want(200), `{"jsonrpc":"2.0","id":1,"result":{"n":2}}`)
	s.equal("third", text.want(200), `{"jsonrpc":"2.0","id":"1","result":{"n":3.10,"id":7}}`)
	header := one.answer.Header
	if header.Get("Content-Type") != "application/json" || header.Get("Mcp-Session-Id") != "" {
		t.Errorf("M-08: headers %v", header)
	}
	if s.server.Metrics().Starts.Value() != 1 {
		t.Error("more than one process")
	}
}

// M-20: the status is that of the server's answer, if that comes first.
func TestStatus(t *testing.T) {
	s := newStage(t, nil, nil)
	var p *script
	for answer, want := range map[string]int{
		`"result":{}`: 200,
		`"error":{"code":-32601,"message":"no such method"}`:        404,
		`"error":{"code":-32021,"message":"sampling","data":{}}`:    400,
		`"error":{"code":-32022,"message":"version","data":{}}`:     400,
		`"error":{"code":-32602,"message":"no such tool"}`:          200,
		`"error":{"code":-32603,"message":"it broke","data":[1.0]}`: 200,
	} {
		call := s.post(enveloped(`"a"`, "some/method", ""))
		if p == nil {
			p = s.process()
		}
		p.Answer(p.Next(t), answer)
		s.equal("answer", call.want(want), `{"jsonrpc":"2.0","id":"a",`+answer+`}`)
	}
}

// M-05, M-07, M-08, U-05: progress makes the answer a stream, without anything that
// could be resumed, and has the client's token.
func TestProgress(t *testing.T) {
	s := newStage(t, nil, nil)
	request := func(token string) string {
		return strings.Replace(enveloped("7", "tools/call", `"name":"x",`), `"_meta":{`, `"_meta":{"progressToken":`+token+`,`, 1)
	}
	one := s.post(request(`"t"`))
	p := s.process()
	first := p.Next(t)
	two := s.post(request(`"t"`))
	second := p.Next(t)
	progress := func(call session.Message, number int) {
		p.Emit(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, call.Envelope.ProgressToken.Of(call.Bytes), number))
	}
	progress(first, 1)
	progress(second, 2)
	for number, call := range []*posted{one, two} {
		header := call.response().Header
		if header.Get("Content-Type") != "text/event-stream" || header.Get("X-Accel-Buffering") != "no" {
			t.Errorf("headers %v", header)
		}
		s.equal("progress", call.event(), fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":%d}}`, number+1))
	}
	p.Answer(second, `"error":{"code":-32601,"message":"late"}`)
	p.Answer(first, `"result":{}`)
	s.equal("rest", one.want(200), "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n")
	two.want(200, `-32601`)
	progress(first, 3)
	if s.server.Metrics().LateProgress.Value() != 1 {
		t.Error("late progress is not counted")
	}
}

// M-09, S-10: a client that goes away before the answer has cancelled, under the id that the
// process saw. Nothing more is sent for it.
func TestDisconnect(t *testing.T) {
	for name, streams := range map[string]bool{"before anything": false, "in the stream": true} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, nil, nil)
			call := s.post(strings.Replace(enveloped(`"x"`, "some/method", ""), `"_meta":{`, `"_meta":{"progressToken":1,`, 1))
			p := s.process()
			request := p.Next(t)
			id := string(request.Envelope.ID.Of(request.Bytes))
			if streams {
				p.Emit(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + id + `,"progress":1}}`)
				call.response()
				call.event()
			}
			call.leave()
			cancelled := p.Next(t)
			if string(cancelled.Envelope.Method) != "notifications/cancelled" || string(cancelled.Envelope.RequestID.Of(cancelled.Bytes)) != id {
				t.Errorf("the process is sent %s, want a cancellation of %s", cancelled.Bytes, id)
			}
			p.Answer(request, `"result":{}`)
			if s.server.Metrics().LateAnswers.Value() != 1 {
				t.Error("the late answer is not counted")
			}
			if len(p.Sent) > 0 {
				t.Errorf("the process is sent more: %s", p.Next(t).Bytes)
			}
		})
	}
	t.Run("after the answer", func(t *testing.T) {
		s := newStage(t, nil, nil)
		call := s.post(enveloped("1", "some/method", ""))
		p := s.process()
		p.Answer(p.Next(t), `"result":{}`)
		call.want(200)
		call.leave()
		again := s.post(enveloped("2", "some/method", ""))
		request := p.Next(t)
		if string(request.Envelope.Method) != "some/method" {
			t.Errorf("the process is sent %s", request.Bytes)
		}
		p.Answer(request, `"result":{}`)
		again.want(200)
	})
}

// M-04, M-03: notifications are taken and go no further.
func TestNotification(t *testing.T) {
	s := newStage(t, nil, nil)
	call := s.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,` + sessionlesstest.Envelope + `}}`)
	s.equal("body", call.want(http.StatusAccepted), "")
	if len(s.started) > 0 {
		t.Error("a process was started for it")
	}
}

// M-19: what is refused here has the id of its request.
func TestRefusalsHaveIDs(t *testing.T) {
	s := newStage(t, nil, nil)
	s.post(enveloped(`"q"`, "ping", "")).want(404, `"id":"q"`, `-32601`)
	s.post(enveloped(`77`, "tools/list", ""), "Mcp-Method", "x").want(400, `"id":77`, `-32020`)
	s.post(enveloped(`"`+strings.Repeat("i", nameBytes)+`"`, "tools/list", "")).want(400, `-32600`, "8192 bytes")
}

// S-09, M-06: a process must not ask, and gets no answer.
func TestRequestsOfTheProcess(t *testing.T) {
	s := newStage(t, nil, nil)
	call := s.post(enveloped("1", "some/method", ""))
	p := s.process()
	request := p.Next(t)
	p.Emit(`{"jsonrpc":"2.0","id":` + string(request.Envelope.ID.Of(request.Bytes)) + `,"method":"elicitation/create","params":{}}`)
	p.Answer(request, `"result":{}`)
	s.equal("answer", call.want(200), `{"jsonrpc":"2.0","id":1,"result":{}}`)
	if len(p.Sent) > 0 || s.server.Metrics().RefusedRequests.Value() != 1 {
		t.Error("the request was answered, or not counted")
	}
}
