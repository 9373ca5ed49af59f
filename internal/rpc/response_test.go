package rpc

import "testing"

func TestResponses(t *testing.T) {
	for name, test := range map[string]struct {
		got  []byte
		want string
	}{
		"a result":         {AppendResult(nil, []byte(`"a"`), []byte(`{}`)), `{"jsonrpc":"2.0","id":"a","result":{}}`},
		"an error":         {AppendError(nil, []byte(`1`), CodeInternal, "a \"b\"\n", nil), `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"a \"b\"\n"}}`},
		"with data":        {AppendError(nil, []byte(`1`), CodeUserRejected, "", []byte(`[]`)), `{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"","data":[]}}`},
		"without an id":    {AppendError(nil, nil, CodeParse, "m", nil), `{"jsonrpc":"2.0","error":{"code":-32700,"message":"m"}}`},
		"another's error":  {AppendErrorObject(nil, []byte(`1`), []byte(`{"code":1,"message":"m"}`)), `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}`},
		"behind something": {AppendResult([]byte("x"), []byte(`1`), []byte(`[]`)), `x{"jsonrpc":"2.0","id":1,"result":[]}`},
	} {
		t.Run(name, func(t *testing.T) {
			if string(test.got) != test.want {
				t.Errorf("got %s, want %s", test.got, test.want)
			}
			if _, err := Scan(test.got); err != nil && name != "behind something" {
				t.Error(err)
			}
		})
	}
}
