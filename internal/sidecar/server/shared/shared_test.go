package shared

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// echo answers requests with their params.
func echo(f *fake, m session.Message) {
	if m.Envelope.Kind != rpc.Request {
		return
	}
	params := "{}"
	if m.Envelope.Params.Present() {
		params = string(m.Envelope.Params.Of(m.Bytes))
	}
	f.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.Envelope.ID.Of(m.Bytes), params)
}

func request(id, method string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `"}`
}

// R24: the process is initialized once, whatever clients do; L-02: and they get the
// revision that it speaks.
func TestR24Initialize(t *testing.T) {
	for _, speaks := range front.Revisions() {
		for _, asked := range []string{"2024-11-05", "2025-11-25", "2026-07-28", "garbage"} {
			t.Run("L-02 "+asked+" at "+speaks, func(t *testing.T) {
				options := testOptions()
				f := &fake{t: t, result: strings.Replace(plainResult, "2025-11-25", speaks, 1)}
				options.Acquire = func(context.Context) (mux.Server, error) { return f, nil }
				p := New(options)
				defer p.Close()
				for range 2 {
					c := client{opened(t, p), t}
					want := `{"jsonrpc":"2.0","id":"i\u0064","result":` + f.result + `}`
					if diff := cmp.Diff(want, c.ask(fmt.Sprintf(initializeRequest, `"i\u0064"`, asked))); diff != "" {
						t.Errorf("initialize (-want +got):\n%s", diff)
					}
					expect(t, "second initialize", c.ask(fmt.Sprintf(initializeRequest, "7", asked)), `"id":7,"error":{"code":-32600`)
				}
				f.mu.Lock()
				defer f.mu.Unlock()
				if len(f.sent) > 2 || strings.Contains(strings.Join(f.sent, ""), "sampling") {
					t.Errorf("the process was sent %q, want one handshake without capabilities", f.sent)
				}
			})
		}
	}
}

func TestHandshakesThatFail(t *testing.T) {
	for name, test := range map[string]struct{ answer, want string }{
		"L-03 unknown revision": {`"result":{"protocolVersion":"2026-07-28","capabilities":{}}`, "2026-07-28"},
		"L-08 no revision":      {`"result":{"capabilities":{}}`, "not served"},
		"L-08 no capabilities":  {`"result":{"protocolVersion":"2025-06-18"}`, "capabilities"},
		"result of other type":  {`"result":[]`, "not an object"},
		"refused":               {`"error":{"code":-1,"message":"license expired"}`, "license expired"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := readInitialized(message(t, `{"jsonrpc":"2.0","id":1,`+test.answer+`}`))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s in it", err, test.want)
			}
		})
	}
}

// U-11: tasks are not offered, and nothing else of the answer changes.
func TestTasksAreTakenOut(t *testing.T) {
	for capabilities, want := range map[string]string{
		`{}`:                                  `{}`,
		`{"tasks":{"list":{}}}`:               `{}`,
		`{ "tasks":{} , "tools":{} }`:         `{ "tools":{} }`,
		`{"tools":{ "a":1e3 },"tasks":{}}`:    `{"tools":{ "a":1e3 }}`,
		`{"a":1,"t\u0061sks":{},"tools":{}}`:  `{"a":1,"tools":{}}`,
		`{"a":1,"tasks":1,"tasks":2}`:         `{"a":1}`,
		`{"tasks":1,"a":1,"tasks":2}`:         `{"a":1}`,
		`{"tasks":1,"tasks":2}`:               `{}`,
		`{"experimental":{"tasks":{"x":[]}}}`: `{"experimental":{"tasks":{"x":[]}}}`,
	} {
		for _, whole := range []string{
			`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":%s}}`,
			`{"result":{"capabilities":%s, "protocolVersion":"2025-06-18","x":[1]}, "id":1 ,"jsonrpc":"2.0"}`,
		} {
			agreed, err := readInitialized(message(t, fmt.Sprintf(whole, capabilities)))
			if err != nil {
				t.Errorf("%s: %v", capabilities, err)
				continue
			}
			if diff := cmp.Diff(fmt.Sprintf(whole, want), string(agreed.answer)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", capabilities, diff)
			}
			if id := agreed.id.Of(agreed.answer); string(id) != "1" {
				t.Errorf("%s: the id is said to be %q", capabilities, id)
			}
		}
	}
	p, _ := newFake(t, testOptions(), echo)
	for _, method := range []string{"tasks/list", "tasks/update"} {
		expect(t, method, connect(t, p).ask(request("1", method)), `"code":-32601`)
	}
}

