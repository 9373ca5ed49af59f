package token

import (
	"crypto/elliptic"
	"testing"
)

// BenchmarkVerify measures a token that the adapter has not seen before, as long as those of the cluster.
func BenchmarkVerify(b *testing.B) {
	v := newVerifier(b, corpIssuer(allKeys(b)...), clusterIssuer(allKeys(b)...))
	changes := map[string]any{
		"iss": cluster, "sub": "system:serviceaccount:agents:triage", "aud": []any{resource}, "nbf": now.Unix() - 60,
		"jti": "8d5b4c3e-1f2a-4b6c-9d7e-0a1b2c3d4e5f",
		"kubernetes.io": map[string]any{
			"namespace":      "agents",
			"node":           map[string]any{"name": "node-1", "uid": "5a4e1f5c-5b0e-4a50-8d0c-1b8f6a3c2d1e"},
			"pod":            map[string]any{"name": "triage-6c8d7f9b5d-x2k4q", "uid": "0c3f1a5e-7b2d-4e8f-9a6c-3d5b7e9f1a2c"},
			"serviceaccount": map[string]any{"name": "triage", "uid": "9b8a7c6d-5e4f-4a3b-8c2d-1e0f9a8b7c6d"},
		},
	}
	for name, text := range map[string]string{
		"RS256": signText(b, "RS256", `{"alg":"RS256","kid":"rsa"}`, claims(b, changes), rsaKey()),
		"ES256": signText(b, "ES256", `{"alg":"ES256","kid":"p256"}`, claims(b, changes), ecKey(elliptic.P256())),
		"EdDSA": signText(b, "EdDSA", `{"alg":"EdDSA","kid":"ed"}`, claims(b, changes), edKey()),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.Verify(text, now); err != nil {
					b.Fatalf("Verify: %v", err)
				}
			}
		})
	}
	b.Run("refused", func(b *testing.B) {
		text := signText(b, "RS256", `{"alg":"RS256","kid":"rsa"}`, claims(b, changes), strayKey())
		b.ReportAllocs()
		for b.Loop() {
			if _, err := v.Verify(text, now); reasonOf(b, err) != Signature {
				b.Fatalf("Verify: %v", err)
			}
		}
	})
}
