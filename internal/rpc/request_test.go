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

func TestAppendRequest(t *testing.T) {
	const version = `v1 "dirty"`
	for name, test := range map[string]struct {
		got  []byte
		want string
	}{
		"initialize": {
			AppendRequest(nil, []byte(`0`), MethodInitialize, InitializeParams("2025-11-25", `{"roots":{}}`, version)),
			`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"slipway","version":"v1 \"dirty\""}}}`,
		},
		"no params":   {AppendRequest(nil, []byte(`"a"`), "ping", ""), `{"jsonrpc":"2.0","id":"a","method":"ping","params":{}}`},
		"initialized": {[]byte(Initialized), `{"jsonrpc":"2.0","method":"notifications/initialized"}`},
	} {
		t.Run(name, func(t *testing.T) {
			if string(test.got) != test.want {
				t.Errorf("got %s, want %s", test.got, test.want)
			}
			if _, err := Scan(test.got); err != nil {
				t.Error(err)
			}
		})
	}
}
