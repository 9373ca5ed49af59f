package tomodern

import (
	"encoding/json"
	"testing"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/toolindex"
)

// answers is a recipient that keeps the answer.
type answers struct {
	text []byte
	code int
}

func (a *answers) ID() []byte    { return []byte(`"the client's"`) }
func (a *answers) Token() []byte { return nil }
func (a *answers) Notify([]byte) {}
func (a *answers) Answer(message []byte, code int, _ string) {
	a.text, a.code = message, code
}

// Whatever a process answers, the client gets one answer, which is JSON, has the client's id, and
// fails if and only if it is said to.
func FuzzAnswer(f *testing.F) {
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{}}`,
		`{"jsonrpc":"2.0","id":1,"result":{ "content":[],"isError":true , "_meta":null}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"x","execution":{"taskSupport":"required"}},{}],"nextCursor":"c","ttlMs":1,"_meta":{}}}`,
		`{"result":{"resultType":"task","_meta":{"io.modelcontextprotocol/serverInfo":{}}},"id":1,"jsonrpc":"2.0"}`,
		`{"jsonrpc":"2.0","id":1,"result":[]}`,
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32002,"message":"no","data":{"a":1}}}`,
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32042,"message":"go","data":{"elicitations":[{"mode":"url","url":"u","elicitationId":"e"}]}}}`,
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32021,"message":"more","data":{"requiredCapabilities":{}}}}`,
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32050,"message":"ours"}}`,
		`{"jsonrpc":"2.0","id":1,"error":{"code":1e2,"message":7}}`,
	} {
		for method := range byte(4) {
			f.Add(method, []byte(text))
		}
	}
	methods := []string{rpc.MethodCallTool, toolindex.Method, rpc.MethodReadResource, rpc.MethodGetPrompt}
	f.Fuzz(func(t *testing.T, method byte, text []byte) {
		e, err := rpc.ScanLenient(text)
		if err != nil || e.Kind != rpc.Response || !e.ID.Present() { // without an id it answers no call
			return
		}
		s := New(Options{Limits: testLimits(), Serves: serves})
		defer s.Close()
		g := &group{server: s, caller: &caller.Caller{}, groupKey: groupKey{capabilities: capabilities{url: true}}}
		c := &call{group: g, process: &process{server: s, group: g, offer: offer{meta: []byte(`"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s"}}`)}}, method: methods[int(method)%len(methods)], name: "x"}
		got := &answers{}
		s.answer(c, got, session.Message{Bytes: text, Envelope: e})
		var read struct {
			ID     json.RawMessage `json:"id"`
			Result json.RawMessage `json:"result"`
			Error  *struct {
				Code json.Number `json:"code"`
			} `json:"error"`
		}
		switch scanned, err := rpc.ScanLenient(got.text); {
		case err != nil:
			t.Fatalf("%q became %q: %v", text, got.text, err)
		case string(scanned.ID.Of(got.text)) != string(got.ID()):
			t.Fatalf("%q became %q, with another id", text, got.text)
		case json.Unmarshal(got.text, &read) == nil && (read.Error == nil) != (got.code == 0) && e.Result.Present():
			t.Fatalf("%q became %q, with code %d", text, got.text, got.code)
		}
	})
}
