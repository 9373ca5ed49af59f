package access

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/access/rules"
	"github.com/slipway-mcp/slipway/internal/sidecar/access/token"
)

// MetadataPath is where clients look for the metadata of a resource (RFC 9728).
const MetadataPath = "/.well-known/oauth-protected-resource"

// challenge says how a client of one resource gets a token.
type challenge struct {
	host     string // of the resource, as canonicalHost writes it
	scheme   string
	path     string // of the resource
	metadata string // URL of the metadata; empty if there is no authorization server to name
	document []byte // the metadata
}

// challengesOf prepares the challenges of all resources, in their order.
func challengesOf(access *adapterapi.Access) []challenge {
	var all []challenge
	for _, resource := range access.Resources {
		at, err := url.Parse(resource)
		if err != nil {
			continue // the API allows no such resource
		}
		c := challenge{host: canonicalHost(at.Host, at.Scheme), scheme: at.Scheme, path: at.EscapedPath()}
		if len(access.AuthorizationServers) > 0 {
			c.metadata = at.Scheme + "://" + at.Host + MetadataPath + c.path
			c.document = metadataOf(access, resource)
		}
		all = append(all, c)
	}
	return all
}

func metadataOf(access *adapterapi.Access, resource string) []byte {
	document, err := json.Marshal(struct {
		Resource             string   `json:"resource"`
		AuthorizationServers []string `json:"authorization_servers"`
		BearerMethods        []string `json:"bearer_methods_supported"`
		Scopes               []string `json:"scopes_supported,omitempty"`
		Name                 string   `json:"resource_name,omitempty"`
	}{resource, access.AuthorizationServers, []string{"header"}, access.Scopes, access.Server.Name})
	if err != nil {
		return nil // strings always have an encoding
	}
	return document
}

// challengeFor returns the challenge of the resource that a client has connected to. It is always one of
// the configured resources: a client can send any Host.
func (p *policy) challengeFor(host string) challenge {
	if len(p.challenges) == 0 {
		return challenge{}
	}
	if at := slices.IndexFunc(p.challenges, func(c challenge) bool { return c.host == canonicalHost(host, c.scheme) }); at >= 0 {
		return p.challenges[at]
	}
	return p.challenges[0]
}

// canonicalHost returns a host in lower case, and without the port that URLs of the scheme have anyway. Clients
// send either spelling.
func canonicalHost(host, scheme string) string {
	port := map[string]string{"http": ":80", "https": ":443"}[scheme]
	return strings.TrimSuffix(strings.ToLower(host), port)
}

// Metadata returns the metadata of the resource that a client asks for by the path and its Host. It returns
// false if there is none.
func (g *Gate) Metadata(path, host string) ([]byte, bool) {
	now := g.current.Load()
	if now == nil || now.access.Mode != adapterapi.AccessRequired {
		return nil, false
	}
	inserted, ok := strings.CutPrefix(path, MetadataPath)
	if !ok {
		return nil, false
	}
	c := now.challengeFor(host)
	if inserted != "" && inserted != "/" && inserted != c.path {
		// The path is of another resource, or a proxy has changed the Host.
		at := slices.IndexFunc(now.challenges, func(c challenge) bool { return c.path == inserted })
		if at < 0 {
			return nil, false
		}
		c = now.challenges[at]
	}
	return c.document, c.document != nil
}

// parameter is one of a challenge.
type parameter struct{ name, value string }

// bearer writes a challenge with the parameters that have a value.
func bearer(parameters ...parameter) string {
	text := []byte("Bearer")
	separator := " "
	for _, p := range parameters {
		if p.value == "" {
			continue
		}
		text = append(text, separator+p.name+"="+quoted(p.value)...)
		separator = ", "
	}
	return string(text)
}

// quoted returns a quoted-string of HTTP. The values are of the document, which has no control characters.
func quoted(value string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
}

func scope(scopes []string) parameter { return parameter{"scope", strings.Join(scopes, " ")} }

func (c *challenge) resourceMetadata() parameter { return parameter{"resource_metadata", c.metadata} }

// missing answers a request without a token.
func (c *challenge) missing(scopes []string) *Refusal {
	return &Refusal{
		Status: http.StatusUnauthorized, Code: rpc.CodeUnauthorized, Text: "this server needs a token: send it in the header Authorization, as Bearer",
		Challenge: bearer(c.resourceMetadata(), scope(scopes)), Reason: "missing",
	}
}

// invalid answers a request whose token does not count. It does not say why, which would help to forge one.
func (c *challenge) invalid(scopes []string, reason string) *Refusal {
	return &Refusal{
		Status: http.StatusUnauthorized, Code: rpc.CodeUnauthorized, Text: "this server does not accept the token: get a new one for this server",
		Challenge: bearer(parameter{"error", "invalid_token"}, c.resourceMetadata(), scope(scopes)), Reason: reason,
	}
}

// malformed answers a request whose token cannot be read.
func (*challenge) malformed(text string) *Refusal {
	return &Refusal{Status: http.StatusBadRequest, Code: rpc.CodeInvalidRequest, Text: text, Challenge: `Bearer error="invalid_request"`, Reason: "malformed"}
}

// refusalOf returns the refusal of a request whose token did not pass verification.
func (g *Gate) refusalOf(now *policy, c *challenge, shown digest, err error) *Refusal {
	wrong, ok := errors.AsType[*token.Error](err)
	if !ok {
		return c.invalid(now.access.Scopes, "other")
	}
	at := time.Now()
	if wrong.Reason == token.UnknownKey && now.verdicts.mayBecomeKnown(shown, wrong.Issuer, at) {
		return &Refusal{
			Status: http.StatusServiceUnavailable, Code: rpc.CodeInternal, RetryAfter: retryAfter, Reason: string(wrong.Reason),
			Text: "the key of this token is not known yet: try again in " + strconv.Itoa(retryAfter) + " seconds",
		}
	}
	if wrong.Off > 0 {
		g.noteClock(wrong)
	}
	now.verdicts.refuse(shown, wrong.Reason, at)
	return c.invalid(now.access.Scopes, string(wrong.Reason))
}

// Forbid answers a request whose message the rules do not allow.
func (g *Gate) Forbid(decision *rules.Decision, host string) *Refusal {
	refusal := &Refusal{Status: http.StatusForbidden, Code: rpc.CodeForbidden, Text: decision.Text, Reason: string(decision.Denied)}
	if now := g.current.Load(); now != nil && decision.Denied == rules.DeniedScope {
		c := now.challengeFor(host)
		refusal.Challenge = bearer(parameter{"error", "insufficient_scope"}, scope(decision.Scopes), c.resourceMetadata(),
			parameter{"error_description", "the token lacks a scope that this call needs"})
	}
	return g.countDenied(decision, refusal)
}
