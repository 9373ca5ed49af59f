package issuer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

func encoded(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestUsableKeys(t *testing.T) {
	tests := map[string]struct {
		key  object
		want bool
	}{
		"RSA 2048":                   {jwk(&rsaKey.PublicKey, "k", nil), true},
		"RSA with RS256":             {jwk(&rsaKey.PublicKey, "k", object{"alg": "RS256", "use": "sig"}), true},
		"RSA with PS512":             {jwk(&rsaKey.PublicKey, "k", object{"alg": "PS512"}), true},
		"RSA with certificates":      {jwk(&rsaKey.PublicKey, "k", object{"x5c": []string{"surprise"}, "x5t": "x", "x5u": "http://169.254.169.254/"}), true},
		"RSA 1024":                   {jwk(&weakKey.PublicKey, "k", nil), false},
		"RSA with a huge exponent":   {jwk(&rsaKey.PublicKey, "k", object{"e": "AQAAAAAB"}), false},
		"RSA of a megabit":           {jwk(&rsaKey.PublicKey, "k", object{"n": strings.Repeat("x", 100_000)}), false},
		"RSA with exponent 1":        {jwk(&rsaKey.PublicKey, "k", object{"e": "AQ"}), false},
		"RSA with an even exponent":  {jwk(&rsaKey.PublicKey, "k", object{"e": "BA"}), false},
		"RSA without a modulus":      {jwk(&rsaKey.PublicKey, "k", object{"n": nil}), false},
		"RSA for encryption":         {jwk(&rsaKey.PublicKey, "k", object{"use": "enc"}), false},
		"RSA with RSA-OAEP":          {jwk(&rsaKey.PublicKey, "k", object{"alg": "RSA-OAEP"}), false},
		"RSA with HS256":             {jwk(&rsaKey.PublicKey, "k", object{"alg": "HS256"}), false},
		"RSA with ES256":             {jwk(&rsaKey.PublicKey, "k", object{"alg": "ES256"}), false},
		"RSA to verify":              {jwk(&rsaKey.PublicKey, "k", object{"key_ops": []string{"verify"}}), true},
		"RSA to wrap":                {jwk(&rsaKey.PublicKey, "k", object{"key_ops": []string{"wrapKey"}}), false},
		"P-256":                      {jwk(&ecKey.PublicKey, "k", object{"alg": "ES256"}), true},
		"P-384":                      {jwk(&ec384Key.PublicKey, "k", nil), true},
		"P-521":                      {jwk(&ec521Key.PublicKey, "k", object{"alg": "ES512"}), true},
		"P-256 with ES384":           {jwk(&ecKey.PublicKey, "k", object{"alg": "ES384"}), false},
		"P-256 off the curve":        {jwk(&ecKey.PublicKey, "k", object{"x": strings.Repeat("A", 43)}), false},
		"secp256k1":                  {jwk(&ecKey.PublicKey, "k", object{"crv": "secp256k1"}), false},
		"Ed25519":                    {jwk(edKey, "k", object{"alg": "EdDSA"}), true},
		"Ed448":                      {jwk(edKey, "k", object{"crv": "Ed448"}), false},
		"X25519":                     {jwk(edKey, "k", object{"crv": "X25519"}), false},
		"without an ID":              {jwk(&ecKey.PublicKey, "", nil), true},
		"with an ID that is endless": {jwk(&ecKey.PublicKey, strings.Repeat("x", 257), nil), false},
		"with an ID that is none":    {jwk(&ecKey.PublicKey, "k", object{"kid": 7}), false},
		"of an unknown type":         {object{"kty": "AKP", "alg": "ML-DSA-44", "pub": "x"}, false},
		"without a type":             {object{"kid": "k"}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			set, err := readKeySet(encoded(t, keySetOf(test.key, jwk(&ec384Key.PublicKey, "other", nil))))
			if err != nil {
				t.Fatal(err)
			}
			want := 1 // a key that is of no use does not spoil the others
			if test.want {
				want = 2
			}
			if len(set.keys) != want {
				t.Errorf("%d keys, want %d: %s", len(set.keys), want, set.keys)
			}
		})
	}
}

func TestPrivateKeysDoNotCount(t *testing.T) {
	good := jwk(&rsaKey.PublicKey, "good", nil)
	for name, bad := range map[string]object{
		"RSA":          jwk(rsaKey, "bad", nil),
		"EC":           jwk(ecKey, "bad", nil),
		"symmetric":    {"kty": "oct", "kid": "bad", "k": "c3VycHJpc2U"},
		"in part":      jwk(&ecKey.PublicKey, "bad", object{"d": ""}),
		"a null":       jwk(&ecKey.PublicKey, "bad", object{"d": json.RawMessage("null")}),
		"other primes": jwk(&rsaKey.PublicKey, "bad", object{"oth": []string{}}),
	} {
		set, err := readKeySet(encoded(t, keySetOf(bad, good)))
		if err != nil {
			t.Fatal(err)
		}
		keys, err := set.of("https://x")
		if err != nil || !cmp.Equal(ids(t, keys.Keys), []string{"good"}) || !cmp.Equal(keys.Warnings, []string{warningPrivate}) {
			t.Errorf("%s: %s, %q, %v", name, keys.Keys, keys.Warnings, err)
		}
	}
}

