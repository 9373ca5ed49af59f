package tolegacy

import (
	"strings"
	"testing"
)

// B-05, J-23: a result loses what is modern, and passes otherwise byte for byte, at any
// place of its id.
func TestResults(t *testing.T) {
	for name, test := range map[string]struct{ result, want string }{
		"nothing to drop":  {`{"a":1.0,"b":[ ]}`, `{"a":1.0,"b":[ ]}`},
		"the type":         {`{"resultType":"complete","a":12345678901234567890}`, `{"a":12345678901234567890}`},
		"hints":            {`{"tools":[],"ttlMs":0,"cacheScope":"private"}`, `{"tools":[]}`},
		"all of them":      {`{"resultType":"complete","ttlMs":5,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s"}}}`, `{}`},
		"some of _meta":    {`{"_meta":{"io.modelcontextprotocol/serverInfo":{},"x":"\u00e9"},"a":1}`, `{"_meta":{"x":"\u00e9"},"a":1}`},
		"none of _meta":    {`{"_meta":{"x":1},"resultType":"complete"}`, `{"_meta":{"x":1}}`},
		"an empty _meta":   {`{"_meta":{}}`, `{"_meta":{}}`},
		"deeper down":      {`{"a":{"resultType":"x","ttlMs":1,"_meta":{"io.modelcontextprotocol/x":1}},"resultType":"complete"}`, `{"a":{"resultType":"x","ttlMs":1,"_meta":{"io.modelcontextprotocol/x":1}}}`},
		"J-15 no type":     {`{"content":[]}`, `{"content":[]}`},
		"blanks":           {`{ "a" : 1 , "resultType" : "complete" , "b" : 2 }`, `{ "a" : 1 , "b" : 2 }`},
		"an unknown _meta": {`{"_meta":null,"a":1}`, `{"_meta":null,"a":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			staged(t, func(s *stage) {
				s.meetAll()
				s.send(`{"jsonrpc":"2.0","id":"é","method":"tools/list"}`)
				s.next().answer(`"result":` + test.result)
				s.want(`{"jsonrpc":"2.0","id":"é","result":` + test.want + `}`)
				s.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
				x := s.next()
				x.mu.Lock()
				x.last, x.answered = true, true // before it is taken
				x.mu.Unlock()
				x.say(`{"result":` + test.result + `,"jsonrpc":"2.0","id":2}`)
				s.want(`{"result":` + test.want + `,"jsonrpc":"2.0","id":2}`)
			})
		})
	}
}

// B-05, J-15: errors, and answers that are none.
func TestErrors(t *testing.T) {
	for name, test := range map[string]struct{ answer, want string }{
		"unchanged":                   {`"error":{"data":[1.0],"code":-32602,"message":"no \u00e9"}`, `"error":{"data":[1.0],"code":-32602,"message":"no \u00e9"}`},
		"no such method":              {`"error":{"code":-32601,"message":"x"}`, `"error":{"code":-32601,"message":"x"}`},
		"one of the server's":         {`"error":{"code":7,"message":"x","more":1}`, `"error":{"code":7,"message":"x","more":1}`},
		"another version":             {`"error":{"code":-32022,"message":"x","data":{"supported":["2027-01-01"]}}`, `"error":{"code":-32603,"message":"the server does not serve protocol revision 2026-07-28 any more"}`},
		"L-26 a missing capability":   {`"error":{"code":-32021,"message":"no","data":{"requiredCapabilities":{"sampling":{},"elicitation":{}}}}`, `"error":{"code":-32021,"message":"no (the client lacks: elicitation, sampling)","data":{"requiredCapabilities":{"sampling":{},"elicitation":{}}}}`},
		"L-26 without a word":         {`"error":{"code":-32021,"message":""}`, `"error":{"code":-32021,"message":"the server needs a client that can do more"}`},
		"no code":                     {`"error":{"message":"x"}`, `"error":{"code":-32603,"message":"the server's error has no code"}`},
		"J-15 an unknown type":        {`"result":{"resultType":"task","task":{}}`, `"error":{"code":-32603,"message":"the server's answer is of a type that was not agreed on: \"task\""}`},
		"J-15 a type that is none":    {`"result":{"resultType":1}`, `"error":{"code":-32603,"message":"the server's answer is of a type that was not agreed on: \"\""}`},
		"J-14 no object":              {`"result":7`, `"error":{"code":-32603,"message":"the server's answer is not an object"}`},
		"I-01 input for another call": {`"result":{"resultType":"input_required","requestState":"z"}`, `"error":{"code":-32603,"message":"the server's answer asks for input, which it must not for tools/list"}`},
		"J-05 neither":                {`"method":"x"`, `"error":{"code":-32603,"message":"the server's answer cannot be read"}`},
	} {
		t.Run(name, func(t *testing.T) {
			staged(t, func(s *stage) {
				s.meetAll()
				s.send(`{"jsonrpc":"2.0","id":"1","method":"tools/list"}`)
				s.next().answer(test.answer)
				s.want(`{"jsonrpc":"2.0","id":"1",` + test.want + `}`)
			})
		})
	}
}

// B-05's last: what the client's revision does not have.
func TestDownlevel(t *testing.T) {
	const (
		tool   = "tools/call"
		text   = `{"type":"text","text":"t","annotations":{"priority":1.0}}`
		audio  = `{"type":"audio","data":"AA==","mimeType":"audio/wav"}`
		link   = `{"type":"resource_link","uri":"a://x","name":"n","title":"T"}`
		noWav  = `{"type":"text","text":"[audio audio/wav, which is not part of this client's protocol revision]"}`
		noLink = `{"type":"text","text":"[resource n: a://x]"}`
		three  = `{"content":[` + text + `,` + audio + `, ` + link + `],"isError":false}`
		object = `{"content":[` + text + `],"structuredContent":{"n":1.0}}`
		list   = `{"content":[` + text + `],"structuredContent":[1.0],"isError":false}`
		only   = `{"content":[` + text + `]}`
		said   = `{"content":[{"type":"text","text":"[1.0,\"x\"]"}]}`
		tools  = `{"tools":[{"name":"a","outputSchema":{"type":"object"},"title":"A"},{"outputSchema":{"type":"array"},"name":"b"},{"name":"c","outputSchema":true},{"name":"d"},{"name":"e","outputSchema":{"anyOf":[]}}],"nextCursor":"n"}`
		prompt = `{"messages":[{"role":"user","content":` + link + `},{"role":"user","content":` + audio + `},{"role":"user","content":` + text + `}]}`
	)
	for name, test := range map[string]struct {
		method, result string
		want           map[string]string // by revision; what is not there is unchanged
	}{
		"content": {tool, three, map[string]string{
			r24: `{"content":[` + text + `,` + noWav + `, ` + noLink + `],"isError":false}`,
			r03: `{"content":[` + text + `,` + audio + `, ` + noLink + `],"isError":false}`,
		}},
		"structured content":         {tool, object, map[string]string{r24: only, r03: only}},
		"structured, and no object":  {tool, list, map[string]string{r24: `{"content":[` + text + `],"isError":false}`, r03: `{"content":[` + text + `],"isError":false}`, r06: `{"content":[` + text + `],"isError":false}`, r11: `{"content":[` + text + `],"isError":false}`}},
		"structured, and empty text": {tool, `{"structuredContent":[1.0,"x"],"content":[]}`, map[string]string{r24: said, r03: said, r06: said, r11: said}},
		"structured, and no text":    {tool, `{"resultType":"complete","structuredContent":[1.0,"x"]}`, map[string]string{r24: said, r03: said, r06: said, r11: said}},
		"structured elsewhere":       {"other/method", list, nil},
		"tools": {"tools/list", tools, map[string]string{
			r24: `{"tools":[{"name":"a","title":"A"},{"name":"b"},{"name":"c"},{"name":"d"},{"name":"e"}],"nextCursor":"n"}`,
			r03: `{"tools":[{"name":"a","title":"A"},{"name":"b"},{"name":"c"},{"name":"d"},{"name":"e"}],"nextCursor":"n"}`,
			r06: `{"tools":[{"name":"a","outputSchema":{"type":"object"},"title":"A"},{"name":"b"},{"name":"c"},{"name":"d"},{"name":"e"}],"nextCursor":"n"}`,
			r11: `{"tools":[{"name":"a","outputSchema":{"type":"object"},"title":"A"},{"name":"b"},{"name":"c"},{"name":"d"},{"name":"e"}],"nextCursor":"n"}`,
		}},
		"a prompt": {"prompts/get", prompt, map[string]string{
			r24: `{"messages":[{"role":"user","content":` + noLink + `},{"role":"user","content":` + noWav + `},{"role":"user","content":` + text + `}]}`,
			r03: `{"messages":[{"role":"user","content":` + noLink + `},{"role":"user","content":` + audio + `},{"role":"user","content":` + text + `}]}`,
		}},
		"lists of nonsense": {"tools/list", `{"tools":[1,"x",null,[]]}`, nil},
		"no list":           {"tools/list", `{"tools":"x"}`, nil},
		"strange content":   {tool, `{"content":[1,{"type":7},[]],"structuredContent":{}}`, map[string]string{r24: `{"content":[1,{"type":7},[]]}`, r03: `{"content":[1,{"type":7},[]]}`}},
		"strange messages":  {"prompts/get", `{"messages":[1,{"content":"x"},{}]}`, nil},
	} {
		for _, revision := range []string{r24, r03, r06, r11} {
			t.Run(name+" "+revision, func(t *testing.T) {
				staged(t, func(s *stage) {
					want, changes := test.want[revision]
					if !changes {
						want = strings.Replace(test.result, `"resultType":"complete",`, "", 1)
					}
					s.meet(revision, `{}`, discovered)
					s.send(`{"jsonrpc":"2.0","id":1,"method":"` + test.method + `"}`)
					s.next().answer(`"result":` + test.result)
					s.want(`{"jsonrpc":"2.0","id":1,"result":` + want + `}`)
				})
			})
		}
	}
}
