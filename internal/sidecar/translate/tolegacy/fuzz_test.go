package tolegacy

import (
	"bytes"
	"testing"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// FuzzAnswers has answers of any server translated. What comes of them is a message, and
// its envelope says where everything is.
func FuzzAnswers(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/x":1,"a":2},"tools":[{"name":"a","inputSchema":{"type":"object"},"outputSchema":{},"icons":[],"execution":{}}],"content":[{"type":"resource_link","uri":"x"},{"type":"audio","data":""}],"structuredContent":[1]}}`,
		`{"result":{ "ttlMs" : 1 , "x":"\"\\" },"id":"a","jsonrpc":"2.0"}`,
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32021,"message":"x","data":{"requiredCapabilities":{"a":{}}}}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := rpc.ScanLenient(text)
		if err != nil || e.Kind != rpc.Response {
			return
		}
		answer := session.Message{Bytes: text, Envelope: e}
		if e.Error.Present() {
			translateError(answer, []byte("1"))
			return
		}
		if text[e.Result.Start] != '{' {
			return
		}
		for _, revision := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"} {
			for _, method := range []string{"tools/list", "tools/call", "prompts/get", "resources/read", "prompts/list", "resources/list"} {
				c := &call{revision: revision, request: session.Message{Envelope: rpc.Envelope{Method: []byte(method)}}}
				own := answer
				own.Bytes = bytes.Clone(text)
				out := c.complete(own)
				again, err := rpc.ScanLenient(out.Bytes)
				if err != nil {
					t.Fatalf("%s -> %s: %v", text, out.Bytes, err)
				}
				if again.ID != out.Envelope.ID || again.Result != out.Envelope.Result {
					t.Fatalf("%s -> %s: envelope %v %v, want %v %v", text, out.Bytes, out.Envelope.ID, out.Envelope.Result, again.ID, again.Result)
				}
			}
		}
	})
}

// FuzzRequests has requests of any client translated. What comes of them is a message of
// the modern revision.
func FuzzRequests(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"task":{},"_meta":{"io.modelcontextprotocol/a":1,"progressToken":2},"name":"x","requestState":1}}`,
		`{"params":{ "task" : 1 },"id":1,"jsonrpc":"2.0","method":"x"}`,
		`{"id":1,"jsonrpc":"2.0","method":"x"  }`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := rpc.Scan(text)
		if err != nil || e.Kind != rpc.Request {
			return
		}
		out := enveloped(session.Message{Bytes: text, Envelope: e}, metaMember([]byte(`"io.modelcontextprotocol/protocolVersion":"2026-07-28"`)))
		again, err := rpc.ScanLenient(out)
		if err != nil {
			t.Fatalf("%s -> %s: %v", text, out, err)
		}
		if string(again.ProtocolVersion) != "2026-07-28" {
			t.Fatalf("%s -> %s: no version", text, out)
		}
	})
}
