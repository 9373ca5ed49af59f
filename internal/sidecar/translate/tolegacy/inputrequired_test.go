package tolegacy

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

const (
	toolCall  = `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"x","arguments":{"n":1.0},"_meta":{"progressToken":7}}}`
	elicit    = `{"method":"elicitation/create","params":{"message":"sure?","requestedSchema":{"type":"object"}}}`
	elicitURL = `{"method":"elicitation/create","params":{"mode":"url","url":"https://a.example","message":"go"}}`
	sample    = `{"method":"sampling/createMessage","params":{"maxTokens":5}}`
	roots     = `{"method":"roots/list","params":null}`

	fullAbilities = `{"sampling":{},"elicitation":{"form":{},"url":{}},"roots":{}}`
)

func needs(inputs, state string) string {
	text := `"result":{"resultType":"input_required"`
	if inputs != "" {
		text += `,"inputRequests":` + inputs
	}
	if state != "" {
		text += `,"requestState":` + state
	}
	return text + `}`
}

// idOf is the id of a message.
func idOf(message string) string {
	_, rest, _ := strings.Cut(message, `"id":`)
	id, _, _ := strings.Cut(rest, `,`)
	return id
}

// B-05: each round is asked in parallel, on the call's behalf; the answers and the state go
// back byte for byte, with the same parameters (I-05).
func TestRounds(t *testing.T) {
	staged(t, func(s *stage) {
		s.meetAll()
		s.send(toolCall)
		first := s.next()
		params := `"name":"x","arguments":{"n":1.0},"_meta":{` + envelope(fullAbilities) + `,"progressToken":7}}}`
		s.equal("first", first.request, `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{`+params)
		const state = `"z\u00e9 \/"`
		first.answer(needs(`{"a":`+elicit+`,"b\u00e9":`+sample+`,"c":`+roots+`}`, state))
		questions := s.heardAll()
		want := []string{
			`{"jsonrpc":"2.0","id":"slipway-e1","method":"elicitation/create","params":{"message":"sure?","requestedSchema":{"type":"object"}}}`,
			`{"jsonrpc":"2.0","id":"slipway-e2","method":"sampling/createMessage","params":{"maxTokens":5}}`,
			`{"jsonrpc":"2.0","id":"slipway-e3","method":"roots/list"}`,
		}
		for i, question := range questions {
			s.equal("question", string(question.Bytes), want[i])
			s.equal("Q-02 call", string(question.Call), "3")
		}
		s.send(`{"jsonrpc":"2.0","id":"slipway-e3","result":{"roots":[{"uri":"file:///"}]}}`)
		s.send(`{"jsonrpc":"2.0","id":"slipway-e1","result":{"action":"accept","content":{"n":1.50}}}`)
		s.wantIdle()
		s.send(`{"jsonrpc":"2.0","id":"slipway\u002de2","result":{"role":"assistant"}}`)
		second := s.next()
		s.equal("second", second.request, `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"inputResponses":{"a":{"action":"accept","content":{"n":1.50}},"b\u00e9":{"role":"assistant"},"c":{"roots":[{"uri":"file:///"}]}},"requestState":`+state+`,`+params)
		second.answer(needs(`{"d":`+elicit+`}`, ""))
		s.wantIn([]string{`"id":"slipway-e4"`, `"sure?"`})
		s.send(`{"jsonrpc":"2.0","id":"slipway-e4","result":{"action":"decline"}}`)
		third := s.next()
		s.equal("I-05 without a state", third.request, `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"inputResponses":{"d":{"action":"decline"}},`+params)
		third.answer(`"result":{"resultType":"complete","content":[]}`)
		s.want(`{"jsonrpc":"2.0","id":3,"result":{"content":[]}}`)
		s.send(`{"jsonrpc":"2.0","id":"slipway-e4","result":{"action":"accept"}}`) // too late
		s.wantIdle()
	})
}

// revision 2025-11-25 has elicitations by URL, with an id.
func TestURLElicitation(t *testing.T) {
	staged(t, func(s *stage) {
		s.meetAll()
		s.send(toolCall)
		s.next().answer(needs(`{"a":`+elicitURL+`,"b":`+elicitURL+`,"c":`+strings.Replace(elicitURL, `{"mode"`, `{"elicitationId":"own","mode"`, 1)+`}`, ""))
		ids := map[string]bool{}
		for _, question := range s.heard() {
			_, rest, _ := strings.Cut(question, `"params":{"elicitationId":"`)
			id, rest, _ := strings.Cut(rest, `"`)
			ids[id] = true
			s.equal("question", rest, `,"mode":"url","url":"https://a.example","message":"go"}}`)
		}
		if len(ids) != 3 || ids[""] || !ids["own"] {
			t.Errorf("ids %v", ids)
		}
	})
}

