package stateless

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/internal/paramheader"
	"github.com/slipway-mcp/slipway/internal/rpc"
)

func TestCheckParams(t *testing.T) {
	params := []paramheader.Param{{Path: []string{"region"}, Header: "Mcp-Param-Region"}, {Path: []string{"deep", "n"}, Header: "Mcp-Param-N"}, {Path: []string{"on"}, Header: "Mcp-Param-On"}}
	for name, test := range map[string]struct {
		arguments string
		header    http.Header
		refused   bool
	}{
		"nothing":                   {`{}`, nil, false},
		"no arguments":              {``, nil, false},
		"M-17 equal":                {`{"region":"eu","deep":{"n":42},"on":true}`, http.Header{"Mcp-Param-Region": {"eu"}, "Mcp-Param-N": {"42"}, "Mcp-Param-On": {"true"}}, false},
		"M-17 missing":              {`{"region":"eu"}`, nil, true},
		"M-17 missing, nested":      {`{"deep":{"n":42}}`, nil, true},
		"M-17 different":            {`{"region":"eu"}`, http.Header{"Mcp-Param-Region": {"us"}}, true},
		"M-14 another case":         {`{"region":"eu"}`, http.Header{"Mcp-Param-Region": {"EU"}}, true},
		"M-14 blanks around":        {`{"region":"eu"}`, http.Header{"Mcp-Param-Region": {" eu\t"}}, false},
		"M-17 twice":                {`{"region":"eu"}`, http.Header{"Mcp-Param-Region": {"eu", "eu"}}, true},
		"M-17 null":                 {`{"region":null}`, nil, false},
		"M-17 null, and there":      {`{"region":null}`, http.Header{"Mcp-Param-Region": {"null"}}, true},
		"M-17 absent, and there":    {`{}`, http.Header{"Mcp-Param-Region": {"eu"}}, true},
		"M-17 unknown is ignored":   {`{}`, http.Header{"Mcp-Param-Other": {"eu"}}, false},
		"M-15 Base64":               {`{"region":"Köln "}`, http.Header{"Mcp-Param-Region": {encoded("Köln ")}}, false},
		"M-15 bad Base64":           {`{"region":"eu"}`, http.Header{"Mcp-Param-Region": {"=?base64?!?="}}, true},
		"M-15 empty":                {`{"region":""}`, http.Header{"Mcp-Param-Region": {""}}, false},
		"M-17 numbers, other spell": {`{"deep":{"n":42}}`, http.Header{"Mcp-Param-N": {"42.0"}}, false},
		"M-17 numbers, different":   {`{"deep":{"n":42}}`, http.Header{"Mcp-Param-N": {"43"}}, true},
		"M-17 boolean, different":   {`{"on":false}`, http.Header{"Mcp-Param-On": {"true"}}, true},
		"an object has no header":   {`{"region":{"a":1}}`, http.Header{"Mcp-Param-Region": {`{"a":1}`}}, true},
		"what is nested in none":    {`{"deep":7}`, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			arguments := ""
			if test.arguments != "" {
				arguments = `"arguments":` + test.arguments + `,`
			}
			request := scanned(enveloped("1", "tools/call", `"name":"x",`+arguments))
			refused := checkParams(test.header, &request, params)
			if (refused != nil) != test.refused || refused != nil && (refused.code != rpc.CodeHeaderMismatch || refused.status != 400) {
				t.Errorf("refused is %+v, want %v", refused, test.refused)
			}
		})
	}
}

// M-17: parsers disagree on which of two equal arguments counts, so that a header cannot
// repeat either.
func TestCheckParamsWithAnArgumentTwice(t *testing.T) {
	params := []paramheader.Param{{Path: []string{"region"}, Header: "Mcp-Param-Region"}}
	for _, arguments := range []string{`{"region":"secret","region":"eu"}`, `{"region":"eu","region":"secret"}`, `{"region":"eu","Region":"secret"}`, `{"region":"eu","region\u0000":"secret"}`} {
		request := scanned(enveloped("1", "tools/call", `"name":"x","arguments":`+arguments+`,`))
		refused := checkParams(http.Header{"Mcp-Param-Region": {"eu"}}, &request, params)
		if refused == nil || refused.status != http.StatusBadRequest {
			t.Errorf("%s: refused is %+v", arguments, refused)
		}
	}
}

