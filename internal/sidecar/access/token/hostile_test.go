package token

import (
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
)

// hmacToken has the public key as the secret, in one of its spellings.
func hmacToken(t *testing.T, header string, secret []byte) string {
	t.Helper()
	input := encode([]byte(header)) + "." + encode([]byte(claims(t, nil)))
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(input))
	return input + "." + encode(mac.Sum(nil))
}

func encrypted(t *testing.T, contentType jose.ContentType) string {
	t.Helper()
	options := (&jose.EncrypterOptions{}).WithContentType(contentType)
	encrypter, err := jose.NewEncrypter(jose.A128GCM, jose.Recipient{Algorithm: jose.RSA_OAEP, Key: rsaKey().Public(), KeyID: "rsa"}, options)
	if err != nil {
		t.Fatalf("make encrypter: %v", err)
	}
	object, err := encrypter.Encrypt([]byte(goodToken(t, nil)))
	if err != nil {
		t.Fatalf("encrypt: %v", err)
	}
	text, err := object.CompactSerialize()
	if err != nil {
		t.Fatalf("serialize: %v", err)
	}
	return text
}

func TestVerifyRefusesForgedTokens(t *testing.T) {
	der, err := x509.MarshalPKIXPublicKey(rsaKey().Public())
	if err != nil {
		t.Fatalf("encode key: %v", err)
	}
	p256 := ecKey(elliptic.P256())
	unsigned := func(header string) string {
		return encode([]byte(header)) + "." + encode([]byte(claims(t, nil))) + "."
	}
	// resigned replaces the signature of a good token by ES256.
	resigned := func(change func(signature []byte) []byte) string {
		input := encode([]byte(`{"alg":"ES256","kid":"p256"}`)) + "." + encode([]byte(claims(t, nil)))
		return input + "." + encode(change(signature(t, "ES256", []byte(input), p256)))
	}
	stray := jwk(t, strayKey(), "stray", nil)
	good := goodToken(t, nil)
	parts := strings.Split(good, ".")

	for name, test := range map[string]struct {
		text string
		want Reason
	}{
		"alg none":                       {unsigned(`{"alg":"none"}`), Algorithm},
		"alg None":                       {unsigned(`{"alg":"None","kid":"rsa"}`), Algorithm},
		"alg none with a signature":      {signText(t, "RS256", `{"alg":"none","kid":"rsa"}`, claims(t, nil), rsaKey()), Algorithm},
		"no alg":                         {unsigned(`{"kid":"rsa"}`), Malformed},
		"alg is a number":                {unsigned(`{"alg":0}`), Malformed},
		"alg is a list":                  {unsigned(`{"alg":["RS256"]}`), Malformed},
		"alg in lower case":              {signText(t, "RS256", `{"alg":"rs256","kid":"rsa"}`, claims(t, nil), rsaKey()), Algorithm},
		"no signature":                   {unsigned(`{"alg":"RS256","kid":"rsa"}`), Signature},
		"HS256 with the key in DER":      {hmacToken(t, `{"alg":"HS256","kid":"rsa"}`, der), Algorithm},
		"HS256 with the key in PEM":      {hmacToken(t, `{"alg":"HS256","kid":"rsa"}`, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})), Algorithm},
		"HS256 with the JWK":             {hmacToken(t, `{"alg":"HS256","kid":"rsa"}`, jwk(t, rsaKey(), "rsa", nil)), Algorithm},
		"HMAC that says RS256":           {hmacToken(t, `{"alg":"RS256","kid":"rsa"}`, der), Signature},
		"RS256 that says PS256":          {signText(t, "RS256", `{"alg":"PS256","kid":"rsa"}`, claims(t, nil), rsaKey()), Signature},
		"kid traversal":                  {signText(t, "RS256", `{"alg":"RS256","kid":"../../../../dev/null"}`, claims(t, nil), rsaKey()), UnknownKey},
		"kid with a query":               {signText(t, "RS256", `{"alg":"RS256","kid":"rsa' or '1'='1"}`, claims(t, nil), rsaKey()), UnknownKey},
		"kid in other case":              {signText(t, "RS256", `{"alg":"RS256","kid":"RSA"}`, claims(t, nil), rsaKey()), UnknownKey},
		"kid with NUL":                   {signText(t, "RS256", `{"alg":"RS256","kid":"rsa\u0000"}`, claims(t, nil), rsaKey()), UnknownKey},
		"kid is empty":                   {signText(t, "RS256", `{"alg":"RS256","kid":""}`, claims(t, nil), rsaKey()), UnknownKey},
		"kid is a number":                {signText(t, "RS256", `{"alg":"RS256","kid":1}`, claims(t, nil), rsaKey()), Malformed},
		"kid is null":                    {signText(t, "RS256", `{"alg":"RS256","kid":null}`, claims(t, nil), rsaKey()), Malformed},
		"KID does not count":             {signText(t, "RS256", `{"alg":"RS256","KID":"ed"}`, claims(t, nil), rsaKey()), ""},
		"other key behind jwk":           {signText(t, "RS256", `{"alg":"RS256","kid":"rsa","jwk":`+string(stray)+`}`, claims(t, nil), strayKey()), Signature},
		"other key behind jwk, no kid":   {signText(t, "RS256", `{"alg":"RS256","jwk":`+string(stray)+`}`, claims(t, nil), strayKey()), Signature},
		"other key behind jku":           {signText(t, "RS256", `{"alg":"RS256","kid":"rsa","jku":"https://evil.example.com/jwks"}`, claims(t, nil), strayKey()), Signature},
		"other key behind x5u":           {signText(t, "RS256", `{"alg":"RS256","kid":"rsa","x5u":"https://evil.example.com/x"}`, claims(t, nil), strayKey()), Signature},
		"other key":                      {signText(t, "RS256", `{"alg":"RS256","kid":"rsa"}`, claims(t, nil), strayKey()), Signature},
		"crit":                           {signText(t, "EdDSA", `{"alg":"EdDSA","kid":"ed","crit":["exp"],"exp":1}`, claims(t, nil), edKey()), Malformed},
		"crit is empty":                  {signText(t, "EdDSA", `{"alg":"EdDSA","kid":"ed","crit":[]}`, claims(t, nil), edKey()), Malformed},
		"crit is null":                   {signText(t, "EdDSA", `{"alg":"EdDSA","kid":"ed","crit":null}`, claims(t, nil), edKey()), Malformed},
		"b64":                            {signText(t, "EdDSA", `{"alg":"EdDSA","kid":"ed","b64":false,"crit":["b64"]}`, claims(t, nil), edKey()), Malformed},
		"b64 without crit":               {rawPayload(t, `{"alg":"EdDSA","kid":"ed","b64":false}`), Malformed},
		"nested":                         {signText(t, "EdDSA", `{"alg":"EdDSA","kid":"ed","cty":"JWT"}`, good, edKey()), Malformed},
		"nested by its header":           {signText(t, "EdDSA", `{"alg":"EdDSA","kid":"ed","cty":"jwt"}`, claims(t, nil), edKey()), Malformed},
		"nested by a media type":         {signText(t, "EdDSA", `{"alg":"EdDSA","kid":"ed","cty":"application/at+JWT"}`, claims(t, nil), edKey()), Malformed},
		"cty is a list":                  {signText(t, "EdDSA", `{"alg":"EdDSA","kid":"ed","cty":["JWT"]}`, claims(t, nil), edKey()), Malformed},
		"logout token":                   {signText(t, "EdDSA", `{"alg":"EdDSA","kid":"ed","typ":"logout+jwt"}`, claims(t, nil), edKey()), Malformed},
		"proof of DPoP":                  {signText(t, "EdDSA", `{"alg":"EdDSA","kid":"ed","typ":"Application/DPoP+JWT"}`, claims(t, nil), edKey()), Malformed},
		"typ is a list":                  {signText(t, "EdDSA", `{"alg":"EdDSA","kid":"ed","typ":["JWT"]}`, claims(t, nil), edKey()), Malformed},
		"encrypted":                      {encrypted(t, ""), Malformed},
		"encrypted, with a token":        {encrypted(t, "JWT"), Malformed},
		"JSON serialization":             {fmt.Sprintf(`{"protected":%q,"payload":%q,"signature":%q}`, parts[0], parts[1], parts[2]), Malformed},
		"JSON serialization with two":    {fmt.Sprintf(`{"payload":%q,"signatures":[{"protected":%q,"signature":%q}]}`, parts[1], parts[0], parts[2]), Malformed},
		"empty":                          {"", Malformed},
		"dots":                           {"..", Malformed},
		"one part":                       {parts[0], Malformed},
		"two parts":                      {parts[0] + "." + parts[1], Malformed},
		"four parts":                     {good + ".", Malformed},
		"detached payload":               {parts[0] + ".." + parts[2], Malformed},
		"padded":                         {good + "=", Malformed},
		"line end at the end":            {good + "\n", Malformed},
		"line end in the payload":        {parts[0] + ".\r\n" + parts[1] + "." + parts[2], Malformed},
		"blank in front":                 {" " + good, Malformed},
		"huge":                           {goodToken(t, map[string]any{"x": strings.Repeat("x", MaxBytes)}), Malformed},
		"many dots":                      {strings.Repeat(".", MaxBytes), Malformed},
		"deep header":                    {signText(t, "EdDSA", `{"alg":"EdDSA","kid":"ed","x":`+strings.Repeat("[", 5000)+strings.Repeat("]", 5000)+`}`, claims(t, nil), edKey()), Malformed},
		"deep claims":                    {signText(t, "EdDSA", `{"alg":"EdDSA","kid":"ed"}`, `{"x":`+strings.Repeat(`{"x":`, 1000)+`1`+strings.Repeat("}", 1001), edKey()), Malformed},
		"claims are a list":              {signText(t, "EdDSA", `{"alg":"EdDSA","kid":"ed"}`, `[`+claims(t, nil)+`]`, edKey()), Malformed},
		"two objects":                    {signText(t, "EdDSA", `{"alg":"EdDSA","kid":"ed"}`, claims(t, nil)+claims(t, nil), edKey()), Malformed},
		"byte order mark":                {signText(t, "EdDSA", `{"alg":"EdDSA","kid":"ed"}`, "\ufeff"+claims(t, nil), edKey()), Malformed},
		"not UTF-8":                      {signText(t, "EdDSA", `{"alg":"EdDSA","kid":"ed"}`, strings.Replace(claims(t, nil), "alice", "\xff", 1), edKey()), Malformed},
		"ES256, DER":                     {resigned(func(s []byte) []byte { return toDER(t, s) }), Signature},
		"ES256, short":                   {resigned(func(s []byte) []byte { return s[:63] }), Signature},
		"ES256, half":                    {resigned(func(s []byte) []byte { return s[:32] }), Signature},
		"ES256, long":                    {resigned(func(s []byte) []byte { return append(s, 0) }), Signature},
		"ES256, padded numbers":          {resigned(func(s []byte) []byte { return append(append([]byte{0}, s[:32]...), append([]byte{0}, s[32:]...)...) }), Signature},
		"ES256, zeros":                   {resigned(func(s []byte) []byte { return make([]byte, len(s)) }), Signature},
		"ES256, empty":                   {resigned(func([]byte) []byte { return nil }), Signature},
		"ES384 with a key of ES256":      {signText(t, "ES384", `{"alg":"ES384","kid":"p256"}`, claims(t, nil), p256), Algorithm},
		"ES256 with a key of ES384":      {signText(t, "ES256", `{"alg":"ES256","kid":"p384"}`, claims(t, nil), ecKey(elliptic.P384())), Algorithm},
		"ES256 with a key of RS256":      {signText(t, "ES256", `{"alg":"ES256","kid":"rsa"}`, claims(t, nil), p256), Algorithm},
		"EdDSA with a key of ES256":      {signText(t, "EdDSA", `{"alg":"EdDSA","kid":"p256"}`, claims(t, nil), edKey()), Algorithm},
		"RS256 with a key of EdDSA":      {signText(t, "RS256", `{"alg":"RS256","kid":"ed"}`, claims(t, nil), rsaKey()), Algorithm},
		"other claims, same signature":   {parts[0] + "." + encode([]byte(claims(t, map[string]any{"sub": "bob"}))) + "." + parts[2], Signature},
		"bound to a key":                 {goodToken(t, map[string]any{"cnf": map[string]any{"jkt": "x"}}), Bound},
		"bound to a certificate":         {goodToken(t, map[string]any{"cnf": map[string]any{"x5t#S256": "x"}}), Bound},
		"bound to nothing":               {goodToken(t, map[string]any{"cnf": nil}), Bound},
		"bound, and expired":             {goodToken(t, map[string]any{"cnf": nil, "exp": 0}), Bound},
		"bound in other words is no cnf": {goodToken(t, map[string]any{"CNF": nil}), ""},
		"header is pretty":               {signText(t, "EdDSA", "{ \"kid\" : \"ed\",\n\t\"alg\":\"Ed\\u0044SA\" }", claims(t, nil), edKey()), ""},
		"own key behind jwk":             {signText(t, "RS256", `{"alg":"RS256","kid":"rsa","jwk":`+string(stray)+`,"jku":"https://evil.example.com"}`, claims(t, nil), rsaKey()), ""},
		"cty of plain JSON":              {signText(t, "EdDSA", `{"alg":"EdDSA","kid":"ed","cty":"json"}`, claims(t, nil), edKey()), ""},
		"typ of an access token":         {signText(t, "EdDSA", `{"alg":"EdDSA","kid":"ed","typ":"application/AT+jwt"}`, claims(t, nil), edKey()), ""},
		"as long as it may be":           {longest(t), ""},
		"one byte longer than it may be": {longest(t) + "A", Malformed},
		"good token, to compare with":    {good, ""},
		"another iss in a claim":         {goodToken(t, map[string]any{"x": map[string]any{"iss": "x"}}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := verifyAt(t, newVerifier(t, corpIssuer(allKeys(t)...)), test.text, now)
			if got := reasonOf(t, err); got != test.want {
				t.Fatalf("got reason %q, want %q", got, test.want)
			}
			if err != nil && err.Error() != "verify token: "+string(test.want) {
				t.Errorf("the error says more than the reason: %v", err)
			}
		})
	}
}

