package adapterapi

import "testing"

func TestIsPrivateJWK(t *testing.T) {
	for member, want := range map[string]bool{
		"kty": false, "kid": false, "n": false, "e": false, "crv": false, "x": false, "y": false, "x5c": false, "D": false,
		"d": true, "p": true, "q": true, "dp": true, "dq": true, "qi": true, "oth": true, "k": true,
	} {
		if got := IsPrivateJWK(map[string]any{"kty": "RSA", member: nil}); got != want {
			t.Errorf("with the member %s: %t", member, got)
		}
	}
}