// Q-01, I-03: a client is asked for nothing that it has not declared, or that its revision
// does not have.
func TestUndeclared(t *testing.T) {
	const all = `{"sampling":{},"elicitation":{"form":{},"url":{}},"roots":{}}`
	for name, test := range map[string]struct {
		revision, capabilities, input string
		asks                          bool
	}{
		"2024-11-05 form":            {r24, all, elicit, false},
		"2025-03-26 form":            {r03, all, elicit, false},
		"2025-06-18 form":            {r06, all, elicit, true},
		"2025-06-18 url":             {r06, all, elicitURL, false},
		"2025-11-25 form":            {r11, all, elicit, true},
		"2025-11-25 url":             {r11, all, elicitURL, true},
		"2025-11-25 empty is form":   {r11, `{"elicitation":{}}`, elicit, true},
		"2025-11-25 empty is no url": {r11, `{"elicitation":{}}`, elicitURL, false},
		"2025-11-25 url only":        {r11, `{"elicitation":{"url":{}}}`, elicit, false},
		"2024-11-05 sampling":        {r24, all, sample, true},
		"sampling, undeclared":       {r11, `{"elicitation":{}}`, sample, false},
		"2025-03-26 roots":           {r03, all, roots, true},
		"roots, undeclared":          {r11, `{"sampling":{}}`, roots, false},
		"something else":             {r11, all, `{"method":"ping"}`, false},
		"nothing":                    {r11, all, `{}`, false},
		"no object":                  {r11, all, `"x"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			staged(t, func(s *stage) {
				s.meet(test.revision, test.capabilities, discovered)
				s.send(toolCall)
				s.next().answer(needs(`{"a":`+test.input+`}`, `"z"`))
				if test.asks {
					s.wantIn([]string{`"id":"slipway-e1"`})
				} else {
					s.wantIn([]string{`"id":3,"result":{"content":[{"type":"text","text":"the server asked for input that the client cannot give`, `"isError":true`})
				}
			})
		})
	}
}