// rawPayload is signed as RFC 7797 has it: without base64.
func rawPayload(t *testing.T, header string) string {
	t.Helper()
	payload := []byte(claims(t, nil))
	input := append([]byte(encode([]byte(header))+"."), payload...)
	return encode([]byte(header)) + "." + encode(payload) + "." + encode(signature(t, "EdDSA", input, edKey()))
}

func toDER(t *testing.T, signature []byte) []byte {
	t.Helper()
	half := len(signature) / 2
	der, err := asn1.Marshal(struct{ R, S *big.Int }{new(big.Int).SetBytes(signature[:half]), new(big.Int).SetBytes(signature[half:])})
	if err != nil {
		t.Fatalf("encode signature: %v", err)
	}
	return der
}

// longest is a token of exactly MaxBytes. Base64 has no text of some lengths, so it also tries several
// headers.
func longest(t *testing.T) string {
	t.Helper()
	spare := (MaxBytes - len(goodToken(t, nil))) * 3 / 4
	for padding := spare - 16; padding < spare; padding++ {
		for blanks := range 3 {
			header := `{"alg":"EdDSA","kid":"ed"}` + strings.Repeat(" ", blanks)
			text := signText(t, "EdDSA", header, claims(t, map[string]any{"x": strings.Repeat("x", padding)}), edKey())
			if len(text) == MaxBytes {
				return text
			}
		}
	}
	t.Fatalf("no token has %d bytes", MaxBytes)
	return ""
}

