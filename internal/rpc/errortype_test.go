package rpc

import "testing"

func TestErrorType(t *testing.T) {
	for answer, test := range map[string]struct {
		tool bool
		want string
	}{
		`{"jsonrpc":"2.0","id":1,"result":{}}`:                                                      {true, ""},
		`{"jsonrpc":"2.0","id":1,"result":{"isError":true}}`:                                        {true, ToolError},
		`{"jsonrpc":"2.0","id":1,"result":{"isError" : true}}`:                                      {true, ToolError},
		`{"jsonrpc":"2.0","id":1,"result":{"content":[],"isError":false}}`:                          {true, ""},
		`{"jsonrpc":"2.0","id":1,"result":{"isError":true} }`:                                       {false, ""},
		`{"jsonrpc":"2.0","id":1,"result":{"structuredContent":{"isError":true},"isError":false}}`:  {true, ""},
		`{"jsonrpc":"2.0","id":1,"result":{"structuredContent":{"isError":false},"isError":true}}`:  {true, ToolError},
		`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"\"isError\":true"}]}}`: {true, ""},
		`{"jsonrpc":"2.0","id":1,"result":{"isError":true,"isError":true}}`:                         {true, ""},
		`{"jsonrpc":"2.0","id":1,"result":{"isError":true,"iserror":false}}`:                        {true, ""},
		`{"jsonrpc":"2.0","id":1,"result":{"is\u0045rror":true}}`:                                   {true, ""},
		`{"jsonrpc":"2.0","id":1,"result":{"isError":"true"}}`:                                      {true, ""},
		`{"jsonrpc":"2.0","id":1,"result":["isError",true]}`:                                        {true, ""},
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"m"}}`:                            {true, "-32602"},
		`{"jsonrpc":"2.0","id":1,"error":{"message":"m","code":-32042}}`:                            {false, "-32042"},
		`{"jsonrpc":"2.0","id":1,"error":{"code":31337,"message":"m"}}`:                             {false, "_OTHER"},
		`{"jsonrpc":"2.0","id":1,"error":{"code":99999999999999999999999999,"message":"m"}}`:        {false, "_OTHER"},
		`{"jsonrpc":"2.0","id":1,"error":{"message":"m"}}`:                                          {false, "_OTHER"},
	} {
		envelope, err := ScanLenient([]byte(answer))
		if err != nil {
			t.Errorf("%s: %v", answer, err)
			continue
		}
		if got := ErrorType([]byte(answer), &envelope, test.tool); got != test.want {
			t.Errorf("%s: got %q, want %q", answer, got, test.want)
		}
		envelope.Succeeds = false // as in an envelope that Scan has not made
		if got := ErrorType([]byte(answer), &envelope, test.tool); got != test.want {
			t.Errorf("%s: got %q without Scan's help, want %q", answer, got, test.want)
		}
		code := ErrorCode([]byte(answer), &envelope)
		if got := ErrorTypeOf(code); envelope.Error.Present() && got != test.want || envelope.Result.Present() && code != 0 {
			t.Errorf("%s: got code %d, want %q", answer, code, test.want)
		}
	}
}
