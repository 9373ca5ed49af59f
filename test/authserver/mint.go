package authserver

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// attackersKeys is where the keys of an attacker are, below the issuer.
const attackersKeys = "/attacker/keys"

// Forge makes a token other than the server would.
type Forge func(*forgery)

type forgery struct {
	server  *Server
	key     signingKey
	header  map[string]any
	payload []byte
	sign    func(input []byte) []byte
	wrap    func(token string) string
}

// Mint makes a token with these claims. It adds iss, iat, exp and jti if they are not there. A claim that is
// nil is left out.
func (s *Server) Mint(claims map[string]any, forges ...Forge) string {
	now := time.Now()
	all := map[string]any{"iss": s.Issuer, "iat": now.Unix(), "exp": now.Add(s.options.Lifetime).Unix(), "jti": rand.Text()}
	maps.Copy(all, claims)
	maps.DeleteFunc(all, func(_ string, value any) bool { return value == nil })
	key := s.signing(s.options.Algorithms[0])
	forged := &forgery{server: s, header: map[string]any{"typ": "at+jwt"}, payload: must(json.Marshal(all))}
	forged.use(key)
	for _, forge := range forges {
		forge(forged)
	}
	maps.DeleteFunc(forged.header, func(_ string, value any) bool { return value == nil })
	input := encode(must(json.Marshal(forged.header))) + "." + encode(forged.payload)
	token := input + "." + encode(forged.sign([]byte(input)))
	if forged.wrap != nil {
		token = forged.wrap(token)
	}
	return token
}

func (f *forgery) use(key signingKey) {
	f.key, f.sign = key, key.sign
	f.header["alg"], f.header["kid"] = key.algorithm, key.id
}

func encode(part []byte) string { return base64.RawURLEncoding.EncodeToString(part) }

// Algorithm signs with the server's key for an algorithm.
func Algorithm(algorithm jose.SignatureAlgorithm) Forge {
	return func(f *forgery) { f.use(f.server.signing(algorithm)) }
}

// Header sets a member of the header. Nil removes it.
func Header(name string, value any) Forge {
	return func(f *forgery) { f.header[name] = value }
}

// Unsigned leaves the signature out, as alg none does, however it is spelled.
func Unsigned(none string) Forge {
	return func(f *forgery) {
		f.header["alg"] = none
		f.sign = func([]byte) []byte { return nil }
	}
}

// HMAC signs by HS256 with a secret that an attacker knows.
func HMAC(secret []byte) Forge {
	return func(f *forgery) {
		f.header["alg"] = jose.HS256
		f.sign = func(input []byte) []byte {
			mac := hmac.New(sha256.New, secret)
			mac.Write(input)
			return mac.Sum(nil)
		}
	}
}

// HMACOfPublicKey signs by HS256 with the public key, which verifiers have that go by the header's alg.
func HMACOfPublicKey() Forge {
	return func(f *forgery) { HMAC(publicPEM(f.key.signer.Public()))(f) }
}

func publicPEM(key crypto.PublicKey) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: must(x509.MarshalPKIXPublicKey(key))})
}

// ByAttacker signs with a key that the server does not know, and names the server's.
func ByAttacker() Forge {
	return func(f *forgery) { f.sign = f.server.attacker(f.key).sign }
}

// attacker has another key for the same algorithm under the same ID.
func (s *Server) attacker(key signingKey) signingKey {
	keys := s.attackers()
	i := slices.IndexFunc(keys, func(other signingKey) bool { return other.algorithm == key.algorithm })
	return signingKey{id: key.id, algorithm: key.algorithm, signer: keys[i].signer}
}

func (s *Server) attackersSet() (set jose.JSONWebKeySet) {
	for _, algorithm := range s.options.Algorithms {
		set.Keys = append(set.Keys, s.attacker(s.signing(algorithm)).public())
	}
	return set
}

// Signature changes the signature.
func Signature(change func([]byte) []byte) Forge {
	return func(f *forgery) {
		sign := f.sign
		f.sign = func(input []byte) []byte { return change(sign(input)) }
	}
}

// ShortSignature signs by ES256 and leaves a zero at the beginning of the first number out. Verifiers that
// split what they get in the middle read other numbers; those that are lenient take it.
func ShortSignature() Forge {
	return func(f *forgery) {
		Algorithm(jose.ES256)(f)
		f.sign = func(input []byte) []byte {
			for {
				if signature := f.key.sign(input); signature[0] == 0 {
					return signature[1:]
				}
			}
		}
	}
}

