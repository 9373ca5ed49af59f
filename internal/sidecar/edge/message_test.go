package edge

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

const note = `{"jsonrpc":"2.0","method":"n"}`

// J-13: a client learns first whether its body is JSON at all.
func TestNotScanned(t *testing.T) {
	for body, want := range map[string]string{
		`{oops`:     `"error":{"code":-32700,"message":"the body is not JSON: want a string (at byte 1)"}`,
		``:          `"error":{"code":-32700,"message":"the body is not JSON: want a value (at byte 0)"}`,
		note + `{}`: `"error":{"code":-32700,"message":"the body is not JSON: more than one value (at byte 30)"}`,
		`{}`:        `"error":{"code":-32600,"message":"this is no JSON-RPC message: jsonrpc must be \"2.0\" (at byte 0)"}`,
		`{"a":1}`:   `"error":{"code":-32600,"message":"this is no JSON-RPC message: jsonrpc must be \"2.0\" (at byte 0)"}`,
		`{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}`: `"error":{"code":-32600,"message":"the member \"id\" stands twice (at byte 24)"}`,
		`{"jsonrpc":"2.0","ID":1,"method":"m"}`:        `"error":{"code":-32600,"message":"the member \"id\" is spelled in a way that parsers disagree on (at byte 17)"}`,
	} {
		_, err := rpc.Scan([]byte(body))
		if err == nil {
			t.Errorf("%s is a message", body)
			continue
		}
		w := httptest.NewRecorder()
		notScanned(err).write(w, nil)
		if got := w.Body.String(); w.Code != 400 || got != `{"jsonrpc":"2.0",`+want+`}` {
			t.Errorf("%s: got %d: %s\nwant %s", body, w.Code, got, want)
		}
	}
}

func TestScanBatch(t *testing.T) {
	for name, test := range map[string]struct {
		body, want string
		messages   int
	}{
		"one":                     {`[` + note + `]`, "", 1},
		"as many as may be":       {`[` + note + strings.Repeat(`,`+note, batchMessages-1) + `]`, "", batchMessages},
		"one too many":            {`[` + note + strings.Repeat(`,`+note, batchMessages) + `]`, "may have 1024 messages", 0},
		"J-08 initialize":         {`[` + note + `,{"jsonrpc":"2.0","id":1,"method":"initialize"}]`, "initialize must not", 0},
		"a stateless request":     {`[{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}]`, "stateless", 0},
		"a batch within a batch":  {`[[` + note + `]]`, "must be an object", 0},
		"J-02 a request without":  {`[{"jsonrpc":"2.0","id":null,"method":"m"}]`, "id must be", 0},
		"something after the end": {`[` + note + `]]`, "more than one value", 0},
	} {
		messages, err := scanBatch([]byte(test.body))
		switch {
		case test.want == "" && (err != nil || len(messages) != test.messages):
			t.Errorf("%s: %d messages, %v", name, len(messages), err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: error %v, want %q", name, err, test.want)
		}
	}
}
