package authserver

import (
	"crypto/ecdsa"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const resource = "https://echo.example.com/mcp"

var every = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

type claims struct {
	jwt.Claims
	Scope  string   `json:"scope"`
	Client string   `json:"client_id"`
	Groups []string `json:"groups"`
}

// verify is how a resource server may do it.
func verify(keys jose.JSONWebKeySet, issuer, audience, token string) (claims, error) {
	if len(token) > 16<<10 {
		return claims{}, errors.New("too long")
	}
	parsed, err := jwt.ParseSigned(token, every)
	if err != nil {
		return claims{}, err
	}
	header := parsed.Headers[0]
	i := slices.IndexFunc(keys.Keys, func(key jose.JSONWebKey) bool {
		return key.KeyID == header.KeyID && key.Algorithm == header.Algorithm
	})
	if _, critical := header.ExtraHeaders["crit"]; i < 0 || critical {
		return claims{}, errors.New("no key fits")
	}
	var got claims
	if err := parsed.Claims(keys.Keys[i], &got); err != nil {
		return claims{}, err
	}
	return got, got.ValidateWithLeeway(jwt.Expected{Issuer: issuer, AnyAudience: jwt.Audience{audience}, Time: time.Now()}, 0)
}

func TestMint(t *testing.T) {
	server := Start(t, Options{Algorithms: every})
	for _, algorithm := range every {
		t.Run(string(algorithm), func(t *testing.T) {
			got, err := verify(server.Keys(), server.Issuer, resource, server.Mint(map[string]any{"sub": "alice", "aud": []string{"other", resource}}, Algorithm(algorithm)))
			if err != nil {
				t.Fatal(err)
			}
			want := claims{Claims: jwt.Claims{Issuer: server.Issuer, Subject: "alice", Audience: jwt.Audience{"other", resource}}}
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(jwt.Claims{}, "ID", "IssuedAt", "Expiry")); diff != "" {
				t.Errorf("claims (-want +got):\n%s", diff)
			}
			if lifetime := got.Expiry.Time().Sub(got.IssuedAt.Time()); lifetime != 10*time.Minute || got.ID == "" {
				t.Errorf("it is valid for %v, and its ID is %q", lifetime, got.ID)
			}
		})
	}
	t.Run("claims left out", func(t *testing.T) {
		if _, err := verify(server.Keys(), server.Issuer, resource, server.Mint(map[string]any{"aud": resource, "iss": nil})); !errors.Is(err, jwt.ErrInvalidIssuer) {
			t.Errorf("got %v", err)
		}
	})
}

