package edge

import (
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
)

// Unverified names callers by the claims of their tokens. It verifies no token: a principal
// tells callers apart, and gives them no rights.
type Unverified struct {
	// IsProbe reports whether the manager sent a request; nil means that it sends none.
	IsProbe func(*http.Request) bool
}

// Authenticate lets every request pass.
func (u Unverified) Authenticate(r *http.Request) (caller.Caller, *Refusal) {
	return unverified(r, u.IsProbe != nil && u.IsProbe(r)), nil
}

func unverified(r *http.Request, probe bool) caller.Caller {
	authorization := r.Header["Authorization"]
	return caller.Caller{
		Principal:     principalOf(authorization),
		Address:       addressOf(r.RemoteAddr),
		Probe:         probe,
		Authorization: authorization,
		Trace:         traceOf(r.Header),
	}
}

// traceOf returns the headers of W3C Trace Context and Baggage.
func traceOf(header http.Header) (trace map[string][]string) {
	for _, name := range [...]string{"Traceparent", "Tracestate", "Baggage"} {
		if values := header[name]; len(values) > 0 {
			if trace == nil {
				trace = map[string][]string{}
			}
			trace[name] = values
		}
	}
	return trace
}

func addressOf(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	return host
}

// claimBytes bounds the claims of a token that Unverified decodes. The limit for headers
// is larger.
const claimBytes = 16 << 10

// nameBytes bounds the issuer and the subject of a principal, because the adapter holds a
// principal as long as its sessions.
const nameBytes = 512

// principalOf returns the principal of an Authorization header. A refreshed token has the
// same issuer and subject, and so the same principal.
func principalOf(authorization []string) caller.Principal {
	if len(authorization) == 0 {
		return caller.Anonymous
	}
	if len(authorization) > 1 {
		return caller.SomeToken
	}
	issuer, subject := claimsOf(authorization[0])
	if issuer == "" || subject == "" || len(issuer) > nameBytes || len(subject) > nameBytes {
		return caller.SomeToken
	}
	// Quotes keep issuer and subject apart: without them, two pairs could have one name.
	return caller.Principal("jwt " + strconv.Quote(issuer) + " " + strconv.Quote(subject))
}

// claimsOf reads the issuer and the subject of a JWT. Both are empty for anything else.
func claimsOf(shown string) (issuer, subject string) {
	_, token, _ := strings.Cut(shown, " ")
	parts := strings.Split(strings.TrimSpace(token), ".")
	if len(parts) != 3 || len(parts[1]) > claimBytes {
		return "", ""
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", ""
	}
	var claims struct {
		Issuer  string `json:"iss"`
		Subject string `json:"sub"`
	}
	if json.Unmarshal(text, &claims) != nil {
		return "", ""
	}
	return claims.Issuer, claims.Subject
}
