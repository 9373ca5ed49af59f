package paramheader

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func object(properties string) string { return `{"type":"object","properties":{` + properties + `}}` }

// deep is a property so many names from the outermost schema.
func deep(names int, property string) string {
	return strings.Repeat(`{"properties":{"p":`, names) + property + strings.Repeat(`}}`, names)
}

func TestParams(t *testing.T) {
	const (
		ok     = `"ok":{"type":"string","x-mcp-header":"Ok"}`
		marked = `{"type":"string","x-mcp-header":"A"}`
	)
	onlyOk := []Param{{[]string{"ok"}, "Mcp-Param-Ok"}}
	for name, test := range map[string]struct {
		schema string
		want   []Param
	}{
		"none": {object(`"s":{"type":"string"}`), nil},
		"M-24 kinds": {object(`"b":{"type":"boolean","x-mcp-header":"C"},"i":{"type":"integer","x-mcp-header":"my-n"},"s":{"type":"string","x-mcp-header":"a"}`),
			[]Param{{[]string{"b"}, "Mcp-Param-C"}, {[]string{"i"}, "Mcp-Param-My-N"}, {[]string{"s"}, "Mcp-Param-A"}}},
		"M-24 every character of a token": {object("\"s\":{\"type\":\"string\",\"x-mcp-header\":\"aZ09!#$%&'*+-.^_`|~\"}"),
			[]Param{{[]string{"s"}, "Mcp-Param-Az09!#$%&'*+-.^_`|~"}}},
		"M-24 nested":          {object(`"o":` + object(ok)), []Param{{[]string{"o", "ok"}, "Mcp-Param-Ok"}}},
		"nested, and then not": {object(`"a":` + object(`"b":{"type":"string","x-mcp-header":"B"}`) + `,` + ok), []Param{{[]string{"a", "b"}, "Mcp-Param-B"}, onlyOk[0]}},
		"deep, side by side": {deep(3, object(`"a":`+marked+`,`+ok)),
			[]Param{{[]string{"p", "p", "p", "a"}, "Mcp-Param-A"}, {[]string{"p", "p", "p", "ok"}, "Mcp-Param-Ok"}}},
		"as deep as can be":        {deep(maxDepth, marked), []Param{{strings.Split(strings.Repeat("p", maxDepth), ""), "Mcp-Param-A"}}},
		"deeper without":           {object(ok + `,"p":` + deep(maxDepth, `{"type":"string"}`)), onlyOk},
		"a property of that name":  {object(`"x-mcp-header":{"type":"string"}`), nil},
		"data, not schema":         {object(ok + `,"r":{"type":"object","default":{"x-mcp-header":1},"enum":[` + marked + `]}`), onlyOk},
		"true is a schema":         {object(ok + `,"t":true`), onlyOk},
		"odd properties":           {object(ok + `,"o":{"properties":[` + marked + `]}`), onlyOk},
		"keywords in other letter": {object(ok + `,"n":{"type":"number","X-MCP-Header":"N"}`), onlyOk},
		"a number beyond Go's":     {object(ok + `,"n":{"type":"number","maximum":1e999}`), onlyOk},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Params(json.RawMessage(test.schema))
			if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// M-24: one annotation that is invalid is enough. The words are those of catalogs.
func TestInvalidParams(t *testing.T) {
	const (
		marked = `{"type":"string","x-mcp-header":"A"}`
		place  = "x-mcp-header stands where no argument can be found for it"
		kind   = "x-mcp-header is on something that is neither string, integer nor boolean"
		token  = "x-mcp-header is not the name of a header"
	)
	for name, test := range map[string]struct{ schema, want string }{
		"on a number":            {object(`"a":{"type":"number","x-mcp-header":"A"}`), kind},
		"on an object":           {object(`"a":{"type":"object","x-mcp-header":"A"}`), kind},
		"on two kinds":           {object(`"a":{"type":["string","null"],"x-mcp-header":"A"}`), kind},
		"on no kind":             {object(`"a":{"x-mcp-header":"A"}`), kind},
		"empty":                  {object(`"a":{"type":"string","x-mcp-header":""}`), token},
		"null":                   {object(`"a":{"type":"string","x-mcp-header":null}`), token},
		"not a text":             {object(`"a":{"type":"string","x-mcp-header":1}`), token},
		"blank":                  {object(`"a":{"type":"string","x-mcp-header":"a b"}`), token},
		"colon":                  {object(`"a":{"type":"string","x-mcp-header":"a:"}`), token},
		"at":                     {object(`"a":{"type":"string","x-mcp-header":"@"}`), token},
		"not ASCII":              {object(`"a":{"type":"string","x-mcp-header":"ä"}`), token},
		"line break":             {object(`"a":{"type":"string","x-mcp-header":"a\r\nb"}`), token},
		"twice, by any case":     {object(`"a":` + marked + `,"b":{"type":"string","x-mcp-header":"a"}`), `x-mcp-header "a" stands twice`},
		"twice, nested":          {object(`"a":` + marked + `,"b":` + object(`"a":`+marked)), `x-mcp-header "A" stands twice`},
		"on the whole":           {`{"type":"object","x-mcp-header":"A"}`, place},
		"on a whole that is one": {marked, place},
		"through items":          {object(`"l":{"type":"array","items":` + marked + `}`), place},
		"through items, nested":  {object(`"l":{"type":"array","items":` + object(`"a":`+marked) + `}`), place},
		"through many items":     {object(`"l":{"type":"array","items":[true,` + marked + `]}`), place},
		"through prefixItems":    {object(`"l":{"type":"array","prefixItems":[` + marked + `]}`), place},
		"through anyOf":          {`{"anyOf":[` + object(`"a":`+marked) + `]}`, place},
		"through a condition":    {`{"if":true,"then":` + object(`"a":`+marked) + `}`, place},
		"through a definition":   {`{"$defs":{"d":` + marked + `}}`, place},
		"through a pattern":      {`{"patternProperties":{".":` + marked + `}}`, place},
		"through any name":       {`{"additionalProperties":` + marked + `}`, place},
		"too deep":               {deep(maxDepth+1, marked), "x-mcp-header lies too deep"},
		"no JSON":                {`x-mcp-header`, "read input schema: invalid character 'x' looking for beginning of value"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, schema := range []string{test.schema, strings.Replace(test.schema, `"properties":{`, `"properties":{"Ok":{"type":"string","x-mcp-header":"Ok"},`, 1)} {
				got, err := Params(json.RawMessage(schema))
				if got != nil || err == nil || err.Error() != test.want {
					t.Errorf("%s: got %v, %v, want %s", schema, got, err, test.want)
				}
			}
		})
	}
}

// The reason that is found does not depend on chance.
func TestParamsGoByTheOrderOfNames(t *testing.T) {
	schema := object(`"z":{"type":"string","x-mcp-header":""},"m":{"type":"string","x-mcp-header":"a b"},"a":{"type":"number","x-mcp-header":"A"}`)
	for range 20 {
		if _, err := Params(json.RawMessage(schema)); err == nil || err.Error() != errKind.Error() {
			t.Fatalf("got %v, want %v", err, errKind)
		}
	}
}

// Nearly no tool has such headers, so to find none has to cost nothing.
func TestToolsWithoutHeadersCostNothing(t *testing.T) {
	schema := json.RawMessage(object(`"s":{"type":"string"}`))
	if n := testing.AllocsPerRun(100, func() { _, _ = Params(schema) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestArgument(t *testing.T) {
	p := Param{Path: []string{"a", "b"}}
	for arguments, want := range map[string]string{
		`{"a":{"b":"x"}}`: `"x"`, `{"a":{"b":""}}`: `""`, `{ "a" : { "b" : 1.0 } }`: `1.0`, `{"a":{"b":{"c":1}}}`: `{"c":1}`,
		`{"a":{"b":null}}`: "", `{"a":null}`: "", `{"a":{}}`: "", `{"a":{"c":1}}`: "", `{"a":7}`: "", `{"a":[{"b":1}]}`: "", `{}`: "", `null`: "", ``: "",
	} {
		if got, err := p.Argument(json.RawMessage(arguments)); err != nil || string(got) != want || want == "" && got != nil {
			t.Errorf("%s: got %s, %v, want %s", arguments, got, err, want)
		}
	}
}

// Which of two arguments a server acts on depends on its parser, so none is taken.
func TestArgumentsThatParsersDisagreeOn(t *testing.T) {
	p := Param{Path: []string{"a", "b"}}
	for _, arguments := range []string{
		`{"a":{"b":1,"b":2}}`, `{"a":{"b":1},"a":{"b":2}}`, `{"a":{"b":1,"B":2}}`, `{"a":{"b":1,"\u0062":2}}`, `{"a":{"b":1,"b\u0000":2}}`, `{"a":{"b":1,"b ":2}}`,
	} {
		if got, err := p.Argument(json.RawMessage(arguments)); err == nil {
			t.Errorf("%s: got %s, want an error", arguments, got)
		}
	}
}