// Duplicate adds a claim for a second time, after or before all others. Parsers differ in which one counts.
func Duplicate(claim string, value any, before bool) Forge {
	return func(f *forgery) {
		member := append(must(json.Marshal(claim)), ':')
		member = append(member, must(json.Marshal(value))...)
		inner := bytes.TrimSuffix(bytes.TrimPrefix(f.payload, []byte("{")), []byte("}"))
		members := [][]byte{inner, member}
		if before {
			slices.Reverse(members)
		}
		f.payload = slices.Concat([]byte("{"), bytes.Join(members, []byte(",")), []byte("}"))
	}
}

// Padded makes the payload longer by a claim of this size.
func Padded(size int) Forge { return Duplicate("padding", strings.Repeat("x", size), false) }

// Encrypted puts the token, as it is, into a JWE for the server's key.
func Encrypted() Forge {
	return func(f *forgery) {
		f.wrap = func(token string) string {
			algorithm := jose.ECDH_ES
			switch f.key.algorithm[:2] {
			case "RS", "PS":
				algorithm = jose.RSA_OAEP_256
			}
			options := (&jose.EncrypterOptions{}).WithContentType("JWT").WithType("JWT")
			recipient := jose.Recipient{Algorithm: algorithm, Key: f.key.signer.Public(), KeyID: f.key.id}
			encrypter := must(jose.NewEncrypter(jose.A256GCM, recipient, options))
			return must(must(encrypter.Encrypt([]byte(token))).CompactSerialize())
		}
	}
}

// Hostile makes, of claims that would do, one token for every way to cheat that we know of. A verifier
// refuses them all. ES256 must be among the algorithms.
func (s *Server) Hostile(claims map[string]any) map[string]string {
	rest := strings.SplitN(s.Mint(claims), ".", 3)
	signing := s.signing(s.options.Algorithms[0])
	zeros := func(signature []byte) []byte { return make([]byte, len(signature)) }
	forged := map[string][]Forge{
		"alg none":                       {Unsigned("none")},
		"alg nOnE":                       {Unsigned("nOnE")},
		"alg none, without kid":          {Unsigned("none"), Header("kid", nil)},
		"alg empty":                      {Unsigned("")},
		"HS256 of the public key":        {HMACOfPublicKey()},
		"HS256 of the published key":     {HMAC(must(signing.public().MarshalJSON()))},
		"HS256 of an empty file as kid":  {HMAC(nil), Header("kid", "../../../../../../dev/null")},
		"signature of an attacker":       {ByAttacker()},
		"jku":                            {ByAttacker(), Header("jku", s.Issuer+attackersKeys)},
		"x5u":                            {ByAttacker(), Header("x5u", s.Issuer+attackersKeys)},
		"jwk":                            {ByAttacker(), Header("jwk", s.attacker(signing).public())},
		"jwk, without kid":               {ByAttacker(), Header("jwk", s.attacker(signing).public()), Header("kid", nil)},
		"crit":                           {Header("crit", []string{"exp"}), Header("exp", 1)},
		"crit b64":                       {Header("crit", []string{"b64"}), Header("b64", true)},
		"ES256 with a short signature":   {ShortSignature()},
		"ES256 with zeros":               {Algorithm(jose.ES256), Signature(zeros)},
		"ES256 without a signature":      {Algorithm(jose.ES256), Signature(func([]byte) []byte { return nil })},
		"signature cut":                  {Signature(func(signature []byte) []byte { return signature[:len(signature)-1] })},
		"signature with a byte more":     {Signature(func(signature []byte) []byte { return append(signature, 0) })},
		"huge":                           {Padded(1 << 20)},
		"two audiences, the wrong last":  {Duplicate("aud", "https://other.example.com/mcp", false)},
		"two audiences, the wrong first": {Duplicate("aud", "https://other.example.com/mcp", true)},
		"two subjects, a second":         {Duplicate("sub", "root", false)},
		"two subjects, another first":    {Duplicate("sub", "root", true)},
		"two expiries":                   {Duplicate("exp", time.Now().AddDate(1, 0, 0).Unix(), false)},
	}
	for _, algorithm := range s.options.Algorithms {
		if algorithm != signing.algorithm {
			forged["key of "+string(algorithm)] = []Forge{Header("kid", s.signing(algorithm).id)}
		}
	}
	tokens := map[string]string{
		"two parts":   rest[0] + "." + rest[1],
		"four parts":  strings.Join(rest, ".") + ".e30",
		"JSON":        string(must(json.Marshal(map[string]string{"protected": rest[0], "payload": rest[1], "signature": rest[2]}))),
		"padded text": rest[0] + "=." + rest[1] + "." + rest[2],
	}
	for name, forges := range forged {
		tokens[name] = s.Mint(claims, forges...)
	}
	if _, is := signing.signer.(ed25519.PrivateKey); !is { // an Ed25519 key cannot encrypt
		tokens["JWE"] = s.Mint(claims, Encrypted())
	}
	return tokens
}
