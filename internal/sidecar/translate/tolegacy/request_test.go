package tolegacy

import (
	"testing"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// B-05, J-23: a request gets an envelope and loses what it may not say; all else passes
// byte for byte.
func TestEnveloped(t *testing.T) {
	const begins = `{"jsonrpc":"2.0","id":1,"method":"tools/call"`
	for name, test := range map[string]struct{ request, want string }{
		"no params":            {begins + `}`, begins + `,"params":{"_meta":{META}}}`},
		"no params, and space": {begins + " }\r\n", begins + ` ,"params":{"_meta":{META}}}  `},
		"empty params":         {begins + `,"params":{}}`, begins + `,"params":{"_meta":{META}}}`},
		"params of blanks":     {begins + `,"params":{ }}`, begins + `,"params":{"_meta":{META} }}`},
		"no _meta":             {begins + `,"params":{"name":"x","arguments":{"n":12345678901234567890,"f":1.0}}}`, begins + `,"params":{"_meta":{META},"name":"x","arguments":{"n":12345678901234567890,"f":1.0}}}`},
		"an empty _meta":       {begins + `,"params":{"name":"x","_meta":{}}}`, begins + `,"params":{"name":"x","_meta":{META}}}`},
		"J-22 other members":   {begins + `,"params":{"_meta":{"progressToken":"t","traceparent":"00-1"},"name":"x"}}`, begins + `,"params":{"_meta":{META,"progressToken":"t","traceparent":"00-1"},"name":"x"}}`},
		"reserved members": {
			begins + `,"params":{"_meta":{"io.modelcontextprotocol/logLevel":"debug","a":1,"io.modelcontextprotocol/related-task":{"taskId":"x"}}}}`,
			begins + `,"params":{"_meta":{META,"a":1}}}`,
		},
		"only reserved members":     {begins + `,"params":{"_meta":{"io.modelcontextprotocol/clientInfo":{}}}}`, begins + `,"params":{"_meta":{META}}}`},
		"U-13 a task":               {begins + `,"params":{"task":{"ttl":1},"name":"x"}}`, begins + `,"params":{"_meta":{META},"name":"x"}}`},
		"U-13 a task and no more":   {begins + `,"params":{"task":{"ttl":1}}}`, begins + `,"params":{"_meta":{META}}}`},
		"U-13 a task, at the end":   {begins + `,"params":{"_meta":{},"name":"x","task":{}}}`, begins + `,"params":{"_meta":{META},"name":"x"}}`},
		"I-05 answers to nothing":   {begins + `,"params":{"inputResponses":{"a":1},"name":"x","requestState":"z"}}`, begins + `,"params":{"_meta":{META},"name":"x"}}`},
		"id and version at the end": {`{"params":{"name":"x"},"method":"m","id":"é","jsonrpc":"2.0"}`, `{"params":{"_meta":{META},"name":"x"},"method":"m","id":"é","jsonrpc":"2.0"}`},
	} {
		t.Run(name, func(t *testing.T) {
			text := []byte(test.request)
			e, err := rpc.Scan(text)
			if err != nil {
				t.Fatal(err)
			}
			got := enveloped(session.Message{Bytes: text, Envelope: e}, metaMember([]byte("META")))
			if string(got) != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// FuzzEnveloped looks for requests that are none any more with an envelope.
func FuzzEnveloped(f *testing.F) {
	f.Add([]byte(`{"name":"x","_meta":{"progressToken":1,"io.modelcontextprotocol/x":{}},"task":{}}`))
	f.Add([]byte(`{"task":[],"requestState":"","_meta":{}}`))
	f.Add([]byte(`{ }`))
	f.Fuzz(func(t *testing.T, params []byte) {
		text := append(append([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`), params...), '}')
		e, err := rpc.Scan(text)
		if err != nil {
			t.Skip()
		}
		meta := metaMember([]byte(`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`))
		got := enveloped(session.Message{Bytes: text, Envelope: e}, meta)
		after, err := rpc.Scan(got)
		if err != nil {
			t.Fatalf("%s became %s: %v", text, got, err)
		}
		if string(after.ProtocolVersion) != "2026-07-28" || string(after.ProgressToken.Of(got)) != string(e.ProgressToken.Of(text)) {
			t.Errorf("%s became %s", text, got)
		}
		c := call{request: session.Message{Bytes: got, Envelope: after}}
		if again := c.retry([]byte(`{}`), []byte(`"z"`)); again.Envelope.Kind != rpc.Request {
			t.Errorf("%s became %s", text, again.Bytes)
		}
	})
}