// A parser that takes the last of two members, or the first, or ignores case, must not see another token
// than the adapter. The good members come last here, because that is what encoding/json goes by.
func TestVerifyRefusesDuplicates(t *testing.T) {
	v := newVerifier(t, corpIssuer(allKeys(t)...))
	goodHeader, goodClaims := `"alg":"EdDSA","kid":"ed"`, strings.Trim(claims(t, nil), "{}")
	for name, test := range map[string]struct {
		header, claims string // in front of the good ones
		want           Reason
	}{
		"none":                         {"", "", ""},
		"others":                       {`"typ":"JWT"`, `"nonce":1`, ""},
		"iss":                          {"", `"iss":"https://evil"`, Malformed},
		"iss, the same":                {"", `"iss":"` + corp + `"`, Malformed},
		"iss with an escape":           {"", `"\u0069ss":"https://evil"`, Malformed},
		"iss in capitals":              {"", `"ISS":"https://evil"`, Malformed},
		"iss with a long s":            {"", `"iſs":"https://evil"`, Malformed},
		"iss with a dotless i":         {"", `"ıss":"https://evil"`, Malformed},
		"iss and NUL":                  {"", `"iss\u0000":"https://evil"`, Malformed},
		"iss and a blank":              {"", `"iss ":"https://evil"`, Malformed},
		"iss with a zero-width joiner": {"", `"i\u200dss":"https://evil"`, Malformed},
		"aud":                          {"", `"aud":"x"`, Malformed},
		"aud in other case":            {"", `"Aud":"x"`, Malformed},
		"exp":                          {"", `"exp":1`, Malformed},
		"sub":                          {"", `"sub":"bob"`, Malformed},
		"sub in other case":            {"", `"suB":"bob"`, Malformed},
		"any claim":                    {"", `"x":1,"x":1`, Malformed},
		"claim in two other cases":     {"", `"Nonce":1,"nonCE":2`, Malformed},
		"groups in two cases":          {"", `"groups":["a"],"Groups":["b"]`, Malformed},
		"nested":                       {"", `"realm_access":{"roles":["a"],"roles":["b"]}`, Malformed},
		"nested in a list":             {"", `"x":[{"a":1,"\u0061":2}]`, Malformed},
		"nested in two cases":          {"", `"resource_access":{"App":1,"app":2}`, ""},
		"alg":                          {`"alg":"none"`, "", Malformed},
		"alg, the same":                {`"alg":"EdDSA"`, "", Malformed},
		"alg in other case":            {`"Alg":"none"`, "", Malformed},
		"alg with an escape":           {`"a\u006cg":"none"`, "", Malformed},
		"kid":                          {`"kid":"rsa"`, "", Malformed},
		"kid in other case":            {`"Kid":"rsa"`, "", Malformed},
		"kid with the Kelvin sign":     {`"\u212aid":"rsa"`, "", Malformed},
		"crit in other case":           {`"Crit":["x"]`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			join := func(first, second string) string {
				return "{" + strings.TrimPrefix(first+","+second, ",") + "}"
			}
			text := signText(t, "EdDSA", join(test.header, goodHeader), join(test.claims, goodClaims), edKey())
			_, err := verifyAt(t, v, text, now)
			if got := reasonOf(t, err); got != test.want {
				t.Errorf("got reason %q, want %q", got, test.want)
			}
		})
	}
}

