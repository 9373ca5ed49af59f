package stateless

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

func encoded(text string) string {
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(text)) + "?="
}

func TestCheck(t *testing.T) {
	type want struct {
		Status, Code int
		Data         string
	}
	var (
		passes  = want{}
		header  = want{400, -32020, ""}
		params  = want{400, -32602, ""}
		unknown = want{404, -32601, ""}
	)
	versions := func(version string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"` + version + `"}}}`
	}
	withMeta := func(members string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"` + members + `}}}`
	}
	list := enveloped("1", "tools/list", "")
	tool := enveloped("1", "tools/call", `"name":"echo",`)
	odd := enveloped("1", "prompts/get", `"name":"Grüße ",`)
	looks := enveloped("1", "tools/call", `"name":"=?base64?eA==?=",`)
	resource := enveloped("1", "resources/read", `"uri":"a://b",`)
	for name, test := range map[string]struct {
		body   string
		others []string
		want   want
	}{
		"a list":                   {list, nil, passes},
		"M-08 a session is none":   {list, []string{"Mcp-Session-Id", "x", "Last-Event-Id", "1"}, passes},
		"M-11 no version header":   {list, []string{"MCP-Protocol-Version", ""}, header},
		"M-11 another version":     {list, []string{"MCP-Protocol-Version", "2025-11-25"}, header},
		"M-11 wins over L-22":      {versions("v9"), []string{"MCP-Protocol-Version", "v8"}, header},
		"L-22 unknown":             {versions("v999.0.0"), nil, want{400, -32022, `{"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":"v999.0.0"}`}},
		"L-22 wins over M-12":      {versions("v9"), []string{"Mcp-Method", ""}, want{400, -32022, `{"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":"v9"}`}},
		"B-01 an older one":        {versions("2025-11-25"), nil, want{400, -32022, `{"supported":["2026-07-28"],"requested":"2025-11-25"}`}},
		"L-21 no capabilities":     {withMeta(``), nil, params},
		"L-21 capabilities, ill":   {withMeta(`,"io.modelcontextprotocol/clientCapabilities":[]`), nil, params},
		"L-21 capabilities, twice": {withMeta(`,"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientCapabilities":{}`), nil, params},
		"L-21 wins over M-12":      {withMeta(``), []string{"Mcp-Method", ""}, params},
		"L-21 no clientInfo":       {withMeta(`,"io.modelcontextprotocol/clientCapabilities":{}`), nil, passes},
		"M-12 no method":           {list, []string{"Mcp-Method", ""}, header},
		"M-12 another method":      {list, []string{"Mcp-Method", "tools/call"}, header},
		"M-12 another case":        {list, []string{"Mcp-Method", "Tools/List"}, header},
		"M-14 blanks around it":    {list, []string{"Mcp-Method", " tools/list\t"}, passes},
		"M-14 header in capitals":  {tool, []string{"MCP-NAME", "echo"}, passes},
		"M-13 tool":                {tool, nil, passes},
		"M-13 no name":             {tool, []string{"Mcp-Name", ""}, header},
		"M-13 another name":        {tool, []string{"Mcp-Name", "ECHO"}, header},
		"M-13 resource":            {resource, nil, passes},
		"M-13 another resource":    {resource, []string{"Mcp-Name", "a://c"}, header},
		"M-13 task":                {enveloped("1", "tasks/get", `"taskId":"t",`), nil, passes},
		"M-13 another task":        {enveloped("1", "tasks/cancel", `"taskId":"t",`), []string{"Mcp-Name", "u"}, header},
		"M-13 nothing to name":     {enveloped("1", "tools/call", ""), nil, passes},
		"M-13 header only":         {enveloped("1", "tools/call", ""), []string{"Mcp-Name", "echo"}, header},
		"M-13 no string":           {enveloped("1", "tools/call", `"name":7,`), []string{"Mcp-Name", "7"}, header},
		"M-13 elsewhere ignored":   {list, []string{"Mcp-Name", "x"}, passes},
		"M-15 Base64":              {odd, []string{"Mcp-Name", encoded("Grüße ")}, passes},
		"M-15 Base64 of another":   {odd, []string{"Mcp-Name", encoded("Grüße")}, header},
		"M-15 bad Base64":          {tool, []string{"Mcp-Name", "=?base64?%%?="}, header},
		"M-15 no padding":          {tool, []string{"Mcp-Name", "=?base64?ZWNobw?="}, header},
		"M-15 marks in capitals":   {tool, []string{"Mcp-Name", strings.ToUpper("=?base64?") + "ZWNobw==?="}, header},
		"M-15 one mark is literal": {tool, []string{"Mcp-Name", "=?base64?ZWNobw=="}, header},
		"M-16 name like the marks": {looks, []string{"Mcp-Name", encoded("=?base64?eA==?=")}, passes},
		"M-16 not encoded twice":   {looks, nil, header},
		"M-13 raw UTF-8":           {enveloped("1", "prompts/get", `"name":"Grüße",`), nil, passes},
		"M-21 initialize":          {enveloped("1", "initialize", ""), nil, unknown},
		"M-21 ping":                {enveloped("1", "ping", ""), nil, unknown},
		"M-21 setLevel":            {enveloped("1", "logging/setLevel", ""), nil, unknown},
		"M-21 subscribe":           {enveloped("1", "resources/subscribe", ""), nil, unknown},
		"M-21 unsubscribe":         {enveloped("1", "resources/unsubscribe", ""), nil, unknown},
		"M-12 wins over M-21":      {enveloped("1", "ping", ""), []string{"Mcp-Method", "pong"}, header},
		"J-19 left to the server":  {enveloped("1", "no/such", ""), nil, passes},
	} {
		t.Run(name, func(t *testing.T) {
			request := scanned(test.body)
			got := passes
			if refused := check(t.Context(), headers(request, test.others...), &request, noTools{}); refused != nil {
				got = want{refused.status, refused.code, string(refused.data)}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A header that is there twice says two things, and the server may read either.
func TestCheckRepeatedHeaders(t *testing.T) {
	request := scanned(enveloped("1", "tools/call", `"name":"echo",`))
	for _, name := range []string{"MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"} {
		header := headers(request)
		header.Add(name, header.Get(name))
		if refused := check(t.Context(), header, &request, noTools{}); refused == nil || refused.code != rpc.CodeHeaderMismatch {
			t.Errorf("%s twice: %+v", name, refused)
		}
	}
}

func TestStatusOf(t *testing.T) {
	for answer, want := range map[string]int{
		`{"jsonrpc":"2.0","id":1,"result":{"code":-32601}}`:                               200,
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":""}}`:                   404,
		`{"jsonrpc":"2.0","id":1,"error":{"message":"","code":-32020}}`:                   400,
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32021,"message":"","data":{}}}`:         400,
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":""}}`:                   400,
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":""}}`:                   200,
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":""}}`:                   200,
		`{"jsonrpc":"2.0","id":1,"error":{"code":0,"message":"","data":{"code":-32601}}}`: 200,
	} {
		message := scanned(answer)
		if got := statusOf(rpc.ErrorCode(message.Bytes, &message.Envelope)); got != want {
			t.Errorf("%s: %d, want %d", answer, got, want)
		}
	}
}
