package tomodern

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

const (
	form    = `"method":"elicitation/create","params":{"message":"who?","requestedSchema":{"type":"object","n":1.0}}`
	sample  = `"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}`
	roots   = `"method":"roots/list"`
	accept  = `{"action":"accept","content":{"n":1.0}}`
	invalid = "requestState invalid or expired; call again"
)

// request has the process make a request.
func (p *script) request(id, rest string) {
	p.emit(`{"jsonrpc":"2.0","id":` + id + `,` + rest + `}`)
	synctest.Wait()
}

// asked is what a client is asked for in place of an answer.
type asked struct {
	requests map[string]string
	state    string
}

// asked waits for the client to be asked.
func (p *posted) asked() asked {
	p.stage.Helper()
	time.Sleep(gatherTime)
	text := p.wantPart(`"resultType":"input_required"`)
	var read struct {
		Result struct {
			InputRequests map[string]json.RawMessage `json:"inputRequests"`
			RequestState  string                     `json:"requestState"`
		} `json:"result"`
	}
	if err := json.Unmarshal([]byte(text), &read); err != nil {
		p.stage.Fatal(err)
	}
	a := asked{map[string]string{}, read.Result.RequestState}
	for key, value := range read.Result.InputRequests {
		a.requests[key] = string(value)
	}
	return a
}

// with are the params of a retry.
func (a asked) with(responses string) string {
	return `"inputResponses":{` + responses + `},"requestState":"` + a.state + `",`
}

const toolX = `"name":"x","arguments":{"a":1,"b":[2.0]},`

// parked is a call that has asked, with the process that has.
func (s *stage) parked(c client, requests ...string) (*script, session.Message, asked) {
	s.Helper()
	request := s.post(c, "tools/call", toolX)
	p := s.process(1)
	atProcess := p.next()
	for i, rest := range requests {
		p.request(strconv.Itoa(i+1), rest)
	}
	return p, atProcess, request.asked()
}

// B-04, I-02, I-05: the flow from beginning to end, with two rounds. The call is made once.
func TestParkAndRetry(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		first := s.post(client{capabilities: `{"elicitation":{}}`, meta: `"progressToken":TOKEN,`}, "tools/call", toolX)
		p := s.process(1)
		atProcess := p.next()
		token := string(atProcess.Envelope.ProgressToken.Of(atProcess.Bytes))
		progress := func(n int) {
			p.emit(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, token, n))
		}
		p.request(`"a\"1"`, form)
		first.wantNothing() // others may follow
		round1 := first.asked()
		if diff := cmp.Diff(map[string]string{"r1": `{` + form + `}`}, round1.requests); diff != "" {
			t.Error(diff)
		}
		progress(1) // while no client waits
		first.abandon()
		p.expectNothing() // it has its answer

		second := s.post(client{capabilities: `{"elicitation":{}}`, meta: `"progressToken":TOKEN,`}, "tools/call", `"arguments":{"b":[2.0], "a":1},"name":"x",`+round1.with(`"r1":`+accept+`,"other":7`))
		p.expect(`{"jsonrpc":"2.0","id":"a\"1","result":` + accept + `}`)
		second.wantNothing()
		progress(2)
		second.want(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":ID,"progress":2}}`)
		s.got[second.id] = nil
		p.request("2", form)
		round2 := second.asked()
		if round2.state == round1.state || round2.requests["r2"] == "" || len(round2.requests) != 1 {
			t.Errorf("got %v", round2)
		}

		s.post(elicits, "tools/call", toolX+round1.with(`"r2":{"action":"decline"}`)).want(failure(-32602, invalid))
		p.expectNothing()

		third := s.post(elicits, "tools/call", toolX+round2.with(`"r2":{"action":"decline"}`))
		p.expect(`{"jsonrpc":"2.0","id":2,"result":{"action":"decline"}}`)
		p.answer(atProcess, `"result":{"content":[]}`)
		third.want(result(`"resultType":"complete",` + info + `,"content":[]`))
		p.expectNothing()
		s.processes(1)
		equal(t, "late progress", s.server.Metrics().LateProgress.Value(), 1)
		equal(t, "parks", s.server.Metrics().Parks.Value(), 2)
		equal(t, "retries", s.server.Metrics().Retries.Value(), 2)
		// The process is free again.
		s.post(elicits, "tools/call", toolX)
		p.next()
	})
}

