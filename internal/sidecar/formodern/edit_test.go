package formodern

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

func TestCut(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:                           `{}`,
		`{"a":1}`:                      `{}`,
		`{ "a" : 1 }`:                  `{  }`,
		`{"a":1,"b":2}`:                `{}`,
		`{"a":1,"b":2,"c":3}`:          `{"c":3}`,
		`{"c":3,"a":1,"b":2}`:          `{"c":3}`,
		`{"c":3 , "a":1 , "b":2 }`:     `{"c":3  }`,
		`{"a":1,"c":3,"b":2}`:          `{"c":3}`,
		`{"c":3,"a":1,"d":4,"b":2}`:    `{"c":3,"d":4}`,
		`{"c":3,"a":{"a":[]},"d":4}`:   `{"c":3,"d":4}`,
		`{"c":":","a":":","d":"a\":"}`: `{"c":":","d":"a\":"}`,
	} {
		edits, err := cut([]byte(text), rpc.Span{End: len(text)}, "a", "b")
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if got := string(rpc.Edited([]byte(text), edits...)); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

// Whatever is cut, the rest is what it was.
func FuzzCut(f *testing.F) {
	f.Add(`{"c":3 , "a":1 , "b":[ ] }`)
	f.Add(`{"b":{},"a":"\"a\":","x":"a"}`)
	f.Fuzz(func(t *testing.T, text string) {
		var before map[string]json.RawMessage
		message := []byte(`{"jsonrpc":"2.0","method":"m","params":` + text + `}`)
		e, err := rpc.Scan(message)
		if err != nil || !isObject(message, e.Params) || json.Unmarshal(e.Params.Of(message), &before) != nil {
			return
		}
		edits, err := cut(message, e.Params, "a", "b")
		if err != nil {
			return
		}
		edited := rpc.Edited(message, edits...)
		if e, err = rpc.Scan(edited); err != nil {
			t.Fatalf("%s became %s: %v", message, edited, err)
		}
		var after map[string]json.RawMessage
		if err := json.Unmarshal(e.Params.Of(edited), &after); err != nil {
			t.Fatal(err)
		}
		delete(before, "a")
		delete(before, "b")
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("%s became %s: %s", message, edited, diff)
		}
	})
}
