package token

import (
	"crypto/elliptic"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// FuzzVerify changes signed tokens. None but the original ones may count. The keys and signatures are the
// same in every process, so that the fuzzer's other processes know the tokens.
func FuzzVerify(f *testing.F) {
	p256, ed := ecKey(elliptic.P256()), edKey()
	v := newVerifier(f, corpIssuer(jwk(f, p256, "p256", nil), jwk(f, ed, "ed", nil)))
	signed := map[string]bool{
		signText(f, "EdDSA", `{"alg":"EdDSA","kid":"ed"}`, claims(f, nil), ed):                                     true,
		signText(f, "EdDSA", `{"alg":"EdDSA"}`, claims(f, map[string]any{"groups": []any{"a"}}), ed):               true,
		signText(f, "ES256", `{"alg":"ES256","kid":"p256"}`, claims(f, map[string]any{"scope": "a b"}), p256):      true,
		signText(f, "ES256", `{"alg":"ES256","typ":"at+jwt"}`, claims(f, map[string]any{"aud": "mcp-echo"}), p256): true,
	}
	for text := range signed {
		if _, err := v.Verify(text, now); err != nil {
			f.Fatalf("Verify: %v", err)
		}
		f.Add(text)
		f.Add(text + ".x.y")
		f.Add(text[:len(text)-1] + "_")
		f.Add(text[strings.IndexByte(text, '.'):])
	}
	f.Add(encode([]byte(`{"alg":"none"}`)) + "." + encode([]byte(claims(f, nil))) + ".")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := verifyAt(t, v, text, now); reasonOf(t, err) == "" && !signed[text] {
			t.Errorf("accepted %q, which no issuer has signed", text)
		}
	})
}

// FuzzClaims signs any header and claims. Whatever an issuer signs, its callers have its prefix, and a
// token that counts.
func FuzzClaims(f *testing.F) {
	v := newVerifier(f, corpIssuer(jwk(f, edKey(), "ed", nil)), clusterIssuer(jwk(f, edKey(), "ed", nil)))
	const header = `{"alg":"EdDSA","kid":"ed"}`
	for _, changes := range []map[string]any{
		nil,
		{"iss": cluster, "sub": "system:serviceaccount:a:b"},
		{"groups": []any{"a", "b"}, "scope": "a b", "azp": "x", "act": map[string]any{"sub": "x"}, "jti": "x"},
		{"groups": "a", "scp": []any{"a"}, "client_id": "x", "nbf": 1.5, "aud": []any{"x", resource + "/"}},
		{"exp": json.Number("1e300")},
	} {
		f.Add(header, claims(f, changes))
	}
	f.Add(`{"alg":"EdDSA","jwk":{"kty":"oct","k":"AA"},"x5c":["AA"]}`, `{"iss":"`+corp+`","ISS":1}`)
	f.Fuzz(func(t *testing.T, header, claims string) {
		caller, err := verifyAt(t, v, signText(t, "EdDSA", header, claims, edKey()), now)
		if err != nil {
			if reason := reasonOf(t, err); reason == Signature {
				t.Errorf("the signature of %s %s does not count", header, claims)
			}
			return
		}
		prefix := map[string]string{"corp": "corp:", "kubernetes": "system:serviceaccount:"}[caller.Issuer]
		if prefix == "" || !strings.HasPrefix(caller.User, prefix) || len(caller.User) <= len(prefix) {
			t.Errorf("got user %q of issuer %q", caller.User, caller.Issuer)
		}
		for _, group := range caller.Groups {
			if caller.Issuer == "corp" && group != "system:authenticated" && !strings.HasPrefix(group, prefix) {
				t.Errorf("got group %q of issuer %q", group, caller.Issuer)
			}
		}
		if left := caller.Expires.Sub(now); left <= -Leeway || left > time.Hour+Leeway {
			t.Errorf("took a token that expires in %v", left)
		}
	})
}

// FuzzReadObject compares with encoding/json, which reads the same, if it reads anything.
func FuzzReadObject(f *testing.F) {
	f.Add([]byte(claims(f, nil)))
	f.Add([]byte(` { "a" : [ 1.5e3 , null , true , { "b" : { } } ] , "\u0062" : "\ud800" } `))
	f.Add([]byte(`{"a":1,"A":1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, ok := readObject(text)
		if !ok {
			return
		}
		decoder := json.NewDecoder(strings.NewReader(string(text)))
		decoder.UseNumber()
		var want map[string]any
		if err := decoder.Decode(&want); err != nil {
			t.Fatalf("read %q, which is no JSON: %v", text, err)
		}
		if diff := cmp.Diff(want, plain(got)); diff != "" {
			t.Errorf("read %q (-encoding/json +got):\n%s", text, diff)
		}
	})
}

// plain has maps instead of objects.
func plain(value any) any {
	switch value := value.(type) {
	case object:
		members := map[string]any{}
		for name, member := range value {
			members[name] = plain(member)
		}
		return members
	case []any:
		elements := []any{}
		for _, element := range value {
			elements = append(elements, plain(element))
		}
		return elements
	}
	return value
}
