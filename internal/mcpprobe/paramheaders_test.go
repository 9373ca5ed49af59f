package mcpprobe

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestP08ToolsWithBadHeaderAnnotations(t *testing.T) {
	for name, test := range map[string]struct{ schema, reason string }{
		"none":              {`{"type":"object"}`, ""},
		"M-24 good":         {`{"properties":{"r":{"type":"string","x-mcp-header":"Region"}}}`, ""},
		"M-24 not a token":  {`{"properties":{"r":{"type":"string","x-mcp-header":"a b"}}}`, "x-mcp-header is not the name of a header"},
		"M-24 not in reach": {`{"$defs":{"d":{"type":"string","x-mcp-header":"A"}}}`, "x-mcp-header stands where no argument can be found for it"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, modern := range []bool{true, false} {
				b := newBuilder(Limits{})
				b.modern = modern
				count := 0
				if err := b.add(keepTool, methodTools, []byte(`[{"name":"a","inputSchema":`+test.schema+`}]`), &count); err != nil {
					t.Fatal(err)
				}
				tools, excluded := 1, []Excluded{}
				if modern && test.reason != "" {
					tools, excluded = 0, []Excluded{{List: methodTools, Name: "a", Reason: test.reason}}
				}
				if diff := cmp.Diff(excluded, b.catalog.Excluded); diff != "" || len(b.catalog.Tools) != tools {
					t.Errorf("newer era %t: %d tools, excluded (-want +got):\n%s", modern, len(b.catalog.Tools), diff)
				}
			}
		})
	}
}