// B-05: what becomes of a call whose questions the client does not answer.
func TestUnanswered(t *testing.T) {
	const (
		tool     = "tools/call"
		prompt   = "prompts/get"
		isError  = `{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"%s"}],"isError":true}}`
		internal = `{"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"%s"}}`
		refused  = `"error":{"code":-1,"message":"user said no"}`
	)
	for name, test := range map[string]struct {
		method, input string
		answer        string // nothing if there is none
		goesOn        bool
		want          string
	}{
		"elicitation, an error":         {tool, elicit, refused, true, ""},
		"elicitation, none":             {tool, elicit, "", true, ""},
		"elicitation, no object":        {tool, elicit, `"result":7`, true, ""},
		"sampling, an error":            {tool, sample, refused, false, fmt.Sprintf(isError, "the client did not answer sampling/createMessage: user said no")},
		"sampling, none":                {tool, sample, "", false, fmt.Sprintf(isError, "the client did not answer sampling/createMessage within 1m0s")},
		"sampling, no object":           {tool, sample, `"result":7`, false, fmt.Sprintf(isError, "the client did not answer sampling/createMessage: its answer is not an object")},
		"roots, an error":               {tool, roots, refused, false, fmt.Sprintf(isError, "the client did not answer roots/list: user said no")},
		"roots, none":                   {tool, roots, "", false, fmt.Sprintf(isError, "the client did not answer roots/list within 1m0s")},
		"a prompt's roots, an error":    {prompt, roots, refused, false, fmt.Sprintf(internal, "the client did not answer roots/list: user said no")},
		"a resource's sampling, none":   {"resources/read", sample, "", false, fmt.Sprintf(internal, "the client did not answer sampling/createMessage within 1m0s")},
		"a prompt's elicitation, error": {prompt, elicit, refused, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			staged(t, func(s *stage) {
				s.meetAll()
				s.send(strings.Replace(toolCall, tool, test.method, 1))
				s.next().answer(needs(`{"a":`+test.input+`,"b":`+elicit+`}`, ""))
				s.wantIn([]string{`"slipway-e1"`}, []string{`"slipway-e2"`})
				s.send(`{"jsonrpc":"2.0","id":"slipway-e2","result":{"action":"accept"}}`)
				s.want()
				var told []string
				if test.answer != "" {
					s.send(`{"jsonrpc":"2.0","id":"slipway-e1",` + test.answer + `}`)
				} else {
					time.Sleep(testLimits().RoundTimeout)
					told = append(told, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"slipway-e1"}}`)
				}
				if test.want != "" {
					told = append(told, test.want)
				}
				s.want(told...)
				if !test.goesOn {
					s.wantIdle()
					return
				}
				again := s.next()
				if !strings.Contains(again.request, `"inputResponses":{"a":{"action":"cancel"},"b":{"action":"accept"}}`) {
					t.Errorf("asked for %s", again.request)
				}
				again.answer(`"result":{}`)
				s.want(`{"jsonrpc":"2.0","id":3,"result":{}}`)
			})
		})
	}
}

// When one answer makes the call end the client need not give the others.
func TestStopWithdrawsQuestions(t *testing.T) {
	staged(t, func(s *stage) {
		s.meetAll()
		s.send(toolCall)
		s.next().answer(needs(`{"a":`+elicit+`,"b":`+sample+`}`, ""))
		s.heard()
		s.send(`{"jsonrpc":"2.0","id":"slipway-e2","error":{"code":1,"message":"no"}}`)
		s.wantIn([]string{`notifications/cancelled`, `"slipway-e1"`}, []string{`"isError":true`})
	})
}

// B-05: rounds, questions and retries are bounded.
func TestRoundLimits(t *testing.T) {
	limits := testLimits()
	for method, ends := range map[string]string{"tools/call": `"isError":true`, "resources/read": `"code":-32603`} {
		t.Run("rounds of "+method, func(t *testing.T) {
			staged(t, func(s *stage) {
				s.meetAll()
				s.send(strings.Replace(toolCall, "tools/call", method, 1))
				for range limits.Rounds {
					s.next().answer(needs(`{"a":`+elicit+`}`, ""))
					s.send(`{"jsonrpc":"2.0","id":` + idOf(s.wantIn([]string{rpc.MethodElicit})[0]) + `,"result":{"action":"accept"}}`)
				}
				s.next().answer(needs(`{"a":`+elicit+`}`, ""))
				s.wantIn([]string{ends, "more than 3 times"})
				s.wantIdle()
			})
		})
		t.Run("retries of "+method, func(t *testing.T) {
			staged(t, func(s *stage) {
				s.meetAll()
				s.send(strings.Replace(toolCall, "tools/call", method, 1))
				delay := limits.RetryDelay
				for i := range limits.Retries {
					s.next().answer(needs("", fmt.Sprintf(`"z%d"`, i)))
					synctest.Wait()
					time.Sleep(delay - time.Millisecond)
					s.wantIdle()
					time.Sleep(time.Millisecond)
					synctest.Wait()
					delay *= 2
				}
				last := s.next()
				if !strings.Contains(last.request, `"params":{"requestState":"z1","name"`) {
					t.Errorf("asked for %s", last.request)
				}
				last.answer(needs("", `"z"`))
				s.wantIn([]string{ends, "repeated more than 2 times"})
				s.wantIdle()
			})
		})
	}
	t.Run("questions", func(t *testing.T) {
		staged(t, func(s *stage) {
			s.meetAll()
			s.send(toolCall)
			s.next().answer(needs(`{"a":`+elicit+`,"b":`+elicit+`,"c":`+elicit+`,"d":`+elicit+`}`, ""))
			s.wantIn([]string{`"isError":true`, "more than 3 inputs"})
		})
	})
	t.Run("I-02 one question twice", func(t *testing.T) {
		staged(t, func(s *stage) {
			s.meetAll()
			s.send(toolCall)
			s.next().answer(needs(`{"a":`+elicit+`,"\u0061":`+elicit+`}`, ""))
			s.wantIn([]string{`"isError":true`, "one input twice"})
		})
	})
	t.Run("neither questions nor state", func(t *testing.T) {
		staged(t, func(s *stage) {
			s.meetAll()
			s.send(toolCall)
			s.next().answer(needs("", ""))
			s.wantIn([]string{`"error":{"code":-32603`, "does not say for which"})
		})
	})
	t.Run("no question in the list", func(t *testing.T) {
		staged(t, func(s *stage) {
			s.meetAll()
			s.send(toolCall)
			s.next().answer(needs("{}", `"z"`))
			again := s.next()
			if !strings.Contains(again.request, `"inputResponses":{},"requestState":"z",`) {
				t.Errorf("asked for %s", again.request)
			}
		})
	})
}

// U-02, S-10: a client that cancels gets no answer; the server is told, and the client of
// questions that need no answer any more.
func TestCancel(t *testing.T) {
	const cancel = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`
	t.Run("at the server", func(t *testing.T) {
		staged(t, func(s *stage) {
			s.meetAll()
			s.send(toolCall)
			x := s.next()
			s.send(cancel)
			s.want()
			if !x.cancelled() {
				t.Error("the server works on")
			}
			x.answer(`"result":{}`)
			s.want()
			s.send(toolCall) // J-03 or not, nothing is left of it
			s.next().answer(`"result":{}`)
			s.want(`{"jsonrpc":"2.0","id":3,"result":{}}`)
			s.send(cancel)
			s.want()
		})
	})
	t.Run("with the answer on its way", func(t *testing.T) {
		staged(t, func(s *stage) {
			s.meetAll()
			s.send(toolCall)
			x := s.next()
			x.mu.Lock()
			x.gone = func() { s.send(cancel) }
			x.mu.Unlock()
			x.answer(`"result":{}`)
			s.want()
		})
	})
	t.Run("in a round", func(t *testing.T) {
		staged(t, func(s *stage) {
			s.meetAll()
			s.send(toolCall)
			s.next().answer(needs(`{"a":`+elicit+`,"b":`+sample+`,"c":`+roots+`}`, ""))
			s.heard()
			s.send(`{"jsonrpc":"2.0","id":"slipway-e2","result":{}}`)
			s.send(cancel)
			s.want(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"slipway-e1"}}`,
				`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"slipway-e3"}}`)
			s.send(`{"jsonrpc":"2.0","id":"slipway-e1","result":{}}`)
			s.wantIdle()
		})
	})
	t.Run("before a retry", func(t *testing.T) {
		staged(t, func(s *stage) {
			s.meetAll()
			s.send(toolCall)
			s.next().answer(needs("", `"z"`))
			s.want()
			s.send(cancel)
			time.Sleep(time.Minute)
			s.want()
			s.wantIdle()
		})
	})
}

// The end of the modern server's process is no end of the session.
func TestServerGone(t *testing.T) {
	staged(t, func(s *stage) {
		s.meetAll()
		s.send(toolCall)
		s.next().answer(`"error":{"code":-32603,"message":"the server's process ended"}`)
		s.wantIn([]string{`"id":3,"error":{"code":-32603,"message":"the server's process ended"}`})

		s.send(toolCall)
		s.next().answer(needs(`{"a":`+elicit+`}`, ""))
		s.heard()
		s.modern.refuse(errors.New("it does not start"))
		s.send(`{"jsonrpc":"2.0","id":"slipway-e1","result":{"action":"accept"}}`)
		s.want(`{"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"it does not start"}}`)
		s.modern.refuse(nil)

		s.send(toolCall)
		s.next().answer(`"result":{}`)
		s.want(`{"jsonrpc":"2.0","id":3,"result":{}}`)
		if ended := s.endedBy(); len(ended) > 0 {
			t.Errorf("ended %v", ended)
		}
	})
}

// U-05, U-07: what comes before the answer belongs to the call, in order; progress does
// not go back when a round makes the server start over.
func TestNotifications(t *testing.T) {
	progress := func(n string) string {
		return `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":` + n + `}}`
	}
	const log = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1.50}}`
	staged(t, func(s *stage) {
		s.meetAll()
		s.send(toolCall)
		x := s.next()
		x.say(progress("1"))
		x.say(log)
		x.say(progress("2.50"))
		x.say(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`) // M-06
		x.say(`junk`)
		x.answer(needs(`{"a":`+elicit+`}`, ""))
		got := s.heardAll()
		var texts []string
		for _, message := range got {
			texts = append(texts, string(message.Bytes))
			s.equal("call", string(message.Call), "3")
		}
		if diff := cmp.Diff([]string{progress("1"), log, progress("2.50")}, texts[:3]); diff != "" || len(texts) != 4 {
			t.Errorf("%d messages (-want +got):\n%s", len(texts), diff)
		}
		s.send(`{"jsonrpc":"2.0","id":"slipway-e1","result":{"action":"accept"}}`)
		x = s.next()
		x.say(progress("1"))
		x.say(progress("2.5"))
		x.say(progress("3"))
		x.say(log)
		x.answer(`"result":{}`)
		s.want(progress("3"), log, `{"jsonrpc":"2.0","id":3,"result":{}}`)
	})
}
