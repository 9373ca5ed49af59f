package stateless

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/paramheader"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// J-23, S-04: whatever a client sends, what reaches the process is a message that differs
// in id and progress token only, and nothing that looks at it on the way fails.
func FuzzRequest(f *testing.F) {
	for _, text := range []string{
		enveloped("1", "tools/call", `"name":"x","arguments":{"region":"eu","deep":{"n":1e3}},`),
		enveloped(`"a\"b"`, methodListen, `"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a://x"]},`),
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
		if refused := check(header, request); refused != nil && (refused.status < 400 || refused.code == 0) {
			t.Errorf("refused by %+v", refused)
		}
		_ = checkParams(header, request, params)
		c := newCall(nil, request)
		c.number = 18446744073709551615
		message := c.toProcess(request)
		sent := message.Bytes
		there, err := rpc.Scan(sent)
		if diff := cmp.Diff(there, message.Envelope); diff != "" {
			t.Errorf("the envelope of %s (-scanned +moved):\n%s", sent, diff)
		}
		if err != nil || string(there.ID.Of(sent)) != "18446744073709551615" {
			t.Fatalf("the process is sent %s: %v", sent, err)
		}
		back := []rpc.Edit{{Span: there.ID, With: c.id}}
		if len(c.token) > 0 {
			back = append(back, rpc.Edit{Span: there.ProgressToken, With: c.token})
		}
		if got := rpc.Edited(sent, back...); !bytes.Equal(got, body) {
			t.Fatalf("got %s, want %s", got, body)
		}
	})
}
