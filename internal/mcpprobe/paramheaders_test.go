package mcpprobe

import "testing"

func TestP08ToolsWithBadHeaderAnnotations(t *testing.T) {
	for name, test := range map[string]struct {
		schema string
		valid  bool
	}{
		"none":                        {`{"type":"object"}`, true},
		"M-24 good":                   {`{"properties":{"r":{"type":"string","x-mcp-header":"Region"}}}`, true},
		"M-24 nested by properties":   {`{"properties":{"o":{"type":"object","properties":{"r":{"type":"boolean","x-mcp-header":"R"}}}}}`, true},
		"a property of that name":     {`{"properties":{"x-mcp-header":{"type":"string"}}}`, true},
		"data, not schema":            {`{"properties":{"r":{"type":"object","default":{"x-mcp-header":1}}}}`, true},
		"M-24 empty":                  {`{"properties":{"r":{"type":"string","x-mcp-header":""}}}`, false},
		"M-24 not a text":             {`{"properties":{"r":{"type":"string","x-mcp-header":1}}}`, false},
		"M-24 not a token":            {`{"properties":{"r":{"type":"string","x-mcp-header":"a b"}}}`, false},
		"M-24 line break":             {`{"properties":{"r":{"type":"string","x-mcp-header":"a\r\nb"}}}`, false},
		"M-24 on a number":            {`{"properties":{"r":{"type":"number","x-mcp-header":"A"}}}`, false},
		"M-24 on the whole":           {`{"type":"object","x-mcp-header":"A"}`, false},
		"M-24 twice, in another case": {`{"properties":{"r":{"type":"string","x-mcp-header":"A"},"s":{"type":"string","x-mcp-header":"a"}}}`, false},
		"M-24 through items":          {`{"properties":{"r":{"type":"array","items":{"type":"string","x-mcp-header":"A"}}}}`, false},
		"M-24 through composition":    {`{"anyOf":[{"properties":{"r":{"type":"string","x-mcp-header":"A"}}}]}`, false},
		"M-24 through a definition":   {`{"$defs":{"d":{"type":"string","x-mcp-header":"A"}}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, modern := range []bool{true, false} {
				b := newBuilder(Limits{})
				b.modern = modern
				count := 0
				if err := b.add(keepTool, methodTools, []byte(`[{"name":"a","inputSchema":`+test.schema+`}]`), &count); err != nil {
					t.Fatal(err)
				}
				if kept := len(b.catalog.Tools) == 1; kept != (test.valid || !modern) {
					t.Errorf("newer era %t: kept %t, excluded %v", modern, kept, b.catalog.Excluded)
				}
			}
		})
	}
}
