package sessionless

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// S-04: whatever a client sends, the process gets a message that differs in id and progress
// token only.
func FuzzRequest(f *testing.F) {
	for _, text := range []string{
		enveloped("1", "tools/call", `"name":"x","arguments":{"region":"eu","deep":{"n":1e3}},`),
		enveloped(`"a\"b"`, methodListen, `"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a://x"]},`),
		enveloped("-0", "tasks/get", `"taskId":"é",`),
		`{"params":{"_meta":{"progressToken":"t","io.modelcontextprotocol/logLevel":"info","io.modelcontextprotocol/protocolVersion":"v9"}},"id":7,"method":"m","jsonrpc":"2.0"}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		envelope, err := rpc.Scan(body)
		if err != nil || envelope.Kind != rpc.Request {
			return
		}
		request := session.Message{Bytes: body, Envelope: envelope}
		c := newCall(nil, request)
		c.number = 18446744073709551615
		var edits rpc.Edits
		c.renumber(&edits, request)
		sent, moved := edits.Edited(request.Bytes), edits.MovedEnvelope(request.Envelope)
		there, err := rpc.Scan(sent)
		if diff := cmp.Diff(there, moved); diff != "" {
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
