package bearer

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/workload"
)

// Given is a token that the user has given by the environment.
type Given struct{ token string }

// b64token is what RFC 6750 allows in a token. Nothing else may get into a header.
var b64token = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`)

// FromEnvironment returns the token of the user, or nil if there is none.
func FromEnvironment(lookUp func(string) string) (*Given, error) {
	token := strings.TrimSpace(lookUp(Variable))
	switch {
	case token == "":
		return nil, nil //nolint:nilnil // no token is no error
	case !b64token.MatchString(token): // the error must not repeat it
		return nil, errors.New(Variable + " holds no bearer token: it must be the token alone, without the word Bearer, quotes or blanks")
	}
	return &Given{token}, nil
}

// String implements Source.
func (g *Given) String() string {
	if claims, ok := g.claims(); ok && claims.Subject != "" {
		return fmt.Sprintf("%s, whose subject is %q", Variable, claims.Subject)
	}
	return Variable
}

// Token implements Source. The environment of a process stays as it is, so the token does, too.
func (g *Given) Token(context.Context) (string, error) { return g.token, nil }

// Refused implements Source. There is no other token.
func (*Given) Refused(string) {}

// claims are what a token says about itself. They are unverified, and good for advice only.
type claims struct {
	Issuer   string          `json:"iss"`
	Subject  string          `json:"sub"`
	Audience json.RawMessage `json:"aud"` // a string, or several
	Expires  float64         `json:"exp"`
	Issued   float64         `json:"iat"`
}

func (c *claims) audiences() []string {
	var one string
	if json.Unmarshal(c.Audience, &one) == nil {
		return []string{one}
	}
	var several []string
	_ = json.Unmarshal(c.Audience, &several) // what is neither has none
	return several
}

// claims reads the middle part of a JWT.
func (g *Given) claims() (claims, bool) {
	var read claims
	parts := strings.Split(g.token, ".")
	if len(parts) != 3 {
		return claims{}, false
	}
	content, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(content, &read) != nil {
		return claims{}, false
	}
	return read, true
}

// Problem says why a server does not accept the token, as far as the token itself shows; empty if it does not
// show. Adapters do not say it, because that would help to forge one.
func (g *Given) Problem(server *mcpv1alpha1.MCPServer, now time.Time) string {
	claims, ok := g.claims()
	if !ok {
		return "It is no JWT that could be read."
	}
	if expires := time.Unix(int64(claims.Expires), 0); claims.Expires > 0 && now.After(expires) {
		return "It has expired at " + expires.UTC().Format(time.RFC3339) + "."
	}
	auth := server.Spec.Auth
	if auth == nil || auth.Mode == mcpv1alpha1.AuthModeServer {
		return "" // only the server knows
	}
	wanted := Audiences(server)
	var longest lifetime
	if i := slices.IndexFunc(auth.Issuers, func(issuer mcpv1alpha1.Issuer) bool { return issuer.URL == claims.Issuer }); i >= 0 {
		longest = lifetimeOf(auth.Issuers[i].MaxLifetime, workload.DefaultIssuerLifetime, "spec.auth.issuers")
		if wanted = words(auth.Issuers[i].Audiences); len(wanted) == 0 {
			wanted = Resources(server)
		}
	} else if auth.Kubernetes == nil { // else it may be that of the cluster, which the spec does not name
		return fmt.Sprintf("Its issuer is %q, which spec.auth.issuers does not have.", claims.Issuer)
	} else {
		longest = lifetimeOf(auth.Kubernetes.MaxLifetime, workload.DefaultClusterLifetime, "spec.auth.kubernetes")
	}
	return cmp.Or(claims.audienceProblem(wanted), claims.lifetimeProblem(longest))
}

// lifetime is how long tokens may be valid, and where a user sets it.
type lifetime struct {
	most time.Duration
	of   string
}

func lifetimeOf(set *metav1.Duration, otherwise time.Duration, of string) lifetime {
	if set != nil {
		return lifetime{set.Duration, of}
	}
	return lifetime{otherwise, of}
}

func (c *claims) lifetimeProblem(longest lifetime) string {
	valid := time.Duration(c.Expires-c.Issued) * time.Second
	if c.Issued == 0 || valid <= longest.most {
		return ""
	}
	return fmt.Sprintf("It is valid for %s, and the server accepts tokens of at most %s (maxLifetime of %s).", valid, longest.most, longest.of)
}

func (c *claims) audienceProblem(wanted []string) string {
	has := c.audiences()
	isWanted := func(audience string) bool {
		return slices.ContainsFunc(wanted, func(w string) bool { return strings.TrimSuffix(w, "/") == strings.TrimSuffix(audience, "/") })
	}
	if len(wanted) > 0 && !slices.ContainsFunc(has, isWanted) {
		return fmt.Sprintf("Its audience is %q, and the server wants one of %q.", has, wanted)
	}
	return ""
}