// Siblings are asked for together, of every kind (go-sdk sends them at once).
func TestSiblings(t *testing.T) {
	play(t, func(o *Options) { o.OfferRoots = true }, nil, func(s *stage) {
		url := `"method":"elicitation/create","params":{"mode":"url","elicitationId":"e1","url":"https://x","message":"m","_meta":{"progressToken":3,"x":1}}`
		p, atProcess, round := s.parked(able, form, sample, roots, url)
		want := map[string]string{
			"r1": `{` + form + `}`, "r2": `{` + sample + `}`, "r3": `{"method":"roots/list","params":{}}`,
			"r4": `{"method":"elicitation/create","params":{"mode":"url","url":"https://x","message":"m","_meta":{"x":1}}}`,
		}
		if diff := cmp.Diff(want, round.requests); diff != "" {
			t.Error(diff)
		}
		// I-06: those without an answer are asked for again, by the same keys.
		second := s.post(able, "tools/call", toolX+round.with(`"r3":{"roots":[]},"r1":`+accept))
		p.expect(`{"jsonrpc":"2.0","id":1,"result":` + accept + `}`)
		p.expect(`{"jsonrpc":"2.0","id":3,"result":{"roots":[]}}`)
		again := second.asked()
		delete(want, "r1")
		delete(want, "r3")
		if diff := cmp.Diff(want, again.requests); diff != "" || again.state == round.state {
			t.Error(diff)
		}
		third := s.post(able, "tools/call", toolX+again.with(`"r4":{"action":"accept"},"r2":{"role":"assistant","content":{},"model":"m"},"r1":`+accept))
		p.expect(`{"jsonrpc":"2.0","id":2,"result":{"role":"assistant","content":{},"model":"m"}}`)
		p.expect(`{"jsonrpc":"2.0","id":4,"result":{"action":"accept"}}`)
		p.answer(atProcess, `"result":{}`)
		third.wantPart("complete")
	})
}

// I-04: whatever is wrong with a state, the answer is the same, the process hears
// nothing, and the right one is still good.
func TestInvalidStates(t *testing.T) {
	good := `"r1":` + accept
	for name, test := range map[string]struct {
		client client
		method string
		params func(a asked) string
	}{
		"tampered": {elicits, "tools/call", func(a asked) string {
			i := len(a.state) / 2
			other := byte('A')
			if a.state[i] == 'A' {
				other = 'B'
			}
			return toolX + asked{state: a.state[:i] + string(other) + a.state[i+1:]}.with(good)
		}},
		"cut":                {elicits, "tools/call", func(a asked) string { return toolX + asked{state: a.state[:20]}.with(good) }},
		"longer":             {elicits, "tools/call", func(a asked) string { return toolX + asked{state: a.state + "AAAA"}.with(good) }},
		"very long":          {elicits, "tools/call", func(asked) string { return toolX + asked{state: strings.Repeat("A", 1<<16)}.with(good) }},
		"other letters":      {elicits, "tools/call", func(asked) string { return toolX + asked{state: "§"}.with(good) }},
		"foreign principal":  {client{principal: "other", capabilities: `{"elicitation":{}}`}, "tools/call", func(a asked) string { return toolX + a.with(good) }},
		"other capabilities": {able, "tools/call", func(a asked) string { return toolX + a.with(good) }},
		"other method":       {elicits, "prompts/get", func(a asked) string { return toolX + a.with(good) }},
		"other name":         {elicits, "tools/call", func(a asked) string { return `"name":"y","arguments":{"a":1,"b":[2.0]},` + a.with(good) }},
		"other arguments":    {elicits, "tools/call", func(a asked) string { return `"name":"x","arguments":{"a":1,"b":[2.00]},` + a.with(good) }},
		"no arguments":       {elicits, "tools/call", func(a asked) string { return `"name":"x",` + a.with(good) }},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, nil, nil, func(s *stage) {
				p, _, round := s.parked(elicits, form)
				s.post(test.client, test.method, test.params(round)).want(failure(-32602, invalid))
				p.expectNothing()
				s.processes(1)
				equal(t, "invalid states", s.server.Metrics().InvalidStates.Value(), 1)
				s.post(elicits, "tools/call", toolX+round.with(good))
				p.expect(`{"jsonrpc":"2.0","id":1,"result":` + accept + `}`)
			})
		})
	}
}

