package tomodern

import (
	"testing"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// asking is a request with capabilities, of a caller.
func asking(t testing.TB, from *caller.Caller, method, capabilities string) session.Message {
	t.Helper()
	text := []byte(`{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{"_meta":{"` + rpc.MetaClientCapabilities + `":` + capabilities + `}}}`)
	envelope, err := rpc.Scan(text)
	if err != nil {
		t.Fatal(err)
	}
	return session.Message{Bytes: text, Envelope: envelope, From: from}
}

// Requests have the same name exactly if their callers may share processes. What no process gets has no name.
func TestNamesOfGroups(t *testing.T) {
	t.Parallel()
	anna, otto := &caller.Caller{Address: "10.0.0.1"}, &caller.Caller{Address: "10.0.0.2"}
	s := New(Options{OfferRoots: true})
	t.Cleanup(s.Close)
	names := map[string]string{}
	for _, capabilities := range []string{
		`{}`, `{"elicitation":{"form":{}}}`, `{"elicitation":{"url":{}}}`, `{"elicitation":{"form":{},"url":{}}}`,
		`{"sampling":{}}`, `{"sampling":{"tools":{}}}`, `{"sampling":{"context":{}}}`, `{"roots":{}}`,
	} {
		for who, from := range map[string]*caller.Caller{"anna": anna, "otto": otto} {
			name := s.Group(asking(t, from, "tools/call", capabilities))
			if other, taken := names[name]; taken || name == "" {
				t.Errorf("%s with %s is in the group %q, as is %s", who, capabilities, name, other)
			}
			names[name] = who + " with " + capabilities
		}
	}
	for capabilities, same := range map[string]string{`{"elicitation":{}}`: `{"elicitation":{"form":{}}}`, `{"tasks":{}}`: `{}`, `{"experimental":{"x":{}}}`: `{}`} {
		one, other := s.Group(asking(t, anna, "tools/list", capabilities)), s.Group(asking(t, anna, "server/discover", same))
		if one != other {
			t.Errorf("%s is of %q, and %s of %q", capabilities, one, same, other)
		}
	}
	if name := s.Group(asking(t, anna, "tasks/get", `{}`)); name != "" {
		t.Errorf("tasks/get is of %q", name)
	}
	if name := s.Group(asking(t, anna, "tools/call", `{"elicitation":{"form":{},"form":{}}}`)); name != "" {
		t.Errorf("capabilities that parsers read differently are of %q", name)
	}
}

// Each request of a client without a session needs the name.
func TestNameAllocatesLittle(t *testing.T) {
	s, request := New(Options{}), asking(t, &caller.Caller{Address: "10.0.0.1"}, "tools/call", `{"elicitation":{"form":{}}}`)
	t.Cleanup(s.Close)
	if allocations := testing.AllocsPerRun(100, func() { s.Group(request) }); allocations > 1 {
		t.Errorf("a name allocates %v objects", allocations)
	}
}

func BenchmarkGroup(b *testing.B) {
	s, request := New(Options{}), asking(b, &caller.Caller{Address: "10.0.0.1"}, "tools/call", `{"elicitation":{"form":{}}}`)
	b.Cleanup(s.Close)
	b.ReportAllocs()
	for b.Loop() {
		s.Group(request)
	}
}
