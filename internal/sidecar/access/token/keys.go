package token

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"

	"github.com/go-jose/go-jose/v4"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

// keys are the usable keys of an issuer.
type keys struct {
	all  []key
	byID map[string]key
}

type key struct {
	id        string // may be empty
	algorithm string // the only one that it is for; empty for all that fit its type
	public    any
}

// readKeys skips keys that the adapter cannot use. It skips both of two usable keys with the same ID: the
// ID does not say which is meant. Trying one after the other, or the first one only, would let anyone who
// can add a key to the set take over the ID of another key.
func readKeys(texts []json.RawMessage) keys {
	count := map[string]int{}
	var usable []key
	for _, text := range texts {
		if k, ok := readKey(text); ok {
			usable = append(usable, k)
			count[k.id]++
		}
	}
	result := keys{byID: map[string]key{}}
	for _, k := range usable {
		switch {
		case k.id == "":
			result.all = append(result.all, k)
		case count[k.id] == 1:
			result.all = append(result.all, k)
			result.byID[k.id] = k
		}
	}
	return result
}

// readKey reads a public key for signatures.
func readKey(text []byte) (key, bool) {
	members, ok := readObject(text)
	if !ok {
		return key{}, false
	}
	if adapterapi.IsPrivateJWK(members) {
		return key{}, false
	}
	if use, has := members["use"]; has && use != "sig" {
		return key{}, false
	}
	var jwk jose.JSONWebKey
	if err := jwk.UnmarshalJSON(text); err != nil || !jwk.Valid() || !jwk.IsPublic() {
		return key{}, false
	}
	if public, isRSA := jwk.Key.(*rsa.PublicKey); isRSA && public.N.BitLen() < adapterapi.MinRSABits {
		return key{}, false
	}
	return key{jwk.KeyID, jwk.Algorithm, jwk.Key}, true
}

// verify checks the signature with one key: the one that the token names, or else the only one that can
// have made it.
func (k *keys) verify(token *parsed) Reason {
	chosen, reason := k.choose(token)
	if reason != "" {
		return reason
	}
	if _, err := token.signed.Verify(chosen.public); err != nil {
		return Signature
	}
	return ""
}

func (k *keys) choose(token *parsed) (chosen key, reason Reason) {
	if token.hasKeyID {
		chosen, known := k.byID[token.keyID]
		switch {
		case !known:
			return key{}, UnknownKey
		case !chosen.fits(token.algorithm):
			return key{}, Algorithm
		}
		return chosen, ""
	}
	candidates := 0
	for _, candidate := range k.all {
		if candidate.fits(token.algorithm) {
			chosen = candidate
			candidates++
		}
	}
	switch candidates {
	case 0:
		return key{}, UnknownKey
	case 1:
		return chosen, ""
	}
	// New keys would not help, unlike with an unknown one.
	return key{}, Signature
}

// fits says whether a signature by the algorithm can be one of the key.
func (k *key) fits(algorithm jose.SignatureAlgorithm) bool {
	if k.algorithm != "" && k.algorithm != string(algorithm) {
		return false
	}
	switch public := k.public.(type) {
	case *rsa.PublicKey:
		switch algorithm {
		case jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512:
			return true
		}
	case *ecdsa.PublicKey:
		switch algorithm {
		case jose.ES256:
			return public.Curve == elliptic.P256()
		case jose.ES384:
			return public.Curve == elliptic.P384()
		case jose.ES512:
			return public.Curve == elliptic.P521()
		}
	case ed25519.PublicKey:
		return algorithm == jose.EdDSA
	}
	return false
}
