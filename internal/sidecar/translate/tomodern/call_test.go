package tomodern

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/version"
)

// B-04: what a client sends, what the process gets and answers, and what the client gets.
func TestTranslation(t *testing.T) {
	const hints = `"ttlMs":0,"cacheScope":"private",`
	for name, test := range map[string]struct {
		method, params, meta string
		process              string // that it is sent
		answer               string
		want                 string
	}{
		"a call": {
			"tools/call", `"name":"x","arguments":{"b":1.50,"a":[1e400]},`, `"com.example/x":{"y":1},`,
			`{"jsonrpc":"2.0","id":N,"method":"tools/call","params":{"name":"x","arguments":{"b":1.50,"a":[1e400]},"_meta":{"com.example/x":{"y":1}}}}`,
			`"result":{"content":[],"z":1.0,"a":9007199254740993}`,
			result(`"resultType":"complete",` + info + `,"content":[],"z":1.0,"a":9007199254740993`),
		},
		"an empty result": {"completion/complete", "", "", `{"jsonrpc":"2.0","id":N,"method":"completion/complete","params":{"_meta":{}}}`, `"result":{ }`, result(`"resultType":"complete",` + info + ` `)},
		"progress token, and keys in any order": {
			"prompts/get", `"name":"x",`, `"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"}, "progressToken":TOKEN , "io.modelcontextprotocol/logLevel":"error",`,
			`{"jsonrpc":"2.0","id":N,"method":"prompts/get","params":{"name":"x","_meta":{"progressToken":N}}}`,
			`"result":{"messages":[],"_meta":{"a":1}}`,
			result(`"resultType":"complete","messages":[],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"old","version":"1.0"},"a":1}`),
		},
		"C-01 tools": {
			"tools/list", `"cursor":"c",`, "", `{"jsonrpc":"2.0","id":N,"method":"tools/list","params":{"cursor":"c","_meta":{}}}`,
			`"result":{"tools":[{"name":"a","execution":{"taskSupport":"optional"}},{"execution":{},"name":"b"},{"name":"c","inputSchema":{"execution":1}},{"execution":1,"execution":2}],"nextCursor":"d"}`,
			result(`"resultType":"complete",` + hints + info + `,"tools":[{"name":"a"},{"name":"b"},{"name":"c","inputSchema":{"execution":1}},{"execution":1,"execution":2}],"nextCursor":"d"`),
		},
		"P-05 an empty cursor": {
			"tools/list", "", "", `{"jsonrpc":"2.0","id":N,"method":"tools/list","params":{"_meta":{}}}`,
			`"result":{"tools":[], "nextCursor" : "" }`, result(`"resultType":"complete",` + hints + info + `,"tools":[] `),
		},
		"P-05 an empty cursor and no more": {
			"resources/templates/list", "", "", `{"jsonrpc":"2.0","id":N,"method":"resources/templates/list","params":{"_meta":{}}}`,
			`"result":{"nextCursor":""}`, result(`"resultType":"complete",` + strings.TrimSuffix(hints+info, ",")),
		},
		"P-05 an empty cursor of no list": {
			"x/y", "", "", `{"jsonrpc":"2.0","id":N,"method":"x/y","params":{"_meta":{}}}`,
			`"result":{"nextCursor":""}`, result(`"resultType":"complete",` + info + `,"nextCursor":""`),
		},
		"C-01 prompts":   {"prompts/list", "", "", `{"jsonrpc":"2.0","id":N,"method":"prompts/list","params":{"_meta":{}}}`, `"result":{"prompts":[]}`, result(`"resultType":"complete",` + hints + info + `,"prompts":[]`)},
		"C-01 resources": {"resources/list", "", "", `{"jsonrpc":"2.0","id":N,"method":"resources/list","params":{"_meta":{}}}`, `"result":{"resources":[]}`, result(`"resultType":"complete",` + hints + info + `,"resources":[]`)},
		"C-01 templates": {"resources/templates/list", "", "", `{"jsonrpc":"2.0","id":N,"method":"resources/templates/list","params":{"_meta":{}}}`, `"result":{"resourceTemplates":[]}`, result(`"resultType":"complete",` + hints + info + `,"resourceTemplates":[]`)},
		"C-01 read, hints of the server's": {
			"resources/read", `"uri":"a:b",`, "", `{"jsonrpc":"2.0","id":N,"method":"resources/read","params":{"uri":"a:b","_meta":{}}}`,
			`"result":{"contents":[],"ttlMs":7,"cacheScope":"public"}`, result(`"resultType":"complete",` + info + `,"contents":[],"ttlMs":7,"cacheScope":"public"`),
		},
		"resultType and serverInfo of the server's, and no _meta": {
			"prompts/get", "", "", `{"jsonrpc":"2.0","id":N,"method":"prompts/get","params":{"_meta":{}}}`,
			`"result":{"resultType":"input_required","_meta":null}`, result(`"resultType":"complete",` + info),
		},
		"inputResponses without a state are a new call": {
			"tools/call", `"inputResponses":{"r1":{"action":"accept"}},"name":"x","task":{"ttl":1},`, "",
			`{"jsonrpc":"2.0","id":N,"method":"tools/call","params":{"name":"x","_meta":{}}}`, `"result":{}`, result(`"resultType":"complete",` + info),
		},
		"a state of a method that has none": {
			"tools/list", `"requestState":"x",`, "", `{"jsonrpc":"2.0","id":N,"method":"tools/list","params":{"_meta":{}}}`,
			`"error":{"code":-32602,"message":"m"}`, failure(-32602, "m"),
		},
		"unknown method":          {"x/y", "", "", `{"jsonrpc":"2.0","id":N,"method":"x/y","params":{"_meta":{}}}`, `"error":{"code":-32601,"message":"m","data":[1.0]}`, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32601,"message":"m","data":[1.0]}}`},
		"no object":               {"x/y", "", "", `{"jsonrpc":"2.0","id":N,"method":"x/y","params":{"_meta":{}}}`, `"result":null`, failure(-32603, "the server's answer cannot be translated: the result is not an object")},
		"code 0":                  {"x/y", "", "", `{"jsonrpc":"2.0","id":N,"method":"x/y","params":{"_meta":{}}}`, `"error":{"code":0,"message":"m"}`, failure(0, "m")},
		"-32000 to -32019":        {"x/y", "", "", `{"jsonrpc":"2.0","id":N,"method":"x/y","params":{"_meta":{}}}`, `"error":{"code":-32019,"message":"m"}`, failure(-32019, "m")},
		"-32022 is not for it":    {"x/y", "", "", `{"jsonrpc":"2.0","id":N,"method":"x/y","params":{"_meta":{}}}`, `"error":{"code":-32022,"message":"m","data":1}`, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32603,"message":"m","data":{"code":-32022,"message":"m","data":1}}}`},
		"-32099 neither":          {"x/y", "", "", `{"jsonrpc":"2.0","id":N,"method":"x/y","params":{"_meta":{}}}`, `"error":{"code":-32099,"message":"m"}`, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32603,"message":"m","data":{"code":-32099,"message":"m"}}}`},
		"-32021, well formed":     {"x/y", "", "", `{"jsonrpc":"2.0","id":N,"method":"x/y","params":{"_meta":{}}}`, `"error":{"code":-32021,"message":"m","data":{"requiredCapabilities":{}}}`, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32021,"message":"m","data":{"requiredCapabilities":{}}}}`},
		"-32021, otherwise":       {"x/y", "", "", `{"jsonrpc":"2.0","id":N,"method":"x/y","params":{"_meta":{}}}`, `"error":{"code":-32021,"message":"m"}`, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32603,"message":"m","data":{"code":-32021,"message":"m"}}}`},
		"-32002, no data":         {"resources/read", `"uri":"a:\"b",`, "", `{"jsonrpc":"2.0","id":N,"method":"resources/read","params":{"uri":"a:\"b","_meta":{}}}`, `"error":{"code":-32002,"message":"m"}`, `{"jsonrpc":"2.0","id":ID,"error":{"data":{"uri":"a:\"b"},"code":-32602,"message":"m"}}`},
		"-32002, with uri":        {"resources/read", `"uri":"a:b",`, "", `{"jsonrpc":"2.0","id":N,"method":"resources/read","params":{"uri":"a:b","_meta":{}}}`, `"error":{"code":-32002,"message":"m","data":{"uri":"c:d"}}`, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32602,"message":"m","data":{"uri":"c:d"}}}`},
		"-32002, with other data": {"resources/read", `"uri":"a:b",`, "", `{"jsonrpc":"2.0","id":N,"method":"resources/read","params":{"uri":"a:b","_meta":{}}}`, `"error":{"code":-32002,"message":"m","data":{"x":1}}`, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32602,"message":"m","data":{"uri":"a:b","x":1}}}`},
		"-32042 without URLs":     {"tools/call", "", "", `{"jsonrpc":"2.0","id":N,"method":"tools/call","params":{"_meta":{}}}`, `"error":{"code":-32042,"message":"m"}`, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32603,"message":"m","data":{"code":-32042,"message":"m"}}}`},
		"-32042, cannot visit":    {"tools/call", "", "", `{"jsonrpc":"2.0","id":N,"method":"tools/call","params":{"_meta":{}}}`, `"error":{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"url"}]}}`, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32021,"message":"this takes a client with elicitation by URL","data":{"requiredCapabilities":{"elicitation":{"url":{}}}}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, nil, func(p *script) { p.answers["logging/setLevel"] = `"result":{}` }, func(s *stage) {
				request := s.post(client{capabilities: "{}", meta: test.meta}, test.method, test.params)
				got := s.process(1).expect(test.process)
				s.process(1).answer(got, test.answer)
				request.want(test.want)
			})
		})
	}
}

