package forlegacy

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/test/hang"
)

// J-23: members are dropped with the commas that belong to them, and nothing else is.
func TestThinning(t *testing.T) {
	for object, want := range map[string]string{
		`{}`:                           `{}`,
		`{ }`:                          `{ }`,
		`{"x1":1}`:                     `{}`,
		`{ "x1" : 1 }`:                 `{  }`,
		`{"x1":1,"x2":2}`:              `{}`,
		`{"x1":1,"a":2}`:               `{"a":2}`,
		`{"a":1,"x2":2}`:               `{"a":1}`,
		`{"a":1,"x2":2,"x3":3}`:        `{"a":1}`,
		`{"x1":1,"x2":2,"b":3}`:        `{"b":3}`,
		`{"a":1,"x2":2,"b":3}`:         `{"a":1,"b":3}`,
		`{"x1":1,"a":2,"x3":3}`:        `{"a":2}`,
		`{"a":1,"x":2,"b":3,"x":4}`:    `{"a":1,"b":3}`,
		`{ "a" : 1 , "x" : 2 , "b":3}`: `{ "a" : 1 , "b":3}`,
		`{"a":"x,\"}","x":["}",{"a":"\\"}],"b":[{}],"\u0078":1}`: `{"a":"x,\"}","b":[{}]}`,
	} {
		var changes edits
		thin := thinning{edits: &changes}
		for w := over([]byte(object), rpc.Span{End: len(object)}); ; {
			m, ok := w.next()
			if !ok {
				break
			}
			if strings.HasPrefix(string(m.name), "x") {
				thin.drop(m)
			} else {
				thin.keep(m)
			}
		}
		thin.close()
		if diff := cmp.Diff(want, string(changes.of([]byte(object)))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", object, diff)
		}
	}
}

// A string is gone over once, whatever is in it. To go over all of it for each of its
// characters would take hours.
func TestStringsTakeLinearTime(t *testing.T) {
	const most = 4 << 20
	for name, text := range map[string]string{
		"line breaks": `{"a":"` + strings.Repeat(`\n`, most/2) + `"}`,
		"quotes":      `{"a":"` + strings.Repeat(`\"`, most/2) + `"}`,
		"nesting":     `{"a":` + strings.Repeat(`[`, 900) + strings.Repeat(`]`, 900) + `}`,
	} {
		began := time.Now()
		w := over([]byte(text), rpc.Span{End: len(text)})
		if m, ok := w.next(); !ok || m.value.End != len(text)-1 {
			t.Errorf("%s: ends at %d of %d", name, m.value.End, len(text))
		}
		if took := time.Since(began); took > hang.Guard {
			t.Errorf("%s: took %s", name, took)
		}
	}
}

// FuzzWalk compares what is found in an object with what the standard library finds.
func FuzzWalk(f *testing.F) {
	for _, seed := range []string{`{}`, `{"a":1,"b":[1,{"c":"\"}"}],"":null}`, `{ "a\n" : -1.5e3 , "a":true}`, `{"a":"\\","b":"\\\""}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		text := append(append([]byte(`{"jsonrpc":"2.0","id":1,"result":`), object...), '}')
		e, err := rpc.Scan(text)
		if err != nil || text[e.Result.Start] != '{' {
			t.Skip()
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(e.Result.Of(text), &want); err != nil {
			t.Skip()
		}
		got := map[string]json.RawMessage{}
		for w := over(text, e.Result); ; {
			m, ok := w.next()
			if !ok {
				break
			}
			got[string(m.name)] = m.value.Of(text)
		}
		if len(got) != len(want) {
			t.Fatalf("%s: found %d members, want %d", text, len(got), len(want))
		}
		for name, value := range want {
			if !bytes.Equal(value, got[name]) {
				t.Errorf("%s: %q is %s, want %s", text, name, got[name], value)
			}
		}
	})
}
