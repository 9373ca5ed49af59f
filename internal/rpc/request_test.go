package rpc

import "testing"

func TestAppendCancelled(t *testing.T) {
	for reason, want := range map[string]string{
		"":        `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}`,
		"a \"b\"": `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a","reason":"a \"b\""}}`,
	} {
		got := AppendCancelled(nil, []byte(`"a"`), reason)
		if string(got) != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if e, err := Scan(got); err != nil || string(e.Method) != MethodCancelled || string(e.RequestID.Of(got)) != `"a"` {
			t.Errorf("%s cancels %s: %v", got, e.RequestID.Of(got), err)
		}
	}
}
