package stateless

import (
	"testing"

	"github.com/slipway-mcp/slipway/internal/paramheader"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// J-23: whatever a client sends, no check of it fails.
func FuzzCheck(f *testing.F) {
	for _, text := range []string{
		enveloped("1", "tools/call", `"name":"x","arguments":{"region":"eu","deep":{"n":1e3}},`),
		enveloped(`"a\"b"`, subscription.MethodListen, `"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a://x"]},`),
		enveloped("-0", "tasks/get", `"taskId":"é",`),
		`{"params":{"_meta":{"progressToken":"t","io.modelcontextprotocol/logLevel":"info","io.modelcontextprotocol/protocolVersion":"v9"}},"id":7,"method":"m","jsonrpc":"2.0"}`,
	} {
		f.Add([]byte(text))
	}
	params := []paramheader.Param{{Path: []string{"region"}, Header: "Mcp-Param-Region"}, {Path: []string{"deep", "n"}, Header: "Mcp-Param-N"}}
	f.Fuzz(func(t *testing.T, body []byte) {
		envelope, err := rpc.Scan(body)
		if err != nil || envelope.Kind != rpc.Request {
			return
		}
		request := session.Message{Bytes: body, Envelope: envelope}
		header := headers(request)
		if refused := check(t.Context(), header, &request, noTools{}); refused != nil && (refused.status < 400 || refused.code == 0) {
			t.Errorf("refused by %+v", refused)
		}
		_ = checkParams(header, &request, params)
	})
}
