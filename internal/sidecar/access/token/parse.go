package token

import (
	"encoding/base64"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// algorithms are those that count. With HMAC, a public key would be the secret.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512,
	jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512,
	jose.EdDSA,
}

// parsed is a token whose signature is not verified yet.
type parsed struct {
	algorithm jose.SignatureAlgorithm
	keyID     string
	hasKeyID  bool
	claims    object
	signed    *jose.JSONWebSignature
}

// parse reads a signed JWT in compact form. It reads header and claims by itself, because go-jose allows
// more than one spelling of a token.
func parse(text string) (*parsed, Reason) {
	// An encrypted token has five parts.
	if len(text) > MaxBytes || strings.Count(text, ".") != 2 {
		return nil, Malformed
	}
	parts := strings.Split(text, ".")
	if _, ok := decodePart(parts[2]); !ok {
		return nil, Malformed
	}
	header, ok := readPart(parts[0])
	if !ok {
		return nil, Malformed
	}
	token := &parsed{}
	if reason := token.readHeader(header); reason != "" {
		return nil, reason
	}
	if token.claims, ok = readPart(parts[1]); !ok {
		return nil, Malformed
	}
	// go-jose reads the header again. With one algorithm to choose from, it cannot read another.
	var err error
	if token.signed, err = jose.ParseSignedCompact(text, []jose.SignatureAlgorithm{token.algorithm}); err != nil {
		return nil, Malformed
	}
	return token, ""
}

// readHeader takes from the header what counts. It ignores keys, and places of keys, that a token brings
// along: jwk, jku, x5c, x5u.
func (t *parsed) readHeader(header object) Reason {
	// crit asks for an extension, and there is none that this package knows. b64 is one that go-jose
	// would heed.
	for _, name := range []string{"crit", "b64"} {
		if _, ok := header[name]; ok {
			return Malformed
		}
	}
	if isNested(header) || isOtherKind(header) {
		return Malformed
	}
	var isText bool
	if id, ok := header["kid"]; ok {
		if t.keyID, isText = id.(string); !isText {
			return Malformed
		}
		t.hasKeyID = true
	}
	name, isText := header["alg"].(string)
	if !isText {
		return Malformed
	}
	if t.algorithm = jose.SignatureAlgorithm(name); !slices.Contains(algorithms, t.algorithm) {
		return Algorithm
	}
	return ""
}

// isNested says whether the payload is a token again.
func isNested(header object) bool {
	contentType, present := header["cty"]
	name, isText := contentType.(string)
	return present && (!isText || strings.HasSuffix(strings.ToLower(name), "jwt"))
}

// isOtherKind says whether the header names a kind of token that gives no access, such as logout+jwt or
// dpop+jwt. Other parties get to see those, and could present them here. Access tokens have at+jwt, JWT or
// nothing.
func isOtherKind(header object) bool {
	kind, present := header["typ"]
	name, isText := kind.(string)
	name = strings.TrimPrefix(strings.ToLower(name), "application/")
	return present && (!isText || strings.HasSuffix(name, "+jwt") && name != "at+jwt")
}

func readPart(part string) (object, bool) {
	text, ok := decodePart(part)
	if !ok {
		return nil, false
	}
	return readObject(text)
}

// decodePart decodes the one spelling of a part. A decoder that is not strict ignores line ends and spare
// bits, so that others could make many tokens of one.
func decodePart(part string) ([]byte, bool) {
	if strings.ContainsAny(part, "\r\n") {
		return nil, false
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(part)
	return text, err == nil
}
