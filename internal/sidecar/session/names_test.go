package session

import (
	"fmt"
	"testing"
)

func progressOf(token string) string {
	return `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + token + `}}`
}

func progressText(token string) string {
	return `"method":"notifications/progress","params":{"progressToken":` + token + `}`
}

// U-05: progress is for calls in flight, whatever they are, and goes nowhere else: not
// to the only call, nor to a stream that is open.
func TestProgressOfNoCall(t *testing.T) {
	for name, test := range map[string]struct {
		request, token, answer string
		during, after          int // how much of it reaches the client
	}{
		"a tool":               {`"method":"tools/call","params":{"name":"t","_meta":{"progressToken":1}}`, "1", `"result":{}`, 1, 0},
		"a prompt":             {`"method":"prompts/get","params":{"_meta":{"progressToken":"p"}}`, `"p"`, `"result":{}`, 1, 0},
		"a resource":           {`"method":"resources/read","params":{"_meta":{"progressToken":"r"},"uri":"u"}`, `"r"`, `"result":{}`, 1, 0},
		"a method of tomorrow": {`"method":"x/y","params":{"_meta":{"progressToken":"y"}}`, `"y"`, `"result":{}`, 1, 0},
		"another token":        {`"method":"tools/call","params":{"_meta":{"progressToken":1}}`, "2", `"result":{}`, 0, 0},
		"another type":         {`"method":"tools/call","params":{"_meta":{"progressToken":1}}`, `"1"`, `"result":{}`, 0, 0},
		"no token":             {`"method":"tools/call","params":{}`, "1", `"result":{}`, 0, 0},
		"null is none":         {`"method":"tools/call","params":{"_meta":{"progressToken":null}}`, "null", `"result":{}`, 0, 0},
		"a task":               {`"method":"tools/call","params":{"task":{"ttl":1},"_meta":{"progressToken":"k"}}`, `"k"`, `"result":{"task":{}}`, 1, 1},
		"a task that failed":   {`"method":"tools/call","params":{"task":{},"_meta":{"progressToken":"k"}}`, `"k"`, `"error":{"code":1,"message":""}`, 1, 0},
		"no task":              {`"method":"tools/call","params":{"arguments":{"task":1},"_meta":{"progressToken":"k"}}`, `"k"`, `"result":{}`, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, testLimits)
			general := h.open()
			stream, err := h.Call(t.Context(), h.message(`{"jsonrpc":"2.0","id":1,`+test.request+`}`))
			if err != nil {
				t.Fatal(err)
			}
			h.say(progressOf(test.token))
			if got := taken(stream); len(got) != test.during {
				t.Errorf("during the call it got %q", got)
			}
			h.say(`{"jsonrpc":"2.0","id":1,` + test.answer + `}`)
			h.say(progressOf(test.token))
			expect(t, "call", taken(stream), `"id":1,`+test.answer, "end")
			if got := taken(general); len(got) != test.after {
				t.Errorf("after the call the open stream got %q", got)
			}
			if got, want := int(h.metrics.UnmatchedProgress.Value()), 2-test.during-test.after; got != want {
				t.Errorf("unmatched progress: %d, want %d", got, want)
			}
		})
	}
}

// The tokens of tasks are not kept without bound.
func TestTokensOfManyTasks(t *testing.T) {
	h := newHarness(t, testLimits)
	general := h.open()
	for i := range 3 * testLimits.Calls {
		taken(h.call(i, fmt.Sprintf(`"task":{},"_meta":{"progressToken":%d}`, i)))
		h.answer(i)
		h.answer(i)
	}
	if len(h.taskTokens) != testLimits.Calls {
		t.Errorf("%d tokens are kept", len(h.taskTokens))
	}
	h.say(progressOf("0"))
	h.say(progressOf("11"))
	expect(t, "open stream", taken(general), progressText("11"))
}

// J-02: who echoes an id or a token may spell it in another way.
func TestOtherSpellings(t *testing.T) {
	h := newHarness(t, testLimits)
	stream, err := h.Call(t.Context(), h.message(`{"jsonrpc":"2.0","id":"caf\u00e9","method":"m","params":{"_meta":{"progressToken":"a\/b"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	h.say(progressOf(`"a/b"`))
	h.say(`{"jsonrpc":"2.0","id":"\u0071","method":"elicitation/create"}`)
	expect(t, "call", taken(stream), progressText(`"a/b"`), `"id":"\u0071","method":"elicitation/create"`)
	h.tell(`{"jsonrpc":"2.0","id":"q","result":{}}`)
	h.say(`{"jsonrpc":"2.0","id":"café","result":{}}`)
	expect(t, "call", taken(stream), `"id":"café","result":{}`, "end")
	expect(t, "server", h.server.messages()[1:], `{"jsonrpc":"2.0","id":"q","result":{}}`)

	if _, err := h.Call(t.Context(), h.message(`{"jsonrpc":"2.0","id":"\u0062","method":"m"}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Call(t.Context(), h.message(`{"jsonrpc":"2.0","id":"b","method":"m"}`)); err == nil {
		t.Error("T-29: two calls have one id")
	}
	h.tell(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"b"}}`)
	if !h.calls[`"b"`].cancelled {
		t.Error("the call is not cancelled")
	}
}