// I-06: answers of the wrong form are refused, and may be corrected.
func TestMalformedAnswers(t *testing.T) {
	for name, responses := range map[string]string{
		"no object":      `"inputResponses":[],`,
		"text":           `"inputResponses":{"r1":"yes"},`,
		"no action":      `"inputResponses":{"r1":{"content":{}}},`,
		"unknown action": `"inputResponses":{"r1":{"action":"perhaps"}},`,
		"other kind":     `"inputResponses":{"r1":{"roots":[]}},`,
	} {
		t.Run(name, func(t *testing.T) {
			play(t, nil, nil, func(s *stage) {
				p, _, round := s.parked(elicits, form)
				s.post(elicits, "tools/call", toolX+responses+`"requestState":"`+round.state+`",`).want(failure(-32602, errResponses.Error()))
				p.expectNothing()
				s.post(elicits, "tools/call", toolX+round.with(`"r1":`+accept))
				p.expect(`{"jsonrpc":"2.0","id":1,"result":` + accept + `}`)
			})
		})
	}
}

// I-04: a state is good once, also if it is used twice at the same time.
func TestReplay(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		p, atProcess, round := s.parked(elicits, form)
		var retries []*posted
		for range 8 {
			retries = append(retries, s.post(elicits, "tools/call", toolX+round.with(`"r1":`+accept)))
		}
		p.expect(`{"jsonrpc":"2.0","id":1,"result":` + accept + `}`)
		p.expectNothing()
		p.answer(atProcess, `"result":{}`)
		won := 0
		for _, retry := range append(retries, s.post(elicits, "tools/call", toolX+round.with(`"r1":`+accept))) {
			switch got := retry.got(); {
			case len(got) == 1 && strings.Contains(got[0], `"complete"`):
				won++
			default:
				retry.want(failure(-32602, invalid))
			}
		}
		equal(t, "won", uint64(won), 1)
		equal(t, "invalid states", s.server.Metrics().InvalidStates.Value(), 8)
		p.expectNothing()
		s.processes(1)
	})
}

// I-07: a client does not come back. The process gets a cancellation for its request, and
// is free when it is done with the call.
func TestExpiry(t *testing.T) {
	play(t, func(o *Options) { o.OfferRoots = true }, nil, func(s *stage) {
		p, atProcess, round := s.parked(able, form, sample, roots)
		time.Sleep(10*time.Minute - time.Second)
		p.expectNothing()
		time.Sleep(2 * time.Second)
		p.expect(`{"jsonrpc":"2.0","id":1,"result":{"action":"cancel"}}`)
		p.expect(`{"jsonrpc":"2.0","id":2,"error":{"code":-1,"message":"the client did not answer"}}`)
		p.expect(`{"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"the client did not answer"}}`)
		p.expect(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":N,"reason":"the client has gone"}}`)
		s.post(able, "tools/call", toolX+round.with(`"r1":`+accept)).want(failure(-32602, invalid))
		equal(t, "expired", s.server.Metrics().ExpiredParks.Value(), 1)
		p.request("4", form) // it still asks
		p.expect(`{"jsonrpc":"2.0","id":4,"result":{"action":"cancel"}}`)
		p.answer(atProcess, `"error":{"code":0,"message":"m"}`)
		s.post(able, "tools/call", toolX)
		p.next()
		s.processes(1)
	})
}

// M-09: a client that goes away from its retry cancels the call.
func TestAbandonRetry(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		p, atProcess, round := s.parked(elicits, form)
		retry := s.post(elicits, "tools/call", toolX+round.with(`"r1":`+accept))
		p.next()
		retry.abandon()
		got := p.expect(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":N,"reason":"the client has gone"}}`)
		if string(got.Envelope.RequestID.Of(got.Bytes)) != string(atProcess.Envelope.ID.Of(atProcess.Bytes)) {
			t.Error("another call is cancelled")
		}
		retry.wantNothing()
	})
}

