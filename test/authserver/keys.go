package authserver

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/asn1"
	"fmt"
	"math/big"
	"slices"
	"sync"

	"github.com/go-jose/go-jose/v4"
)

// signingKey is a key for one algorithm.
type signingKey struct {
	id        string
	algorithm jose.SignatureAlgorithm
	signer    crypto.Signer
}

func (k signingKey) public() jose.JSONWebKey {
	return jose.JSONWebKey{Key: k.signer.Public(), KeyID: k.id, Algorithm: string(k.algorithm), Use: "sig"}
}

// sign makes a signature as JWS has it.
func (k signingKey) sign(input []byte) []byte {
	var options crypto.SignerOpts
	digest := input
	if k.algorithm == jose.EdDSA {
		options = crypto.Hash(0)
	} else {
		hash := map[string]crypto.Hash{"256": crypto.SHA256, "384": crypto.SHA384, "512": crypto.SHA512}[string(k.algorithm[2:])]
		hasher := hash.New()
		hasher.Write(input)
		digest, options = hasher.Sum(nil), hash
		if k.algorithm[:2] == "PS" {
			options = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: hash}
		}
	}
	signature := must(k.signer.Sign(rand.Reader, digest, options))
	if key, is := k.signer.(*ecdsa.PrivateKey); is {
		return raw(signature, (key.Curve.Params().BitSize+7)/8)
	}
	return signature
}

// raw turns a signature of ECDSA from ASN.1 into two numbers of equal size.
func raw(signature []byte, size int) []byte {
	var numbers struct{ R, S *big.Int }
	must(asn1.Unmarshal(signature, &numbers))
	return slices.Concat(numbers.R.FillBytes(make([]byte, size)), numbers.S.FillBytes(make([]byte, size)))
}

// generate makes a key for each algorithm. Those of RSA are one key, which takes a while to make.
func generate(algorithms []jose.SignatureAlgorithm) (keys []signingKey) {
	ofRSA := sync.OnceValue(func() crypto.Signer { return must(rsa.GenerateKey(rand.Reader, 2048)) })
	for _, algorithm := range algorithms {
		key := signingKey{id: rand.Text(), algorithm: algorithm}
		switch algorithm {
		case jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512:
			key.signer = ofRSA()
		case jose.ES256:
			key.signer = must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
		case jose.ES384:
			key.signer = must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))
		case jose.ES512:
			key.signer = must(ecdsa.GenerateKey(elliptic.P521(), rand.Reader))
		case jose.EdDSA:
			_, private, err := ed25519.GenerateKey(rand.Reader)
			key.signer = must(private, err)
		default:
			panic(fmt.Sprintf("there are no keys for %s", algorithm))
		}
		keys = append(keys, key)
	}
	return keys
}

// Rotate signs with new keys from now on. The old ones stay published.
func (s *Server) Rotate() {
	fresh := generate(s.options.Algorithms)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current, s.retired = fresh, append(s.retired, s.current...)
}

// Retire publishes only the keys that sign.
func (s *Server) Retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = nil
}

// Keys are the public keys, as the server publishes them.
func (s *Server) Keys() jose.JSONWebKeySet {
	s.mu.Lock()
	defer s.mu.Unlock()
	var set jose.JSONWebKeySet
	for _, key := range slices.Concat(s.current, s.retired) {
		set.Keys = append(set.Keys, key.public())
	}
	return set
}

// signing is the key of an algorithm.
func (s *Server) signing(algorithm jose.SignatureAlgorithm) signingKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.current, func(key signingKey) bool { return key.algorithm == algorithm })
	if i < 0 {
		panic(fmt.Sprintf("the server has no key for %s", algorithm))
	}
	return s.current[i]
}

// must is for what cannot fail, except by a mistake of the test that asks for it.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
