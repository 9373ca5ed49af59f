package token

import (
	"crypto"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
)

func TestVerifyChoosesKeys(t *testing.T) {
	p256, p384 := ecKey(elliptic.P256()), ecKey(elliptic.P384())
	private := func(name string) map[string]any { return map[string]any{name: "AQAB"} }
	privateRSA, err := json.Marshal(jose.JSONWebKey{Key: rsaKey().(*rsa.PrivateKey), KeyID: "a"})
	if err != nil {
		t.Fatalf("encode key: %v", err)
	}
	const withID, withoutID = `"kid":"a",`, ``
	for name, test := range map[string]struct {
		keys      []json.RawMessage
		algorithm string
		id        string
		key       crypto.Signer
		want      Reason
	}{
		"by ID":                           {[]json.RawMessage{jwk(t, p256, "a", nil)}, "ES256", withID, p256, ""},
		"use sig":                         {[]json.RawMessage{jwk(t, p256, "a", map[string]any{"use": "sig"})}, "ES256", withID, p256, ""},
		"use enc":                         {[]json.RawMessage{jwk(t, p256, "a", map[string]any{"use": "enc"})}, "ES256", withID, p256, UnknownKey},
		"use enc, no ID":                  {[]json.RawMessage{jwk(t, p256, "a", map[string]any{"use": "enc"})}, "ES256", withoutID, p256, UnknownKey},
		"use is a list":                   {[]json.RawMessage{jwk(t, p256, "a", map[string]any{"use": []any{"sig"}})}, "ES256", withID, p256, UnknownKey},
		"alg fits":                        {[]json.RawMessage{jwk(t, rsaKey(), "a", map[string]any{"alg": "PS256"})}, "PS256", withID, rsaKey(), ""},
		"alg does not fit":                {[]json.RawMessage{jwk(t, rsaKey(), "a", map[string]any{"alg": "PS256"})}, "RS256", withID, rsaKey(), Algorithm},
		"alg of a secret":                 {[]json.RawMessage{jwk(t, rsaKey(), "a", map[string]any{"alg": "HS256"})}, "RS256", withID, rsaKey(), Algorithm},
		"RSA of 1024 bits":                {[]json.RawMessage{jwk(t, weakRSAKey(), "a", nil)}, "RS256", withID, weakRSAKey(), UnknownKey},
		"RSA of 1024 bits, no ID":         {[]json.RawMessage{jwk(t, weakRSAKey(), "a", nil)}, "RS256", withoutID, weakRSAKey(), UnknownKey},
		"private":                         {[]json.RawMessage{privateRSA}, "RS256", withID, rsaKey(), UnknownKey},
		"private in part":                 {[]json.RawMessage{jwk(t, rsaKey(), "a", private("p"))}, "RS256", withID, rsaKey(), UnknownKey},
		"private in another part":         {[]json.RawMessage{jwk(t, rsaKey(), "a", private("oth"))}, "RS256", withID, rsaKey(), UnknownKey},
		"public with a secret":            {[]json.RawMessage{jwk(t, rsaKey(), "a", private("k"))}, "RS256", withID, rsaKey(), UnknownKey},
		"private without a value":         {[]json.RawMessage{jwk(t, p256, "a", map[string]any{"d": nil})}, "ES256", withID, p256, UnknownKey},
		"symmetric":                       {[]json.RawMessage{json.RawMessage(`{"kty":"oct","kid":"a","k":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}`)}, "ES256", withID, p256, UnknownKey},
		"point not on the curve":          {[]json.RawMessage{jwk(t, p256, "a", map[string]any{"x": strings.Repeat("A", 43)})}, "ES256", withID, p256, UnknownKey},
		"key twice in its JSON":           {[]json.RawMessage{json.RawMessage(strings.Replace(string(jwk(t, p256, "a", nil)), `{`, `{"kid":"b",`, 1))}, "ES256", withID, p256, UnknownKey},
		"key without ID, token with one":  {[]json.RawMessage{jwk(t, p256, "", nil)}, "ES256", withID, p256, UnknownKey},
		"no IDs":                          {[]json.RawMessage{jwk(t, p256, "", nil)}, "ES256", withoutID, p256, ""},
		"only key, no ID in token":        {[]json.RawMessage{jwk(t, p256, "a", nil)}, "ES256", withoutID, p256, ""},
		"only key that fits":              {[]json.RawMessage{jwk(t, p384, "b", nil), jwk(t, rsaKey(), "c", nil), jwk(t, p256, "a", nil)}, "ES256", withoutID, p256, ""},
		"only key that fits is another":   {[]json.RawMessage{jwk(t, rsaKey(), "a", nil)}, "RS256", withoutID, strayKey(), Signature},
		"no key fits":                     {[]json.RawMessage{jwk(t, p384, "b", nil)}, "ES256", withoutID, p256, UnknownKey},
		"two keys fit":                    {[]json.RawMessage{jwk(t, rsaKey(), "a", nil), jwk(t, strayKey(), "b", nil)}, "RS256", withoutID, rsaKey(), Signature},
		"two keys fit, last has signed":   {[]json.RawMessage{jwk(t, strayKey(), "b", nil), jwk(t, rsaKey(), "a", nil)}, "RS256", withoutID, rsaKey(), Signature},
		"two keys fit, by ID":             {[]json.RawMessage{jwk(t, rsaKey(), "a", nil), jwk(t, strayKey(), "b", nil)}, "RS256", withID, rsaKey(), ""},
		"other key has signed, no trial":  {[]json.RawMessage{jwk(t, rsaKey(), "a", nil), jwk(t, strayKey(), "b", nil)}, "RS256", withID, strayKey(), Signature},
		"one of two by their alg":         {[]json.RawMessage{jwk(t, rsaKey(), "a", map[string]any{"alg": "RS256"}), jwk(t, strayKey(), "b", map[string]any{"alg": "PS256"})}, "RS256", withoutID, rsaKey(), ""},
		"same ID, first":                  {[]json.RawMessage{jwk(t, rsaKey(), "a", nil), jwk(t, strayKey(), "a", nil)}, "RS256", withID, rsaKey(), UnknownKey},
		"same ID, second":                 {[]json.RawMessage{jwk(t, rsaKey(), "a", nil), jwk(t, strayKey(), "a", nil)}, "RS256", withID, strayKey(), UnknownKey},
		"same ID, other type":             {[]json.RawMessage{jwk(t, rsaKey(), "a", nil), jwk(t, p256, "a", nil)}, "RS256", withID, rsaKey(), UnknownKey},
		"same ID, token without one":      {[]json.RawMessage{jwk(t, rsaKey(), "a", nil), jwk(t, p256, "a", nil)}, "RS256", withoutID, rsaKey(), UnknownKey},
		"same ID, but one is no use":      {[]json.RawMessage{jwk(t, rsaKey(), "a", nil), jwk(t, strayKey(), "a", map[string]any{"use": "enc"})}, "RS256", withID, rsaKey(), ""},
		"same ID three times":             {[]json.RawMessage{jwk(t, rsaKey(), "a", nil), jwk(t, p256, "a", nil), jwk(t, p384, "a", nil)}, "RS256", withID, rsaKey(), UnknownKey},
		"same ID does not harm the other": {[]json.RawMessage{jwk(t, rsaKey(), "b", nil), jwk(t, strayKey(), "b", nil), jwk(t, p256, "a", nil)}, "ES256", withID, p256, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVerifier(t, corpIssuer(test.keys...))
			text := signText(t, test.algorithm, `{`+test.id+`"alg":"`+test.algorithm+`"}`, claims(t, nil), test.key)
			_, err := verifyAt(t, v, text, now)
			if got := reasonOf(t, err); got != test.want {
				t.Errorf("got reason %q, want %q", got, test.want)
			}
		})
	}
}