// A process that ends takes its parked call with it.
func TestProcessEndsWhileParked(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		p, _, round := s.parked(elicits, form)
		p.end(errPlayed)
		synctest.Wait()
		s.post(elicits, "tools/call", toolX+round.with(`"r1":`+accept)).want(failure(-32602, invalid))
		s.processes(1)
	})
}

// A process that does not wait for what it asked for: the answer waits instead.
func TestAnswerWhileParked(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		p, atProcess, round := s.parked(elicits, form)
		p.emit(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		p.answer(atProcess, `"result":{"content":["late"]}`)
		s.post(elicits, "tools/call", `"name":"other",`) // since the process is free
		p.next()
		s.post(elicits, "tools/call", toolX+round.with(`"r1":`+accept)).want(result(`"resultType":"complete",` + info + `,"content":["late"]`))
		p.expectNothing()
		s.post(elicits, "tools/call", toolX+round.with(`"r1":`+accept)).want(failure(-32602, invalid))
		equal(t, "bytes kept", uint64(s.server.kept.Held()), 0)
	})
}

// A process may spell the id of what it asked differently when it cancels that (J-02). The
// client is not asked then.
func TestCancelledQuestion(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		request := s.post(elicits, "tools/call", toolX)
		p := s.process(1)
		atProcess := p.next()
		p.request(`"\u0071"`, form)
		p.emit(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q"}}`)
		time.Sleep(2 * gatherTime)
		request.wantNothing()
		p.answer(atProcess, `"result":{"content":[]}`)
		request.want(result(`"resultType":"complete",` + info + `,"content":[]`))
	})
}

// Input requests without a call, or without the capability (I-03, Q-01).
func TestUnaskable(t *testing.T) {
	url := `"method":"elicitation/create","params":{"mode":"url","url":"https://x"}`
	tools := `"method":"sampling/createMessage","params":{"tools":[]}`
	for name, test := range map[string]struct {
		client  client
		inCall  bool
		request string
		code    int
	}{
		"no elicitation":             {mute, true, form, -32601},
		"no sampling":                {elicits, true, sample, -32601},
		"roots are not offered":      {able, true, roots, -32601},
		"no such mode":               {elicits, true, url, -32602},
		"no tools":                   {client{capabilities: `{"sampling":{}}`}, true, tools, -32602},
		"no such method":             {able, true, `"method":"x/y"`, -32601},
		"elicitation outside a call": {elicits, false, form, -32603},
		"sampling outside a call":    {able, false, sample, -32603},
		"roots outside a call":       {able, false, roots, -32601},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, nil, nil, func(s *stage) {
				method := "tools/list"
				if test.inCall {
					method = "tools/call"
				}
				request := s.post(test.client, method, "")
				p := s.process(1)
				p.next()
				p.request(`"q"`, test.request)
				if got := string(p.next().Bytes); !strings.HasPrefix(got, fmt.Sprintf(`{"jsonrpc":"2.0","id":"q","error":{"code":%d,`, test.code)) {
					t.Errorf("got %s, want %d", got, test.code)
				}
				time.Sleep(time.Second)
				request.wantNothing()
				equal(t, "refused", s.server.Metrics().RefusedRequests.Value(), 1)
			})
		})
	}
}

// U-01: a ping is answered here, at any time.
func TestPing(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		s.post(mute, "tools/list", "")
		s.process(1).next()
		s.process(1).request("7", `"method":"ping"`)
		s.process(1).expect(`{"jsonrpc":"2.0","id":7,"result":{}}`)
	})
}

