package upstream

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/wire"
)

// M-16: what a header may not have as it is.
func TestEncoded(t *testing.T) {
	for text, want := range map[string]string{
		"plain": "plain", "a b~!": "a b~!", "": "", "=?base64?": "=?base64?", "x=?base64?YQ==?=": "x=?base64?YQ==?=",
		" a": "=?base64?IGE=?=", "a\t": "=?base64?YQk=?=", "a\r\nb": "=?base64?YQ0KYg==?=", "ö": "=?base64?w7Y=?=", "\x7f": "=?base64?fw==?=",
		"=?base64?YQ==?=": "=?base64?PT9iYXNlNjQ/WVE9PT89?=",
	} {
		if got := encoded(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

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
		envelope, err := wire.Scan(text)
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

// M-17: what an argument is in a header.
func TestValueAt(t *testing.T) {
	for arguments, want := range map[string]string{
		`{"a":{"b":"x"}}`: "x", `{"a":{"b":""}}`: "", `{"a":{"b":true}}`: "true", `{"a":{"b":-7}}`: "-7", `{"a":{"b":7.0}}`: "7", `{"a":{"b":1e3}}`: "1000",
		`{"a":{"b":12345678901234567890}}`: "12345678901234567890",
		`{"a":{"b":1.5}}`:                  "-", `{"a":{"b":1e300}}`: "-", `{"a":{"b":null}}`: "-", `{"a":{"b":[1]}}`: "-", `{"a":{"b":{}}}`: "-",
		`{"a":{}}`: "-", `{"a":7}`: "-", `{}`: "-", `null`: "-", ``: "-",
	} {
		got, ok := valueAt(json.RawMessage(arguments), []string{"a", "b"})
		if !ok {
			got = "-"
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", arguments, got, want)
		}
	}
}

// M-24: which headers a schema has; one that is invalid leaves none.
func TestMirroredIn(t *testing.T) {
	const valid = `"ok":{"type":"string","x-mcp-header":"Ok"}`
	deep := strings.Repeat(`{"properties":{"a":`, schemaDepth+1) + `{"type":"string","x-mcp-header":"X"}` + strings.Repeat("}}", schemaDepth+1)
	for name, test := range map[string]struct {
		schema string
		want   []string
	}{
		"none":               {`{"properties":{"a":{"type":"string"}}}`, nil},
		"some":               {`{"properties":{` + valid + `,"n":{"type":"integer","x-mcp-header":"my-n"},"b":{"type":"boolean","x-mcp-header":"B"}}}`, []string{"Mcp-Param-B b", "Mcp-Param-My-N n", "Mcp-Param-Ok ok"}},
		"nested":             {`{"properties":{"o":{"properties":{` + valid + `}}}}`, []string{"Mcp-Param-Ok o.ok"}},
		"behind items":       {`{"properties":{` + valid + `,"l":{"items":{"type":"string","x-mcp-header":"L"}}}}`, []string{"Mcp-Param-Ok ok"}},
		"not a schema":       {`{"properties":{` + valid + `,"x":true}}`, []string{"Mcp-Param-Ok ok"}},
		"of the whole":       {`{"x-mcp-header":"A","properties":{` + valid + `}}`, []string{"Mcp-Param-Ok ok"}},
		"number":             {`{"properties":{` + valid + `,"a":{"type":"number","x-mcp-header":"A"}}}`, nil},
		"no type":            {`{"properties":{` + valid + `,"a":{"x-mcp-header":"A"}}}`, nil},
		"no token":           {`{"properties":{` + valid + `,"a":{"type":"string","x-mcp-header":"a\r\nb"}}}`, nil},
		"empty":              {`{"properties":{` + valid + `,"a":{"type":"string","x-mcp-header":""}}}`, nil},
		"no text":            {`{"properties":{` + valid + `,"a":{"type":"string","x-mcp-header":7}}}`, nil},
		"twice, by any case": {`{"properties":{` + valid + `,"a":{"type":"string","x-mcp-header":"oK"}}}`, nil},
		"too deep":           {deep, nil},
		"no JSON":            {`x-mcp-header`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, m := range mirroredIn(json.RawMessage(test.schema)) {
				got = append(got, m.header+" "+strings.Join(m.path, "."))
			}
			slices.Sort(got)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What is learnt is bounded, and forgotten when a tool has no more headers.
func TestMirroredToolsAreBounded(t *testing.T) {
	var known mirroredTools
	list := func(name, header string) []byte {
		return fmt.Appendf(nil, `{"tools":[{"name":%q,"inputSchema":{"properties":{"a":{"type":"string",%q:"A"}}}}]}`, name, header)
	}
	for i := range mostTools + 10 {
		known.learn(list(strconv.Itoa(i), annotation))
	}
	if n := len(known.params); n != 10 {
		t.Errorf("%d tools are known", n)
	}
	last := strconv.Itoa(mostTools + 9)
	known.learn(list(last, "x-other"))
	if known.params[last] != nil || len(known.params) != 9 {
		t.Errorf("%d tools are known", len(known.params))
	}
	known.learn([]byte(`{"tools":"` + annotation + `"}`))
}
