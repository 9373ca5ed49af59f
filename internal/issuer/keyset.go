package issuer

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"math"
	"slices"

	"github.com/go-jose/go-jose/v4"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

const (
	maxKeys = 64
	// maxKeySetBytes bounds the keys of one issuer in their canonical form, so that those of eight fit
	// into one access document.
	maxKeySetBytes = 48 << 10
	maxKeyIDBytes  = 256
)

const warningPrivate = "it publishes a private key: this key does not count, because anyone can sign with it"

// publicKey has the members of a JWK that are kept, in their order.
type publicKey struct {
	Type      string `json:"kty"`
	ID        string `json:"kid,omitempty"`
	Algorithm string `json:"alg,omitempty"`
	Use       string `json:"use,omitempty"`
	Curve     string `json:"crv,omitempty"`
	X         string `json:"x,omitempty"`
	Y         string `json:"y,omitempty"`
	N         string `json:"n,omitempty"`
	E         string `json:"e,omitempty"`
}

// keySet is what is kept of a JWK set.
type keySet struct {
	keys    []json.RawMessage
	private bool // whether it had a private key
}

// of returns the keys as those of an issuer.
func (s keySet) of(issuer string, warnings ...string) (Keys, error) {
	if s.private {
		warnings = append(warnings, warningPrivate)
	}
	keys := Keys{Issuer: issuer, Keys: s.keys, Warnings: warnings}
	if len(s.keys) == 0 {
		return keys, errNoKeys
	}
	return keys, nil
}

// readKeySet keeps the keys of a JWK set that can verify signatures. It leaves out others, because issuers
// also publish keys for encryption and for algorithms that adapters do not support. The same keys always
// make the same bytes, whatever order and members the issuer has.
func readKeySet(text []byte) (keySet, error) {
	var set struct {
		Keys []map[string]json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil || set.Keys == nil {
		return keySet{}, errKeySet
	}
	if len(set.Keys) > maxKeys {
		return keySet{}, errManyKeys
	}
	var kept keySet
	size := 0
	for _, members := range set.Keys {
		if adapterapi.IsPrivateJWK(members) {
			kept.private = true
			continue
		}
		if key, ok := canonical(members); ok {
			kept.keys = append(kept.keys, key)
			size += len(key)
		}
	}
	if size > maxKeySetBytes {
		return keySet{}, errLargeKeys
	}
	slices.SortFunc(kept.keys, func(a, b json.RawMessage) int { return bytes.Compare(a, b) })
	kept.keys = slices.CompactFunc(kept.keys, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) })
	return kept, nil
}

// canonical is a key with nothing but what a verifier needs. It is false for a key that cannot verify
// signatures.
func canonical(members map[string]json.RawMessage) (json.RawMessage, bool) {
	if operations, has := members["key_ops"]; has && !verifies(operations) {
		return nil, false
	}
	// The library would also read certificates, which the adapter does not use.
	public := map[string]json.RawMessage{}
	for _, name := range []string{"kty", "kid", "alg", "use", "crv", "x", "y", "n", "e"} {
		if value, has := members[name]; has {
			public[name] = value
		}
	}
	text, err := json.Marshal(public)
	if err != nil {
		return nil, false
	}
	var key jose.JSONWebKey
	if key.UnmarshalJSON(text) != nil || !key.Valid() || !usable(key) {
		return nil, false
	}
	// The library writes numbers in the one right way, and the type puts members in order.
	text, err = key.MarshalJSON()
	if err != nil {
		return nil, false
	}
	var ordered publicKey
	if json.Unmarshal(text, &ordered) != nil {
		return nil, false
	}
	text, err = json.Marshal(ordered)
	return text, err == nil
}

func verifies(operations json.RawMessage) bool {
	var list []string
	return json.Unmarshal(operations, &list) == nil && slices.Contains(list, "verify")
}

// The algorithms that tokens may be signed by.
var (
	rsaAlgorithms   = []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512}
	curveAlgorithms = map[string]jose.SignatureAlgorithm{"P-256": jose.ES256, "P-384": jose.ES384, "P-521": jose.ES512}
)

// usable says whether a key may verify the signatures of tokens.
func usable(key jose.JSONWebKey) bool {
	if len(key.KeyID) > maxKeyIDBytes || key.Use != "" && key.Use != "sig" {
		return false
	}
	var algorithms []jose.SignatureAlgorithm
	switch public := key.Key.(type) {
	case *rsa.PublicKey:
		if public.N.BitLen() < adapterapi.MinRSABits || public.E%2 == 0 || public.E > math.MaxInt32 {
			return false
		}
		algorithms = rsaAlgorithms
	case *ecdsa.PublicKey:
		algorithm, known := curveAlgorithms[public.Curve.Params().Name]
		if !known {
			return false
		}
		algorithms = []jose.SignatureAlgorithm{algorithm}
	case ed25519.PublicKey:
		algorithms = []jose.SignatureAlgorithm{jose.EdDSA}
	default:
		return false
	}
	return key.Algorithm == "" || slices.Contains(algorithms, jose.SignatureAlgorithm(key.Algorithm))
}