// B-04: -32042 has the client visit URLs and call again, once.
func TestURLRequired(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		first := s.post(able, "tools/call", toolX)
		p := s.process(1)
		p.answer(p.next(), `"error":{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"url","elicitationId":"e","url":"https://x","message":"m"}]}}`)
		round := first.asked()
		if diff := cmp.Diff(map[string]string{"u1": `{"method":"elicitation/create","params":{"mode":"url","url":"https://x","message":"m"}}`}, round.requests); diff != "" {
			t.Error(diff)
		}
		second := s.post(able, "tools/call", toolX+round.with(`"u1":{"action":"accept"}`))
		p.answer(p.expect(`{"jsonrpc":"2.0","id":N,"method":"tools/call","params":{"name":"x","arguments":{"a":1,"b":[2.0]},"_meta":{}}}`), `"result":{}`)
		second.wantPart("complete")
		s.post(able, "tools/call", toolX+round.with(`"u1":{"action":"accept"}`)).want(failure(-32602, invalid))
		p.expectNothing()
	})
}

// One that finds no process may be repeated.
func TestURLRequiredBusy(t *testing.T) {
	play(t, func(o *Options) { o.Limits.PerKey = 1 }, nil, func(s *stage) {
		first := s.post(able, "tools/call", toolX)
		p := s.process(1)
		p.answer(p.next(), `"error":{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"url","url":"https://x","message":"m"}]}}`)
		round := first.asked()
		other := s.post(able, "tools/call", "")
		request := p.next()
		s.post(able, "tools/call", toolX+round.with("")).wantBusy()
		p.answer(request, `"result":{}`)
		other.wantPart("complete")
		s.post(able, "tools/call", toolX+round.with(""))
		p.next()
		s.post(able, "tools/call", toolX+round.with("")).want(failure(-32602, invalid))
	})
}

// What is asked while the client is away is asked for when it comes back.
func TestAskWhileParked(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		p, _, round := s.parked(elicits, form)
		p.request("2", form)
		time.Sleep(time.Minute)
		retry := s.post(elicits, "tools/call", toolX+round.with(`"r1":`+accept))
		p.expect(`{"jsonrpc":"2.0","id":1,"result":` + accept + `}`)
		again := retry.asked()
		if diff := cmp.Diff(map[string]string{"r2": `{` + form + `}`}, again.requests); diff != "" {
			t.Error(diff)
		}
	})
}

// I-01: what a process asks before it was sent a call is not asked in that call, which is
// made as if nothing had been.
func TestAskBeforeTheCall(t *testing.T) {
	c := elicits
	c.meta = `"io.modelcontextprotocol/logLevel":"debug",`
	for name, test := range map[string]struct {
		then func(s *stage, p *script, request *posted, level session.Message)
	}{
		"the call is made": {func(s *stage, p *script, request *posted, level session.Message) {
			p.answer(level, `"result":{}`)
			p.answer(p.next(), `"result":{"content":[]}`)
			request.wantPart("complete")
			s.server.mu.Lock()
			defer s.server.mu.Unlock()
			if n := len(s.server.calls); n != 0 {
				t.Errorf("%d calls are left", n)
			}
		}},
		"its client leaves": {func(s *stage, p *script, request *posted, level session.Message) {
			request.leave()
			<-request.done
			p.answer(level, `"result":{}`)
			time.Sleep(s.server.options.Limits.ParkTTL - time.Second)
			other := s.post(elicits, "tools/call", toolX)
			call := p.next()
			time.Sleep(time.Minute)
			p.answer(call, `"result":{}`)
			other.wantPart("complete")
			request.wantNothing()
		}},
		"the process ends": {func(s *stage, p *script, request *posted, _ session.Message) {
			p.end(errPlayed)
			next := s.process(2)
			next.answer(next.next(), `"result":{}`)
			next.answer(next.next(), `"result":{"content":[]}`)
			request.wantPart("complete")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(o *Options) { o.Limits.IdleTimeout = time.Hour }, nil, func(s *stage) {
				request := s.post(c, "tools/call", toolX)
				p := s.process(1)
				level := p.next()
				p.request("1", form)
				p.expect(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"there is no call to ask the client in"}}`)
				time.Sleep(gatherTime)
				request.wantNothing()
				test.then(s, p, request, level)
			})
		})
	}
}

// A call can have so many questions open, and all of them can be answered.
func TestManyQuestions(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		request := s.post(elicits, "tools/call", toolX)
		p := s.process(1)
		p.next()
		for i := range mostInputs + 1 {
			p.request(strconv.Itoa(i), form)
		}
		p.expect(`{"jsonrpc":"2.0","id":64,"error":{"code":-32603,"message":"too many requests are open in this call"}}`)
		round := request.asked()
		var responses []string
		for key := range round.requests {
			responses = append(responses, `"`+key+`":{"action":"accept","content":{"key":"`+key+`"}}`)
		}
		retry := s.post(elicits, "tools/call", toolX+round.with(strings.Join(responses, ",")))
		for i := range mostInputs {
			p.expect(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"action":"accept","content":{"key":"r%d"}}}`, i, i+1))
		}
		time.Sleep(time.Second)
		retry.wantNothing()
	})
}