// Names in capitals do not count, although encoding/json would take them.
func TestVerifyReadsNamesExactly(t *testing.T) {
	v := newVerifier(t, corpIssuer(allKeys(t)...))
	for name, want := range map[string]Reason{"iss": UnknownIssuer, "aud": Audience, "exp": Claims, "iat": Claims, "sub": Claims} {
		good := claims(t, nil)
		text := signText(t, "EdDSA", `{"alg":"EdDSA","kid":"ed"}`, strings.Replace(good, `"`+name+`"`, `"`+strings.ToUpper(name)+`"`, 1), edKey())
		_, err := verifyAt(t, v, text, now)
		if got := reasonOf(t, err); got != want {
			t.Errorf("%s in capitals: got reason %q, want %q", name, got, want)
		}
	}
}

// Every other spelling of a token is another token, and no good one: also one whose last character has
// spare bits.
func TestVerifyRefusesEveryMutation(t *testing.T) {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	v := newVerifier(t, corpIssuer(allKeys(t)...))
	for name, text := range map[string]string{
		"RS256": signText(t, "RS256", `{"alg":"RS256","kid":"rsa"}`, claims(t, nil), rsaKey()),
		"ES256": signText(t, "ES256", `{"alg":"ES256","kid":"p256"}`, claims(t, nil), ecKey(elliptic.P256())),
		"EdDSA": goodToken(t, nil),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := verifyAt(t, v, text, now); err != nil {
				t.Fatalf("Verify: %v", err)
			}
			for i := range len(text) {
				place := strings.IndexByte(alphabet, text[i])
				for _, other := range []byte{alphabet[(place+1)%64], alphabet[(place+63)%64], alphabet[(place+32)%64], '.', '='} {
					mutated := text[:i] + string(other) + text[i+1:]
					if mutated == text {
						continue
					}
					if _, err := verifyAt(t, v, mutated, now); err == nil {
						t.Errorf("took the token with %q instead of %q at %d", other, text[i], i)
					}
				}
			}
		})
	}
}