// Requests that no process sees, nor is started for.
func TestRefused(t *testing.T) {
	for name, test := range map[string]struct {
		method, params, meta string
		code                 int
		message              string
	}{
		"U-07 no level":       {"tools/list", "", `"io.modelcontextprotocol/logLevel":"loud",`, -32602, "io.modelcontextprotocol/logLevel is not a level"},
		"U-07 no text":        {"tools/list", "", `"io.modelcontextprotocol/logLevel":3,`, -32602, "io.modelcontextprotocol/logLevel is not a level"},
		"tasks are not there": {"tasks/get", `"taskId":"1",`, "", -32601, "there is no tasks/get"},
		"a state of no text":  {"tools/call", `"requestState":1,`, "", -32602, "requestState invalid or expired; call again"},
		"an empty state":      {"tools/call", `"requestState":"",`, "", -32602, "requestState invalid or expired; call again"},
		"no filter":           {"subscriptions/listen", "", "", -32602, "params.notifications is not what it must be"},
		"a wrong filter":      {"subscriptions/listen", `"notifications":{"toolsListChanged":1},`, "", -32602, "params.notifications is not what it must be"},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, nil, nil, func(s *stage) {
				s.post(client{capabilities: "{}", meta: test.meta}, test.method, test.params).want(failure(test.code, test.message))
				s.processes(0)
			})
		})
	}
}