// J-02, J-23: ids and tokens come back as they were spelled, all else as it was.
func TestSpelling(t *testing.T) {
	p, fakes := newFake(t, testOptions(), func(f *fake, m session.Message) {
		if token := m.Envelope.ProgressToken; token.Present() {
			f.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":%s , "message":"\u00e9"}}`, token.Of(m.Bytes))
		}
		echo(f, m)
	})
	c := connect(t, p)
	f := <-fakes
	ids := []string{`1`, `"1"`, `0`, `-7`, `-0`, `9007199254740993`, `123456789012345678901234567890`, `""`, `"\u0031"`, `"\/\"\\"`, "\"\u00a0\u200d\u3000\"", `"ключ"`}
	for _, id := range ids {
		for _, token := range append([]string{`1.50`, `{"odd":[1]}`, `true`}, ids...) {
			got := all(t, c.call(`{"jsonrpc":"2.0", "method":"m","params":{"a":1.0,"_meta":{"x":1e2,"progressToken": `+token+` }} , "id" : `+id+` }`))
			if len(got) != 2 {
				t.Fatalf("id %s, token %s: got %q", id, token, got)
			}
			if want := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":` + token + ` , "message":"\u00e9"}}`; got[0] != want {
				t.Errorf("progress: got %s, want %s", got[0], want)
			}
			sent := f.heard()
			number := message(t, sent[len(sent)-1]).Envelope.ID.Of([]byte(sent[len(sent)-1]))
			if want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"a":1.0,"_meta":{"x":1e2,"progressToken": %s }}}`, id, number); got[1] != want {
				t.Errorf("answer: got %s, want %s", got[1], want)
			}
		}
	}
	got := all(t, c.call(`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":null}}}`))
	expect(t, "no token", strings.Join(got, "\n"), `"id":1,"result":{"_meta":{"progressToken":null}}`)
	if n := p.Metrics().LateProgress.Value(); n != 1 || len(got) != 1 {
		t.Errorf("progress without a token: got %q, counted %d", got, n)
	}
}

