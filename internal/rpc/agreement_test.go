package rpc

import "testing"

func TestAgreement(t *testing.T) {
	for message, want := range map[string]struct {
		revision         string
		agreed, answered bool
	}{
		`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}`: {"2025-11-25", true, true},
		`{"jsonrpc":"2.0","id":0,"result":{}}`:                               {"", true, true},
		`{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"no"}}`:    {"", false, true},
		`{"jsonrpc":"2.0","id":0,"method":"ping"}`:                           {"", false, false},
		`{"jsonrpc":"2.0","method":"m","result":{"protocolVersion":"2025"}}`: {"", false, false},
		`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":20251125}}`:     {"", false, false},
		`not JSON`: {"", false, false},
	} {
		revision, agreed, answered := Agreement([]byte(message))
		if revision != want.revision || agreed != want.agreed || answered != want.answered {
			t.Errorf("%s: got %q, %t, %t", message, revision, agreed, answered)
		}
	}
}