// A state is bound to the arguments of its call, so these must be clear.
func TestRefusedMembersThatStandTwice(t *testing.T) {
	for name, params := range map[string]string{
		"arguments":      `"arguments":{"a":1},"arguments":{"a":2},`,
		"Arguments":      `"Arguments":{"a":1},`,
		"inputResponses": `"inputResponses":{},"input\u0052esponses":{},`,
	} {
		t.Run(name, func(t *testing.T) {
			play(t, nil, nil, func(s *stage) {
				s.post(mute, "tools/call", toolX+params).wantPart(`"error":{"code":-32602,"message":"the member \"`)
				s.processes(0)
			})
		})
	}
}

// L-21: what the adapter says about the server, and which capabilities of the client it sends to it.
func TestDiscover(t *testing.T) {
	for name, test := range map[string]struct {
		capabilities string
		roots        bool
		initialize   string
	}{
		"none":                                  {`{}`, true, `{}`},
		"B-04 elicitation is by form":           {`{"elicitation":{}}`, false, `{"elicitation":{"form":{}}}`},
		"B-04 elicitation by URL only":          {`{"elicitation":{"url":{}}}`, false, `{"elicitation":{"url":{}}}`},
		"B-04 no roots":                         {`{"roots":{"listChanged":true}}`, false, `{}`},
		"B-04 roots":                            {`{"roots":{"listChanged":true}}`, true, `{"roots":{}}`},
		"B-04 capabilities that cannot be kept": {`{"extensions":{"io.modelcontextprotocol/tasks":{}},"tasks":{},"sampling":{"tools":{},"context":{}}}`, false, `{"sampling":{"tools":{},"context":{}}}`},
		"no object":                             {`{"sampling":null,"elicitation":true}`, false, `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(o *Options) { o.OfferRoots = test.roots }, func(p *script) { delete(p.answers, "initialize") }, func(s *stage) {
				request := s.post(client{capabilities: test.capabilities}, "server/discover", "")
				p := s.process(1)
				got := p.expect(`{"jsonrpc":"2.0","id":N,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":` + test.initialize +
					`,"clientInfo":{"name":"slipway","version":"` + version.Get().Version + `"}}}`)
				request.wantNothing()
				p.answer(got, `"result":{"protocolVersion":"2024-11-05","capabilities":{"tasks":{"list":{}},"tools":{},"x":{"y":1.0}},"serverInfo":{"version":"1","name":"o"},"instructions":"Be \"kind\"."}`)
				request.want(result(`"resultType":"complete","supportedVersions":["2026-07-28","2024-11-05"],` +
					`"capabilities":{"tools":{},"x":{"y":1.0}},"instructions":"Be \"kind\".","ttlMs":0,"cacheScope":"private",` +
					`"_meta":{"io.modelcontextprotocol/serverInfo":{"version":"1","name":"o"}}`))
				s.post(client{capabilities: test.capabilities}, "server/discover", "").wantPart(`"supportedVersions"`)
				s.processes(1)
			})
		})
	}
}

