package edge

import (
	"net/http"
	"testing"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

func TestContradiction(t *testing.T) {
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo",` + meta + `}}`
	const version = "MCP-Protocol-Version"
	for name, test := range map[string]struct {
		message string
		header  http.Header
		want    string
	}{
		"no headers":             {call, http.Header{}, ""},
		"all headers":            {call, http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"echo"}}, ""},
		"blanks":                 {call, http.Header{"Mcp-Method": {" tools/call\t"}, "Mcp-Name": {"\techo "}}, ""},
		"another version":        {call, http.Header{"Mcp-Protocol-Version": {"2025-11-25"}}, version},
		"an empty version":       {call, http.Header{"Mcp-Protocol-Version": {""}}, version},
		"two versions":           {call, http.Header{"Mcp-Protocol-Version": {"2026-07-28", "2026-07-28"}}, version},
		"another method":         {call, http.Header{"Mcp-Method": {"tools/list"}}, "Mcp-Method"},
		"another case":           {call, http.Header{"Mcp-Method": {"Tools/Call"}}, "Mcp-Method"},
		"two methods":            {call, http.Header{"Mcp-Method": {"tools/call", "tools/list"}}, "Mcp-Method"},
		"another name":           {call, http.Header{"Mcp-Name": {"secret"}}, "Mcp-Name"},
		"two names":              {call, http.Header{"Mcp-Name": {"echo", "secret"}}, "Mcp-Name"},
		"invalid Base64":         {call, http.Header{"Mcp-Name": {"=?base64?*?="}}, "Mcp-Name"},
		"a name and none":        {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + meta + `}}`, http.Header{"Mcp-Name": {"echo"}}, "Mcp-Name"},
		"a name of a list":       {`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + meta + `}}`, http.Header{"Mcp-Name": {"echo"}}, "Mcp-Name"},
		"a URI":                  {`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"d:/a",` + meta + `}}`, http.Header{"Mcp-Name": {"d:/a"}}, ""},
		"another URI":            {`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"d:/a",` + meta + `}}`, http.Header{"Mcp-Name": {"d:/b"}}, "Mcp-Name"},
		"a task":                 {`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"t",` + meta + `}}`, http.Header{"Mcp-Name": {"t"}}, ""},
		"another task":           {`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"t",` + meta + `}}`, http.Header{"Mcp-Name": {"u"}}, "Mcp-Name"},
		"of a notification, too": {`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{` + meta + `}}`, http.Header{"Mcp-Method": {"tools/call"}}, "Mcp-Method"},
	} {
		t.Run(name, func(t *testing.T) {
			envelope, err := rpc.Scan([]byte(test.message))
			if err != nil {
				t.Fatal(err)
			}
			if got := contradiction(test.header, &session.Message{Bytes: []byte(test.message), Envelope: envelope}); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