// M-17: it is not known which of these the server would take for the arguments.
func TestCheckParamsWithTwoArguments(t *testing.T) {
	params := []paramheader.Param{{Path: []string{"region"}, Header: "Mcp-Param-Region"}}
	for name, second := range map[string]string{"twice": "arguments", "another case": "Arguments", "escaped": `\u0061rguments`} {
		t.Run(name, func(t *testing.T) {
			request := scanned(enveloped("1", "tools/call", `"name":"x","arguments":{"region":"us"},"`+second+`":{"region":"eu"},`))
			for _, region := range []string{"us", "eu"} {
				refused := checkParams(http.Header{"Mcp-Param-Region": {region}}, &request, params)
				if refused == nil || refused.code != rpc.CodeInvalidParams || refused.status != 400 {
					t.Errorf("%s: refused is %+v", region, refused)
				}
			}
			if refused := checkParams(nil, &request, nil); refused != nil {
				t.Errorf("a tool without headers is refused by %+v", refused)
			}
		})
	}
}

// tool is one of a list.
func toolText(name, header string) string {
	annotation := ""
	if header != "" {
		annotation = `,"x-mcp-header":"` + header + `"`
	}
	return `{"name":"` + name + `","inputSchema":{"type":"object","properties":{"region":{"type":"string"` + annotation + `}}}}`
}

func toolCall(name string) string {
	return enveloped("1", "tools/call", `"name":"`+name+`","arguments":{"region":"eu"},`)
}

// answerTools plays one list of tools.
func (s *stage) answerTools(p *script, next string, tools ...string) {
	s.Helper()
	request := p.Next(s.T)
	if string(request.Envelope.Method) != "tools/list" {
		s.Fatalf("the process is sent %s, want tools/list", request.Bytes)
	}
	p.Answer(request, `"result":{"tools":[`+strings.Join(tools, ",")+`]`+next+`}`)
}

// M-18: the list of tools is asked for once, all of it, and again when it changed or
// does not have the tool.
func TestTools(t *testing.T) {
	s := newStage(t, nil, func(p *script) { delete(p.Answers, "tools/list") })
	call := s.post(toolCall("two"))
	p := s.process()
	s.answerTools(p, `,"nextCursor":""`, toolText("one", "")) // P-05: this is a cursor
	s.answerTools(p, ``, toolText("two", "Region"))
	call.want(400, `-32020`, "Mcp-Param-Region")

	call = s.post(toolCall("two"), "Mcp-Param-Region", "eu")
	p.Answer(p.Next(t), `"result":{}`)
	call.want(200)
	call = s.post(toolCall("one"))
	p.Answer(p.Next(t), `"result":{}`)
	call.want(200)

	p.Emit(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	call = s.post(toolCall("two"))
	s.answerTools(p, ``, toolText("one", "Region"), toolText("two", ""))
	p.Answer(p.Next(t), `"result":{}`)
	call.want(200)
	s.post(toolCall("one")).want(400, `-32020`)
}

// M-18: no call goes on with a list that has changed, while another waits for the new one.
func TestToolsChangeForAll(t *testing.T) {
	s := newStage(t, nil, func(p *script) { delete(p.Answers, "tools/list") })
	call := s.post(toolCall("one"))
	p := s.process()
	s.answerTools(p, ``, toolText("one", ""))
	p.Answer(p.Next(t), `"result":{}`)
	call.want(200)

	p.Emit(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	first := s.post(toolCall("one"))
	list := p.Next(t)
	second := s.post(toolCall("one"))
	select {
	case request := <-p.Sent:
		t.Errorf("the process is sent %s", request.Bytes)
	case <-time.After(50 * time.Millisecond):
	}
	p.Answer(list, `"result":{"tools":[`+toolText("one", "Region")+`]}`)
	first.want(400, `-32020`)
	second.want(400, `-32020`)
}

// M-24: a tool with an annotation that is invalid is called without a look at headers.
func TestToolsWithInvalidHeaders(t *testing.T) {
	const list = `"l":{"type":"array","items":{"type":"string","x-mcp-header":"L"}}`
	s := newStage(t, nil, func(p *script) {
		p.Answers["tools/list"] = `"result":{"tools":[` + strings.Replace(toolText("x", "Region"), `"properties":{`, `"properties":{`+list+`,`, 1) + `]}`
	})
	call := s.post(toolCall("x"))
	p := s.process()
	p.Answer(p.Next(t), `"result":{}`)
	call.want(200)
}

// A list that does not end is no reason to call no tool.
func TestToolsWithoutEnd(t *testing.T) {
	s := newStage(t, nil, func(p *script) {
		p.Answers["tools/list"] = `"result":{"tools":[` + toolText("x", "Region") + `],"nextCursor":"again"}`
	})
	call := s.post(toolCall("x"))
	p := s.process()
	p.Answer(p.Next(t), `"result":{}`)
	call.want(200)
}