func TestRotate(t *testing.T) {
	server := Start(t, Options{})
	mint := func() string { return server.Mint(map[string]any{"sub": "alice", "aud": resource}) }
	before, first := server.Keys(), mint()
	server.Rotate()
	second := mint()
	tests := map[string]struct {
		keys  jose.JSONWebKeySet
		token string
		valid bool
	}{
		"old token, old keys": {before, first, true},
		"new token, old keys": {before, second, false},
		"old token, new keys": {server.Keys(), first, true},
		"new token, new keys": {server.Keys(), second, true},
	}
	server.Retire()
	tests["old token, old keys retired"] = struct {
		keys  jose.JSONWebKeySet
		token string
		valid bool
	}{server.Keys(), first, false}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := verify(test.keys, server.Issuer, resource, test.token); (err == nil) != test.valid {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A verifier that is right refuses all of them, and takes the token that they were made of.
func TestHostile(t *testing.T) {
	for _, algorithm := range []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.EdDSA} {
		t.Run(string(algorithm), func(t *testing.T) {
			server := Start(t, Options{Algorithms: slices.Compact([]jose.SignatureAlgorithm{algorithm, jose.ES256, jose.ES384})})
			good := map[string]any{"sub": "alice", "aud": resource}
			if _, err := verify(server.Keys(), server.Issuer, resource, server.Mint(good)); err != nil {
				t.Fatal(err)
			}
			for name, token := range server.Hostile(good) {
				if got, err := verify(server.Keys(), server.Issuer, resource, token); err == nil {
					t.Errorf("%s: is valid, with %+v", name, got)
				}
			}
		})
	}
}

// Each verifier has the one mistake that its token is for. It shows that nothing else is wrong with it.
func TestHostileFindsMistakes(t *testing.T) {
	server := Start(t, Options{})
	private := server.current[0]
	public := private.public()
	tests := map[string]func(token string) error{
		"alg none":                       unsigned("none"),
		"alg nOnE":                       unsigned("nOnE"),
		"alg none, without kid":          unsigned("none"),
		"alg empty":                      unsigned(""),
		"HS256 of the public key":        secret(publicPEM(public.Key)),
		"HS256 of the published key":     secret(must(public.MarshalJSON())),
		"HS256 of an empty file as kid":  secret(nil),
		"signature of an attacker":       key(server.attacker(private).public(), nil),
		"jku":                            fetched(server, "jku"),
		"x5u":                            fetched(server, "x5u"),
		"jwk":                            embedded,
		"jwk, without kid":               embedded,
		"key of ES256":                   key(public, nil),
		"ES256 with a short signature":   short(server.current[1].signer.Public().(*ecdsa.PublicKey)),
		"huge":                           key(public, nil),
		"two audiences, the wrong first": key(public, nil),
		"two subjects, a second":         key(public, map[string]any{"sub": "root"}),
		"two subjects, another first":    key(public, nil),
		"two expiries":                   key(public, nil),
		"JWE": func(token string) error {
			parsed, err := jose.ParseEncryptedCompact(token, []jose.KeyAlgorithm{jose.RSA_OAEP_256}, []jose.ContentEncryption{jose.A256GCM})
			if err != nil {
				return err
			}
			inner, err := parsed.Decrypt(private.signer)
			if err != nil {
				return err
			}
			return key(public, nil)(string(inner))
		},
	}
	hostile := server.Hostile(map[string]any{"sub": "alice", "aud": resource})
	for name, fooled := range tests {
		t.Run(name, func(t *testing.T) {
			if err := fooled(hostile[name]); err != nil {
				t.Errorf("the verifier with the mistake refuses it: %v", err)
			}
		})
	}
	// A test above shows for every other token a verifier that accepts it. No simple verifier accepts these.
	// The list is explicit so that no token gets lost.
	rest := slices.DeleteFunc(slices.Sorted(maps.Keys(hostile)), func(name string) bool { return tests[name] != nil })
	want := []string{
		"ES256 with zeros", "ES256 without a signature", "JSON", "crit", "crit b64", "four parts", "padded text",
		"signature cut", "signature with a byte more", "two audiences, the wrong last", "two parts",
	}
	if diff := cmp.Diff(want, rest); diff != "" {
		t.Errorf("others (-want +got):\n%s", diff)
	}
}

// parts decodes a token. Of members that are there twice, the last one counts.
func parts(token string) (header, payload map[string]any, input string, signature []byte, err error) {
	part := strings.Split(token, ".")
	if len(part) != 3 {
		return nil, nil, "", nil, errors.New("want three parts")
	}
	decoded := make([][]byte, 3)
	for i := range part {
		if decoded[i], err = base64.RawURLEncoding.DecodeString(part[i]); err != nil {
			return nil, nil, "", nil, err
		}
	}
	err = errors.Join(json.Unmarshal(decoded[0], &header), json.Unmarshal(decoded[1], &payload))
	return header, payload, part[0] + "." + part[1], decoded[2], err
}

// meant checks the claims, as encoding/json reads them.
func meant(payload, want map[string]any) error {
	if want == nil {
		want = map[string]any{"sub": "alice"}
	}
	if payload["aud"] != resource || payload["sub"] != want["sub"] {
		return errors.New("the claims are others")
	}
	return nil
}

func unsigned(algorithm string) func(string) error {
	return func(token string) error {
		header, payload, _, signature, err := parts(token)
		if err == nil && (header["alg"] != algorithm || len(signature) != 0) {
			err = errors.New("it is signed")
		}
		return errors.Join(err, meant(payload, nil))
	}
}

func secret(secret []byte) func(string) error {
	return func(token string) error {
		header, payload, input, signature, err := parts(token)
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(input))
		if err == nil && (header["alg"] != "HS256" || !hmac.Equal(signature, mac.Sum(nil))) {
			err = errors.New("the MAC is wrong")
		}
		return errors.Join(err, meant(payload, nil))
	}
}

func key(key jose.JSONWebKey, want map[string]any) func(string) error {
	return func(token string) error {
		_, payload, _, _, err := parts(token)
		if err != nil {
			return err
		}
		signed, err := jose.ParseSignedCompact(token, every)
		if err != nil {
			return err
		}
		if _, err := signed.Verify(key.Key); err != nil {
			return err
		}
		return meant(payload, want)
	}
}

func fetched(server *Server, name string) func(string) error {
	return func(token string) error {
		header, _, _, _, err := parts(token)
		if err != nil {
			return err
		}
		response, err := server.HTTPClient().Get(header[name].(string))
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		var set jose.JSONWebKeySet
		if err := json.NewDecoder(response.Body).Decode(&set); err != nil {
			return err
		}
		found := set.Key(header["kid"].(string))
		if len(found) != 1 {
			return errors.New("the key is not there")
		}
		return key(found[0], nil)(token)
	}
}

func embedded(token string) error {
	header, _, _, _, err := parts(token)
	if err != nil {
		return err
	}
	var inside jose.JSONWebKey
	if err := inside.UnmarshalJSON(must(json.Marshal(header["jwk"]))); err != nil {
		return err
	}
	return key(inside, nil)(token)
}

// short takes numbers without their zeros.
func short(public *ecdsa.PublicKey) func(string) error {
	return func(token string) error {
		_, payload, input, signature, err := parts(token)
		if err != nil {
			return err
		}
		digest := sha256.Sum256([]byte(input))
		split := len(signature) - 32
		if split == 32 || !ecdsa.Verify(public, digest[:], new(big.Int).SetBytes(signature[:split]), new(big.Int).SetBytes(signature[split:])) {
			return errors.New("it is not short, or wrong")
		}
		return meant(payload, nil)
	}
}
