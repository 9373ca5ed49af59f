package token

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/identity"
)

const (
	corp     = "https://login.example.com/realms/main"
	cluster  = "https://kubernetes.default.svc.cluster.local"
	resource = "https://echo.example.com/mcp"
)

// now is when the tests verify tokens.
var now = time.Unix(1_800_000_000, 0)

// Making an RSA key takes a while, so all tests share them.
var (
	rsaKey     = sync.OnceValue(func() crypto.Signer { return newRSAKey(2048) })
	strayKey   = sync.OnceValue(func() crypto.Signer { return newRSAKey(2048) })
	weakRSAKey = sync.OnceValue(func() crypto.Signer { return newRSAKey(1024) })
)

func newRSAKey(bits int) *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		panic(err)
	}
	return key
}

// ecKey returns a key that is the same in every process, as fuzzing needs it.
func ecKey(curve elliptic.Curve) crypto.Signer {
	scalar := make([]byte, (curve.Params().BitSize+7)/8)
	scalar[len(scalar)-1] = 42
	key, err := ecdsa.ParseRawPrivateKey(curve, scalar)
	if err != nil {
		panic(err)
	}
	return key
}

func edKey() crypto.Signer { return ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)) }

// jwk is the public half of a key, with changes to its members.
func jwk(t testing.TB, key crypto.Signer, id string, changes map[string]any) json.RawMessage {
	t.Helper()
	text, err := json.Marshal(jose.JSONWebKey{Key: key.Public(), KeyID: id})
	if err != nil {
		t.Fatalf("encode key: %v", err)
	}
	var members map[string]any
	if err := json.Unmarshal(text, &members); err != nil {
		t.Fatalf("decode key: %v", err)
	}
	maps.Copy(members, changes)
	if text, err = json.Marshal(members); err != nil {
		t.Fatalf("encode key: %v", err)
	}
	return text
}

// allKeys has a key for every algorithm.
func allKeys(t testing.TB) []json.RawMessage {
	t.Helper()
	return []json.RawMessage{
		jwk(t, rsaKey(), "rsa", nil),
		jwk(t, ecKey(elliptic.P256()), "p256", nil),
		jwk(t, ecKey(elliptic.P384()), "p384", nil),
		jwk(t, ecKey(elliptic.P521()), "p521", nil),
		jwk(t, edKey(), "ed", nil),
	}
}

func corpIssuer(keys ...json.RawMessage) adapterapi.AccessIssuer {
	return adapterapi.AccessIssuer{
		Name:               "corp",
		Issuer:             corp,
		Audiences:          []string{resource, "mcp-echo"},
		MaxLifetimeSeconds: 3600,
		Claims:             adapterapi.AccessClaims{User: "sub", Groups: "groups"},
		Keys:               keys,
	}
}

func clusterIssuer(keys ...json.RawMessage) adapterapi.AccessIssuer {
	return adapterapi.AccessIssuer{
		Name:               adapterapi.KubernetesIssuer,
		Issuer:             cluster,
		Audiences:          []string{resource},
		MaxLifetimeSeconds: 3600,
		Claims:             adapterapi.AccessClaims{User: "sub"},
		Keys:               keys,
	}
}

func newVerifier(t testing.TB, issuers ...adapterapi.AccessIssuer) *Verifier {
	t.Helper()
	v, err := New(Options{Issuers: issuers})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return v
}

// absent takes a claim out.
var absent = new(int)

// claims are those of a good token, with changes.
func claims(t testing.TB, changes map[string]any) string {
	t.Helper()
	all := map[string]any{
		"iss": corp,
		"sub": "alice",
		"aud": resource,
		"iat": now.Unix() - 60,
		"exp": now.Unix() + 600,
	}
	maps.Copy(all, changes)
	maps.DeleteFunc(all, func(_ string, value any) bool { return value == absent })
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatalf("encode claims: %v", err)
	}
	return string(text)
}

func encode(text []byte) string { return base64.RawURLEncoding.EncodeToString(text) }

// signText makes a token of any header and payload. It does not use go-jose, which would refuse some.
func signText(t testing.TB, algorithm, header, payload string, key crypto.Signer) string {
	t.Helper()
	input := encode([]byte(header)) + "." + encode([]byte(payload))
	return input + "." + encode(signature(t, algorithm, []byte(input), key))
}

func signature(t testing.TB, algorithm string, input []byte, key crypto.Signer) []byte {
	t.Helper()
	hash := map[string]crypto.Hash{"256": crypto.SHA256, "384": crypto.SHA384, "512": crypto.SHA512}[algorithm[len(algorithm)-3:]]
	digest := input
	if hash != 0 {
		hasher := hash.New()
		hasher.Write(input)
		digest = hasher.Sum(nil)
	}
	var options crypto.SignerOpts = hash
	if strings.HasPrefix(algorithm, "PS") {
		options = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: hash}
	}
	random := rand.Reader
	if _, isEC := key.(*ecdsa.PrivateKey); isEC {
		random = nil // RFC 6979: the same signature in every process
	}
	signed, err := key.Sign(random, digest, options)
	if err != nil {
		t.Fatalf("sign: %v", err)
	}
	if ec, isEC := key.(*ecdsa.PrivateKey); isEC {
		return fromDER(t, signed, (ec.Params().BitSize+7)/8)
	}
	return signed
}

// fromDER turns a signature of ECDSA into the form of JOSE: two numbers of the same length.
func fromDER(t testing.TB, der []byte, size int) []byte {
	t.Helper()
	var numbers struct{ R, S *big.Int }
	if _, err := asn1.Unmarshal(der, &numbers); err != nil {
		t.Fatalf("decode signature: %v", err)
	}
	return append(numbers.R.FillBytes(make([]byte, size)), numbers.S.FillBytes(make([]byte, size))...)
}

// goodToken is one of alice, by the key ed.
func goodToken(t testing.TB, changes map[string]any) string {
	t.Helper()
	return signText(t, "EdDSA", `{"alg":"EdDSA","kid":"ed"}`, claims(t, changes), edKey())
}

func reasonOf(t testing.TB, err error) Reason {
	t.Helper()
	if err == nil {
		return ""
	}
	refusal, ok := errors.AsType[*Error](err)
	if !ok {
		t.Fatalf("got %T, want an *Error", err)
	}
	return refusal.Reason
}

// verifyAt also checks that there is either a caller or an error.
func verifyAt(t testing.TB, v *Verifier, text string, at time.Time) (*identity.Identity, error) {
	t.Helper()
	caller, err := v.Verify(text, at)
	if (caller == nil) == (err == nil) {
		t.Fatalf("Verify: got caller %v and error %v, want one of them", caller, err)
	}
	return caller, err
}
