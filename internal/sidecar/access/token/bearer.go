package token

import "strings"

// Problem is what is wrong with the header Authorization of a request.
type Problem uint8

// The problems.
const (
	// Presented is none: there is a token.
	Presented Problem = iota
	// None means that no token came, so that the answer asks for one.
	None
	// Invalid means that the header is malformed, or has something else than one bearer token.
	Invalid
)

const scheme = "Bearer"

// Bearer finds the token in the values of the header Authorization. It does not allocate memory.
func Bearer(authorization []string) (token string, problem Problem) {
	switch len(authorization) {
	case 0:
		return "", None
	case 1:
	default:
		return "", Invalid
	}
	value := authorization[0]
	if value == "" {
		return "", None
	}
	if len(value) < len(scheme) || !strings.EqualFold(value[:len(scheme)], scheme) {
		return "", Invalid
	}
	rest := value[len(scheme):]
	token = strings.TrimLeft(rest, " ")
	switch {
	case token == "":
		return "", None
	case len(token) == len(rest) || len(token) > MaxBytes || !isB64Token(token):
		return "", Invalid
	}
	return token, Presented
}

// isB64Token says whether the text is what RFC 6750 calls b64token.
func isB64Token(text string) bool {
	text = strings.TrimRight(text, "=")
	for i := range len(text) {
		if c := text[i]; (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && strings.IndexByte("-._~+/", c) < 0 {
			return false
		}
	}
	return text != ""
}