// A process may ask before the adapter knows that the process has the call. If that process ends, the
// client that comes back has to call again. No other process gets the call, because the client
// has been asked for input.
func TestEndOfProcessThatAskedAtOnce(t *testing.T) {
	for name, sent := range map[string]error{"the process has the call": errTaken, "it has a part of the call": errPlayed} {
		t.Run(name, func(t *testing.T) {
			play(t, nil, func(p *script) {
				p.refuse = func(m session.Message) error {
					if string(m.Envelope.Method) != "tools/call" {
						return nil
					}
					p.request("1", form)
					time.Sleep(2 * gatherTime)
					p.end(errPlayed)
					time.Sleep(gatherTime)
					return sent
				}
			}, func(s *stage) {
				request := s.post(elicits, "tools/call", toolX)
				time.Sleep(time.Second)
				round := request.asked()
				s.post(elicits, "tools/call", toolX+round.with(`"r1":`+accept)).want(failure(-32602, invalid))
				if got := s.server.metrics.Starts.Value(); got != 1 {
					t.Errorf("%d processes got the call", got)
				}
			})
		})
	}
}

// So can they have so many bytes.
func TestQuestionsThatAreLong(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		request := s.post(elicits, "tools/call", toolX)
		p := s.process(1)
		p.next()
		long := `"method":"elicitation/create","params":{"message":"` + strings.Repeat("x", inputBytes/2) + `"}`
		p.request("1", long)
		p.request("2", long)
		p.expect(`{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"the requests that are open in this call are too long"}}`)
		p.request("3", form)
		round := request.asked()
		s.post(elicits, "tools/call", toolX+round.with(`"r1":`+accept))
		p.expect(`{"jsonrpc":"2.0","id":1,"result":` + accept + `}`)
		p.request("4", long)
		p.expectNothing()
	})
}

// A call that is parked keeps what its state is bound to, not all that its client sent.
func TestParkedArguments(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		s.parked(elicits, form)
		s.server.mu.Lock()
		defer s.server.mu.Unlock()
		for _, p := range s.server.parked {
			if len(p.call.arguments) > 0 || len(p.call.bound) == 0 {
				t.Errorf("%d bytes of arguments are kept besides %d that they are bound to", len(p.call.arguments), len(p.call.bound))
			}
		}
	})
}

// Answers that wait for clients have a bound. Past it the client has to call again.
func TestHeldBytes(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		p, atProcess, round := s.parked(elicits, form)
		s.server.mu.Lock()
		s.server.kept = budget.New(1<<20, 1).Account(nil)
		s.server.kept.Change(900 << 10)
		s.server.mu.Unlock()
		p.answer(atProcess, `"result":{"content":[]}`)
		s.post(elicits, "tools/call", toolX+round.with(`"r1":`+accept)).want(failure(-32602, invalid))
		s.server.mu.Lock()
		s.server.kept.Change(-900 << 10)
		s.server.mu.Unlock()
	})
}