// A process that does not agree is ended, and the request was not taken. The third start
// has to wait, unless it is the caller that the server does not want.
func TestStartFails(t *testing.T) {
	for name, test := range map[string]struct {
		answer string
		waits  int
	}{
		"an error":         {`"error":{"code":-32603,"message":"no license"}`, 0},
		"another revision": {`"result":{"protocolVersion":"2026-07-28","capabilities":{},"serverInfo":{}}`, 1},
		"no capabilities":  {`"result":{"protocolVersion":"2025-11-25"}`, 1},
		"silence":          {``, 1},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, nil, func(p *script) { p.answers["initialize"] = test.answer }, func(s *stage) {
				for range 3 {
					s.post(mute, "tools/list", "").wantBusy()
				}
				s.processes(3 - test.waits)
				time.Sleep(mux.OnDemand.First)
				s.post(mute, "tools/list", "").wantBusy()
				s.processes(4 - test.waits)
				equal(t, "failures", s.server.Metrics().StartFailures.Value(), uint64(4-test.waits))
			})
		})
	}
}

// U-05: progress goes to its call, and late progress is dropped.
func TestProgress(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		a := s.post(client{capabilities: "{}", meta: `"progressToken":TOKEN,`}, "tools/call", `"name":"a",`)
		p := s.process(1)
		call := p.next()
		number := string(call.Envelope.ProgressToken.Of(call.Bytes))
		p.emit(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + number + `,"progress":1.0,"x":[ ]}}`)
		p.answer(call, `"result":{}`)
		p.emit(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + number + `,"progress":2}}`)
		a.want(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":ID,"progress":1.0,"x":[ ]}}`, result(`"resultType":"complete",`+info))
		p.answer(call, `"result":{}`)
		equal(t, "late progress", s.server.Metrics().LateProgress.Value(), 1)
		equal(t, "late answers", s.server.Metrics().LateAnswers.Value(), 1)
	})
}

// A process that ends takes its own calls with it, and no others. Its standard error is not for
// clients. The next call has a fresh process.
func TestProcessEnds(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		one, other := s.post(mute, "tools/call", ""), s.post(client{principal: "other", capabilities: "{}"}, "tools/call", "")
		first, second := s.process(1), s.process(2)
		first.next()
		call := second.next()
		first.end(errPlayed)
		synctest.Wait()
		if len(one.got()) == 0 { // whichever was started first
			one, other = other, one
		}
		one.want(failure(-32603, errPlayed.Error()))
		other.wantNothing()
		second.answer(call, `"result":{}`)
		other.want(result(`"resultType":"complete",` + info))
		s.post(mute, "tools/list", "")
		s.post(client{principal: "other", capabilities: "{}"}, "tools/list", "")
		s.processes(3)
	})
}

// M-09: the process gets the cancellation. A process that cannot ask for input continues
// with other calls, and the adapter drops its late answer.
func TestCancelShared(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		a, b := s.post(mute, "tools/call", `"name":"a",`), s.post(mute, "tools/call", `"name":"b",`)
		p := s.process(1)
		first, second := p.next(), p.next()
		if string(first.Envelope.Name) == "b" {
			a, b = b, a
		}
		a.abandon()
		got := p.expect(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":N,"reason":"the client has gone"}}`)
		if string(got.Envelope.RequestID.Of(got.Bytes)) != string(first.Envelope.ID.Of(first.Bytes)) {
			t.Error("another request is cancelled")
		}
		a.abandon() // which is nothing new
		p.expectNothing()
		p.answer(first, `"result":{}`)
		a.wantNothing()
		equal(t, "late answers", s.server.Metrics().LateAnswers.Value(), 1)
		time.Sleep(time.Minute)
		p.answer(second, `"result":{}`)
		b.want(result(`"resultType":"complete",` + info))
		s.processes(1)
	})
}

// Progress of a call without a token belongs to no client, whatever token the process makes up.
func TestProgressWithoutToken(t *testing.T) {
	play(t, nil, nil, func(s *stage) {
		request := s.post(mute, "tools/call", "")
		p := s.process(1)
		call := p.next()
		p.emit(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + string(call.Envelope.ID.Of(call.Bytes)) + `,"progress":1}}`)
		request.wantNothing()
		equal(t, "late progress", s.server.Metrics().LateProgress.Value(), 1)
	})
}

// The adapter retries a request that no process accepts a few times, and then gives up.
func TestProcessesThatTakeNothing(t *testing.T) {
	play(t, nil, func(p *script) {
		p.refuse = func(m session.Message) error {
			if string(m.Envelope.Method) == "tools/list" {
				return errPlayed
			}
			return nil
		}
	}, func(s *stage) {
		s.post(mute, "tools/list", "").wantBusy()
		s.processes(tries)
		time.Sleep(mux.ReasonGrace) // for their ends
	})
}