// The record of a request says how its call ended, also if a shared process has answered it.
func TestHowCallsEnd(t *testing.T) {
	for name, test := range map[string]struct{ method, answer, want string }{
		"a result":             {"tools/call", `"result":{}`, ""},
		"a tool that failed":   {"tools/call", `"result":{"isError":true}`, rpc.ToolError},
		"an error":             {"tools/call", `"error":{"code":-32602,"message":"m"}`, "-32602"},
		"an error of our own":  {"tasks/list", "", "-32601"},
		"a level of nothing":   {"logging/setLevel", "", "-32602"},
		"an error to no tool":  {"m", `"error":{"code":-32603,"message":"m"}`, "-32603"},
		"a prompt that failed": {"prompts/get", `"result":{"isError":true}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := newFake(t, testOptions(), func(f *fake, m session.Message) {
				if m.Envelope.Kind == rpc.Request {
					f.say(`{"jsonrpc":"2.0","id":%s,%s}`, m.Envelope.ID.Of(m.Bytes), test.answer)
				}
			})
			stream := connect(t, p).call(request(`"an id that is longer than the number of the call at the process"`, test.method))
			<-stream.Ready()
			if event, ok, _ := stream.Take(); !ok || event.Failed() != test.want {
				t.Errorf("%s ends with %q, want %q", event.Message, event.Failed(), test.want)
			}
		})
	}
}

func FuzzSpelling(f *testing.F) {
	for _, seed := range [][2]string{{`1`, `"t"`}, {`"\u0031"`, `1`}, {`-0`, `null`}, {`""`, `1e9`}, {"\"\u200d\"", `{"a":[]}`}} {
		f.Add(seed[0], seed[1], true)
	}
	f.Fuzz(func(t *testing.T, id, token string, idFirst bool) {
		text := []byte(`{"jsonrpc":"2.0","method":"m","params":{"_meta":{"progressToken":` + token + `}},"id":` + id + `}`)
		if idFirst {
			text = []byte(`{"id":` + id + `,"jsonrpc":"2.0","params":{"_meta":{"progressToken":` + token + `}},"method":"m"}`)
		}
		envelope, err := rpc.Scan(text)
		if err != nil || envelope.Kind != rpc.Request {
			return
		}
		original := session.Message{Bytes: text, Envelope: envelope}
		id, token = string(envelope.ID.Of(text)), tokenOf(original)
		sent := toProcess(original, 18446744073709551615)
		there, err := rpc.Scan(sent)
		if err != nil || string(there.ID.Of(sent)) != "18446744073709551615" {
			t.Fatalf("the process is sent %s: %v", sent, err)
		}
		back := []rpc.Edit{{Span: there.ID, With: []byte(id)}}
		if token != "" {
			back = append(back, rpc.Edit{Span: there.ProgressToken, With: []byte(token)})
		}
		if got := rpc.Edited(sent, back...); string(got) != string(text) {
			t.Fatalf("got %s, want %s", got, text)
		}
		answered := answerFor(message(t, `{"jsonrpc":"2.0","result":{"id":3},"id":18446744073709551615}`), id)
		again, err := rpc.Scan(answered.Bytes)
		if err != nil || again.ID != answered.Envelope.ID || string(again.ID.Of(answered.Bytes)) != id {
			t.Fatalf("answer %s: %v", answered.Bytes, err)
		}
	})
}

// U-01, Q-01, U-06: what is answered or kept here.
func TestWhatDoesNotPass(t *testing.T) {
	p, fakes := newFake(t, testOptions(), echo)
	one, two := connect(t, p), connect(t, p)
	f := <-fakes
	listening := two.listen()

	for text, want := range map[string]string{
		`{"jsonrpc":"2.0","id":5,"method":"logging/setLevel","params":{"level":"debug"}}`: `{"jsonrpc":"2.0","id":5,"result":{}}`,
		`{"jsonrpc":"2.0","id":6,"method":"logging/setLevel","params":{"level":"loud"}}`:  `"code":-32602`,
		request("7", "server/discover"): `"code":-32601`,
	} {
		expect(t, text, one.ask(text), want)
	}
	one.tell(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
	one.tell(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`)
	one.tell(`{"jsonrpc":"2.0","method":"x/unknown"}`)
	one.tell(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}`)
	if got := f.heard(); len(got) != 0 {
		t.Errorf("the process was sent %q", got)
	}

	f.say(`{"jsonrpc":"2.0","id":"p","method":"ping"}`)
	f.say(`{"jsonrpc":"2.0","id":0,"method":"sampling/createMessage","params":{}}`)
	got := f.awaitHeard(2)
	if got[0] != `{"jsonrpc":"2.0","id":"p","result":{}}` || !strings.HasPrefix(got[1], `{"jsonrpc":"2.0","id":0,"error":{"code":-32601,`) {
		t.Errorf("the process was answered %q", got)
	}
	f.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"secret"}}`)
	f.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":0}}`)
	f.say(`{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{}}`)
	f.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`)
	f.say(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	f.say(`{"jsonrpc":"2.0","id":"1","result":{}}`)
	f.say(`{"jsonrpc":"2.0","error":{"code":-32700,"message":"what?"}}`)
	expect(t, "ping", two.ask(request("1", "ping")), `"id":1,"result":{}`)
	expectNothing(t, "a session's stream", listening)

	m := p.Metrics()
	for name, count := range map[string][2]uint64{
		"logs": {m.LogMessages.Value(), 1}, "requests": {m.RefusedRequests.Value(), 1}, "late answers": {m.LateAnswers.Value(), 3},
		"late progress": {m.LateProgress.Value(), 1}, "unrouted": {m.UnroutedMessages.Value(), 2}, "unforwarded": {m.UnforwardedMessages.Value(), 6},
	} {
		if count[0] != count[1] {
			t.Errorf("%s: counted %d, want %d", name, count[0], count[1])
		}
	}
}

// L-01: a session begins with initialize, and gets nothing before.
func TestL01InitializeComesFirst(t *testing.T) {
	p, fakes := newFake(t, testOptions(), echo)
	c := client{opened(t, p), t}
	f := <-fakes
	expect(t, "ping", c.ask(request("1", "ping")), `"result"`)
	expect(t, "early call", c.ask(request("1", "tools/list")), `"code":-32600`)
	expect(t, "no revision", c.ask(request("1", "initialize")), `"code":-32602`)
	f.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	if got := all(t, c.call(fmt.Sprintf(initializeRequest, "1", "2025-06-18"))); len(got) != 1 {
		t.Errorf("initialize: got %q", got)
	}
}

// Every session gets the notification that a list has changed.
func TestListChanges(t *testing.T) {
	p, fakes := newFake(t, testOptions(), echo)
	one, two := connect(t, p), connect(t, p)
	f := <-fakes
	streams := []*session.Stream{one.listen(), two.listen()}
	for _, list := range []string{"tools", "prompts", "resources"} {
		text := `{"jsonrpc":"2.0", "method":"notifications/` + list + `/list_changed","params":{"_meta":{"x":1.0}}}`
		f.say("%s", text)
		for _, stream := range streams {
			if got, _ := next(t, stream); got != text {
				t.Errorf("got %s, want %s", got, text)
			}
		}
	}
}

// U-02: a cancellation names the call as the process knows it. Its answer, if there is
// one, is not for the client.
func TestU02Cancellation(t *testing.T) {
	p, fakes := newFake(t, testOptions(), nil)
	one, two := connect(t, p), connect(t, p)
	f := <-fakes
	stream := one.call(`{"jsonrpc":"2.0","id":"a","method":"m","params":{"_meta":{"progressToken":"a"}}}`)
	two.call(request(`"a"`, "m"))
	sent := message(t, f.awaitHeard(2)[0])
	number := string(sent.Envelope.ID.Of(sent.Bytes))
	cancel := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"reason":"\u00e9", "requestId":"a"}}`
	one.tell(cancel)
	one.tell(cancel)
	if got, want := f.awaitHeard(3)[2], strings.Replace(cancel, `"a"`, number, 1); got != want {
		t.Errorf("the process was told %s, want %s", got, want)
	}
	f.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`, number)
	f.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":1,"message":"stopped"}}`, number)
	if got := all(t, stream); len(got) != 0 {
		t.Errorf("got %q, want nothing", got)
	}
	if got := f.heard(); len(got) != 3 {
		t.Errorf("the process was sent %q", got)
	}
}

// A client may spell the id of its call differently when it cancels the call (J-02).
func TestCancellationInAnotherSpelling(t *testing.T) {
	for called, cancelled := range map[string]string{`"\u0061"`: `"a"`, `"a"`: `"\u0061"`} {
		p, fakes := newFake(t, testOptions(), nil)
		c := connect(t, p)
		f := <-fakes
		c.call(request(called, "m"))
		sent := message(t, f.awaitHeard(1)[0])
		c.tell(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + cancelled + `}}`)
		expect(t, "cancellation", f.awaitHeard(2)[1], `"requestId":`+string(sent.Envelope.ID.Of(sent.Bytes))+`}`)
	}
}

// L-07, T-29: an answer that comes after its call was given up is not taken for that
// of a later call with the same id.
func TestIDsThatComeAgain(t *testing.T) {
	p, fakes := newFake(t, testOptions(), nil)
	c := connect(t, p)
	f := <-fakes
	first := c.call(request("1", "m"))
	c.Sweep(t.Context(), time.Now().Add(time.Hour))
	expect(t, "call that timed out", strings.Join(all(t, first), ""), "took longer")
	second := c.call(request("1", "m"))
	sent := f.awaitHeard(3)
	numbers := [2]string{}
	for i, text := range []string{sent[0], sent[2]} {
		numbers[i] = string(message(t, text).Envelope.ID.Of([]byte(text)))
	}
	expect(t, "cancellation", sent[1], `"requestId":`+numbers[0]+`,`)
	f.say(`{"jsonrpc":"2.0","id":%s,"result":"first"}`, numbers[0])
	f.say(`{"jsonrpc":"2.0","id":%s,"result":"second"}`, numbers[1])
	expect(t, "second call", strings.Join(all(t, second), ""), `"second"`)
	if n := p.Metrics().LateAnswers.Value(); n != 1 {
		t.Errorf("counted %d late answers, want 1", n)
	}
}

// Calls of a session that ends are cancelled at the process; answers that come all
// the same are dropped.
func TestSessionEnds(t *testing.T) {
	p, fakes := newFake(t, testOptions(), nil)
	one, two := connect(t, p), connect(t, p)
	f := <-fakes
	gone, stays := one.call(request("1", "m")), two.call(request("1", "m"))
	sent := f.awaitHeard(2)
	one.End(errors.New("the client has gone"))
	expect(t, "call", strings.Join(all(t, gone), ""), "the client has gone")
	numbers := [2]string{}
	for i := range numbers {
		numbers[i] = string(message(t, sent[i]).Envelope.ID.Of([]byte(sent[i])))
	}
	expect(t, "cancellation", f.awaitHeard(3)[2], `notifications/cancelled","params":{"requestId":`+numbers[0]+`,`)
	for _, number := range numbers {
		f.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, number, number)
	}
	expect(t, "other session", strings.Join(all(t, stays), ""), `"result":`+numbers[1])
	if n := p.Metrics().LateAnswers.Value(); n != 1 {
		t.Errorf("counted %d late answers, want 1", n)
	}
	if f.closed {
		t.Error("the process was ended")
	}
	p.Close()
	<-two.Done()
	if _, err := p.Open(t.Context()); !errors.Is(err, fault.ErrDraining) {
		t.Errorf("open after close: got %v", err)
	}
}
