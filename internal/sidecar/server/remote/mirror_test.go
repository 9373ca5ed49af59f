package remote

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/paramheader"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
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
		header := known.mirror(session.Message{Bytes: text, Envelope: envelope}, http.Header{})
		got := "-"
		if values, ok := header[front.HeaderName]; ok {
			got = values[0]
		}
		if got != want || header.Get(front.HeaderMethod) != method || header.Get(headerRevision) != "2026-07-28" {
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
		if values, ok := known.mirror(session.Message{Bytes: text, Envelope: envelope}, http.Header{})["Mcp-Param-A"]; ok {
			got = values[0]
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", params, got, want)
		}
	}
}

// What is learned is forgotten when a tool has no more headers.
func TestMirroredToolsAreForgotten(t *testing.T) {
	var known mirroredTools
	list := func(name, header string) []byte {
		return fmt.Appendf(nil, `{"tools":[{"name":%q,"inputSchema":{"properties":{"a":{"type":"string",%q:"A"}}}}]}`, name, header)
	}
	for _, name := range []string{"a", "b", "c"} {
		known.learn(list(name, paramheader.Annotation))
	}
	known.learn(list("a", "x-other"))
	if n := known.Len(); n != 2 {
		t.Errorf("%d tools are known", n)
	}
	known.learn([]byte(`{"tools":[{"name":"b","inputSchema":{"x-mcp-header":"","properties":{"a":{"type":"string","x-mcp-header":"A"}}}}]}`))
	if n := known.Len(); n != 1 {
		t.Errorf("%d tools are known, with one that became invalid (M-24)", n)
	}
	known.learn([]byte(`{"tools":"` + paramheader.Annotation + `"}`))
	if n := known.Len(); n != 1 {
		t.Errorf("%d tools are known, after a list that cannot be read", n)
	}
}