// What is published must not change unless keys do.
func TestCanonicalForm(t *testing.T) {
	first := keySetOf(jwk(&rsaKey.PublicKey, "r", object{"alg": "RS256", "use": "sig"}), jwk(&ecKey.PublicKey, "e", nil), jwk(edKey, "o", nil))
	second := `{"keys": [` +
		string(encoded(t, jwk(edKey, "o", object{"x5t": "x", "iat": 1700000000}))) + "," +
		string(encoded(t, jwk(&ecKey.PublicKey, "e", object{"exp": 1}))) + "," +
		string(encoded(t, jwk(&ecKey.PublicKey, "e", nil))) + "," + // twice
		string(encoded(t, jwk(&rsaKey.PublicKey, "r", object{"alg": "RS256", "use": "sig", "e": "AAEAAQ", "key_ops": []string{"verify"}}))) + // a zero in front
		`], "issued": "now"}`
	a, err := readKeySet(encoded(t, first))
	if err != nil {
		t.Fatal(err)
	}
	b, err := readKeySet([]byte(second))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(a.keys, b.keys); diff != "" || len(a.keys) != 3 {
		t.Errorf("%d keys (-first +second):\n%s", len(a.keys), diff)
	}
	for _, key := range a.keys {
		var parsed jose.JSONWebKey
		if err := parsed.UnmarshalJSON(key); err != nil || !parsed.IsPublic() {
			t.Errorf("%s: %v", key, err)
		}
	}
	i := slices.IndexFunc(a.keys, func(key json.RawMessage) bool { return strings.Contains(string(key), `"RSA"`) })
	if got, want := string(a.keys[i]), `{"kty":"RSA","kid":"r","alg":"RS256","use":"sig","n":"`; !strings.HasPrefix(got, want) || !strings.HasSuffix(got, `","e":"AQAB"}`) {
		t.Errorf("canonical form: %s", got)
	}
	third, err := readKeySet(encoded(t, keySetOf(jwk(&rsaKey.PublicKey, "r2", object{"alg": "RS256", "use": "sig"}), jwk(&ecKey.PublicKey, "e", nil), jwk(edKey, "o", nil))))
	if err != nil || cmp.Equal(a.keys, third.keys) {
		t.Errorf("another ID makes no difference: %v", err)
	}
}

// Different keys may have the same ID: the verifier takes the one that fits the algorithm.
func TestDuplicateIDs(t *testing.T) {
	set, err := readKeySet(encoded(t, keySetOf(jwk(&rsaKey.PublicKey, "k", nil), jwk(&ecKey.PublicKey, "k", nil), jwk(&ecKey.PublicKey, "k", nil))))
	if err != nil || !cmp.Equal(ids(t, set.keys), []string{"k", "k"}) {
		t.Errorf("readKeySet: %s, %v", set.keys, err)
	}
}

func TestManyKeys(t *testing.T) {
	keys := make([]object, maxKeys+1)
	for i := range keys {
		keys[i] = jwk(&rsaKey.PublicKey, fmt.Sprintf("key-%d", i), nil)
	}
	if set, err := readKeySet(encoded(t, keySetOf(keys[:maxKeys]...))); err != nil || len(set.keys) != maxKeys {
		t.Errorf("%d keys: %d, %v", maxKeys, len(set.keys), err)
	}
	if _, err := readKeySet(encoded(t, keySetOf(keys...))); err != errManyKeys { //nolint:errorlint // It is not wrapped.
		t.Errorf("%d keys: %v", len(keys), err)
	}
	for i := range keys[:maxKeys] {
		keys[i]["kid"] = fmt.Sprintf("%d-%s", i, strings.Repeat("x", 250))
		keys[i]["n"] = strings.Repeat("x", 680)
	}
	if _, err := readKeySet(encoded(t, keySetOf(keys[:maxKeys]...))); err != errLargeKeys { //nolint:errorlint // It is not wrapped.
		t.Errorf("large keys: %v", err)
	}
}

func FuzzReadKeySet(f *testing.F) {
	for _, key := range []object{jwk(&rsaKey.PublicKey, "r", nil), jwk(rsaKey, "p", nil), jwk(&ecKey.PublicKey, "e", nil), jwk(edKey, "o", object{"alg": "EdDSA"})} {
		text, err := json.Marshal(keySetOf(key))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		set, err := readKeySet(text)
		if err != nil {
			return
		}
		for _, key := range set.keys {
			var members map[string]json.RawMessage
			if err := json.Unmarshal(key, &members); err != nil || adapterapi.IsPrivateJWK(members) {
				t.Errorf("%s: %v", key, err)
			}
		}
		again, err := readKeySet(encoded(t, map[string]any{"keys": append([]json.RawMessage{}, set.keys...)}))
		if err != nil || len(again.keys) != len(set.keys) || len(set.keys) > 0 && !cmp.Equal(set.keys, again.keys) {
			t.Errorf("read again: %s, %v; want %s", again.keys, err, set.keys)
		}
	})
}
