package upstream

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/paramheader"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// M-13: what a request is about.
func TestMirrorNames(t *testing.T) {
	for params, want := range map[string]string{
		`tools/call {"name":"a\u0062"}`:    "ab",
		`prompts/get {"name":"p"}`:         "p",
		`resources/read {"uri":"x://y z"}`: "x://y z",
		`tasks/get {"taskId":"t"}`:         "t",
		`tasks/get {"taskId":7}`:           "-",
		`tools/call {"uri":"x"}`:           "-",
		`tools/list {"name":"x"}`:          "-",
	} {
		method, params, _ := strings.Cut(params, " ")
		text := []byte(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params))
		envelope, err := rpc.Scan(text)
		if err != nil {
			t.Fatal(err)
		}
		var known mirroredTools
		header := known.mirror(session.Message{Bytes: text, Envelope: envelope})
		got := "-"
		if values, ok := header[headerName]; ok {
			got = values[0]
		}
		if got != want || header.Get(headerMethod) != method || header.Get(headerRevision) != "2026-07-28" {
			t.Errorf("%s: got %q, want %q; %v", text, got, want, header)
		}
	}
}

// M-17: no header repeats arguments that parsers disagree on.
func TestMirrorArguments(t *testing.T) {
	var known mirroredTools
	known.learn([]byte(`{"tools":[{"name":"t","inputSchema":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}]}`))
	for params, want := range map[string]string{
		`{"name":"t","arguments":{"a":"x"}}`:                       "x",
		`{"name":"t","arguments":{"a":" x"}}`:                      "=?base64?IHg=?=",
		`{"name":"t","arguments":{"a":null}}`:                      "-",
		`{"name":"t"}`:                                             "-",
		`{"name":"u","arguments":{"a":"x"}}`:                       "-",
		`{"name":"t","arguments":{"a":"x"},"Arguments":{"a":"y"}}`: "-",
	} {
		text := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`)
		envelope, err := rpc.Scan(text)
		if err != nil {
			t.Fatal(err)
		}
		got := "-"
		if values, ok := known.mirror(session.Message{Bytes: text, Envelope: envelope})["Mcp-Param-A"]; ok {
			got = values[0]
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", params, got, want)
		}
	}
}

// What is learnt is bounded, and forgotten when a tool has no more headers.
func TestMirroredToolsAreBounded(t *testing.T) {
	var known mirroredTools
	list := func(name, header string) []byte {
		return fmt.Appendf(nil, `{"tools":[{"name":%q,"inputSchema":{"properties":{"a":{"type":"string",%q:"A"}}}}]}`, name, header)
	}
	for i := range mostTools + 10 {
		known.learn(list(strconv.Itoa(i), paramheader.Annotation))
	}
	if n := len(known.params); n != 10 {
		t.Errorf("%d tools are known", n)
	}
	last := strconv.Itoa(mostTools + 9)
	known.learn(list(last, "x-other"))
	if known.params[last] != nil || len(known.params) != 9 {
		t.Errorf("%d tools are known", len(known.params))
	}
	known.learn([]byte(`{"tools":[{"name":"` + strconv.Itoa(mostTools) + `","inputSchema":{"x-mcp-header":"","properties":{"a":{"type":"string","x-mcp-header":"A"}}}}]}`))
	if len(known.params) != 8 {
		t.Errorf("%d tools are known, with one that became invalid (M-24)", len(known.params))
	}
	known.learn([]byte(`{"tools":"` + paramheader.Annotation + `"}`))
}
