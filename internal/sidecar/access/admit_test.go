package access

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/access/rules"
	"github.com/slipway-mcp/slipway/internal/sidecar/access/token"
	"github.com/slipway-mcp/slipway/test/authserver"
)

const (
	askForToken  = `Bearer resource_metadata="` + metadata + `", scope="mcp:use"`
	invalidToken = `Bearer error="invalid_token", resource_metadata="` + metadata + `", scope="mcp:use"`
	notOne       = "the header Authorization must be one bearer token of at most 16384 bytes"
	getNew       = "this server does not accept the token: get a new one for this server"
)

func missing(challenge string) *Refusal {
	return &Refusal{Status: 401, Code: 401, Text: "this server needs a token: send it in the header Authorization, as Bearer", Challenge: challenge, Reason: "missing"}
}

func invalid(challenge string, reason token.Reason) *Refusal {
	return &Refusal{Status: 401, Code: 401, Text: getNew, Challenge: challenge, Reason: string(reason)}
}

func malformed(text string) *Refusal {
	return &Refusal{Status: 400, Code: rpc.CodeInvalidRequest, Text: text, Challenge: `Bearer error="invalid_request"`, Reason: "malformed"}
}

// TestAdmit has a row for each answer before the body is read.
func TestAdmit(t *testing.T) {
	corp, stranger := startIssuer(t), startIssuer(t)
	good := corp.Mint(claimsOf("alice"))
	with := func(name string, value any) []string {
		claims := claimsOf("alice")
		claims[name] = value
		return []string{"Bearer " + corp.Mint(claims)}
	}
	bearer := func(token string) []string { return []string{"Bearer " + token} }
	kubernetes := func(a *adapterapi.Access) { a.AuthorizationServers, a.Scopes = nil, nil }
	noScopes := func(a *adapterapi.Access) { a.Scopes = nil }
	// The resource that is meant must not be the first, which is that of unknown hosts.
	lastFirst := func(a *adapterapi.Access) { a.Resources = []string{inCluster, resource} }
	withPorts := func(a *adapterapi.Access) { a.Resources = []string{inCluster, "https://echo.example.com:443/mcp"} }
	withIPv6 := func(a *adapterapi.Access) { a.Resources = []string{inCluster, "https://[2001:db8::443]/mcp"} }
	tokenInURL := malformed("a token must be in the header Authorization, and not in the URL")
	now := time.Now()
	tests := map[string]struct {
		authorization []string
		host, query   string
		change        func(*adapterapi.Access)
		want          *Refusal
	}{
		"no header":                              {want: missing(askForToken)},
		"an empty header":                        {authorization: []string{""}, want: missing(askForToken)},
		"Bearer alone":                           {authorization: []string{"Bearer"}, want: missing(askForToken)},
		"Bearer and a blank":                     {authorization: []string{"Bearer "}, want: missing(askForToken)},
		"no header, of another resource":         {host: "echo.demo.svc", want: missing(`Bearer resource_metadata="http://echo.demo.svc/.well-known/oauth-protected-resource/mcp", scope="mcp:use"`)},
		"no header, of a host in capitals":       {host: "ECHO.demo.SVC", want: missing(`Bearer resource_metadata="http://echo.demo.svc/.well-known/oauth-protected-resource/mcp", scope="mcp:use"`)},
		"no header, of the usual port of http":   {host: "echo.demo.svc:80", want: missing(`Bearer resource_metadata="http://echo.demo.svc/.well-known/oauth-protected-resource/mcp", scope="mcp:use"`)},
		"no header, of another port":             {host: "echo.demo.svc:443", want: missing(askForToken)},
		"no header, of the usual port of https":  {host: "Echo.example.com:443", change: lastFirst, want: missing(askForToken)},
		"no header, without the usual port":      {change: withPorts, want: missing(`Bearer resource_metadata="https://echo.example.com:443/.well-known/oauth-protected-resource/mcp", scope="mcp:use"`)},
		"no header, of an IPv6 address":          {host: "[2001:db8::443]", change: withIPv6, want: missing(`Bearer resource_metadata="https://[2001:db8::443]/.well-known/oauth-protected-resource/mcp", scope="mcp:use"`)},
		"no header, of an IPv6 address and port": {host: "[2001:DB8::443]:443", change: withIPv6, want: missing(`Bearer resource_metadata="https://[2001:db8::443]/.well-known/oauth-protected-resource/mcp", scope="mcp:use"`)},
		"no header, of an unknown host":          {host: "evil.example.com", want: missing(askForToken)},
		"no header, of no host":                  {host: " ", want: missing(askForToken)},
		"no header, without scopes":              {change: noScopes, want: missing(`Bearer resource_metadata="` + metadata + `"`)},
		"no header, kubernetes only":             {change: kubernetes, want: missing(`Bearer`)},
		"two tokens":                             {authorization: []string{"Bearer " + good, "Bearer " + good}, want: malformed(notOne)},
		"a token and an empty header":            {authorization: []string{"Bearer " + good, ""}, want: malformed(notOne)},
		"two tokens in a header":                 {authorization: bearer(good + ", Bearer " + good), want: malformed(notOne)},
		"another scheme":                         {authorization: []string{"Basic YTpi"}, want: malformed(notOne)},
		"DPoP":                                   {authorization: []string{"DPoP " + good}, want: malformed(notOne)},
		"no blank":                               {authorization: []string{"Bearer" + good}, want: malformed(notOne)},
		"bytes outside b64token":                 {authorization: bearer(good + "\x00"), want: malformed(notOne)},
		"a quoted token":                         {authorization: bearer(`"` + good + `"`), want: malformed(notOne)},
		"too long":                               {authorization: bearer(strings.Repeat("a", token.MaxBytes+1)), want: malformed(notOne)},
		"as long as may be":                      {authorization: bearer(strings.Repeat("a", token.MaxBytes)), want: invalid(invalidToken, token.Malformed)},
		"in the URL":                             {query: "access_token=" + good, want: tokenInURL},
		"in the URL, without a value":            {query: "access_token", want: tokenInURL},
		"in the URL, in capitals":                {query: "a=b&Access_Token=" + good, want: tokenInURL},
		"in the URL, escaped":                    {query: "access%5ftoken=" + good, want: tokenInURL},
		"in the URL, behind a semicolon":         {query: "a=b;access_token=" + good, want: tokenInURL},
		"in the URL and in the header":           {authorization: bearer(good), query: "access_token=" + good, want: tokenInURL},
		"no token at all":                        {authorization: bearer("abc"), want: invalid(invalidToken, token.Malformed)},
		"of another issuer":                      {authorization: bearer(stranger.Mint(claimsOf("alice"))), want: invalid(invalidToken, token.UnknownIssuer)},
		"of another issuer, without scopes":      {authorization: bearer(stranger.Mint(claimsOf("alice"))), change: noScopes, want: invalid(`Bearer error="invalid_token", resource_metadata="`+metadata+`"`, token.UnknownIssuer)},
		"of another issuer, kubernetes only":     {authorization: bearer(stranger.Mint(claimsOf("alice"))), change: kubernetes, want: invalid(`Bearer error="invalid_token"`, token.UnknownIssuer)},
		"signed by an attacker":                  {authorization: bearer(corp.Mint(claimsOf("alice"), authserver.ByAttacker())), want: invalid(invalidToken, token.Signature)},
		"for another server":                     {authorization: with("aud", "https://other.example.com/mcp"), want: invalid(invalidToken, token.Audience)},
		"without an audience":                    {authorization: with("aud", nil), want: invalid(invalidToken, token.Audience)},
		"expired":                                {authorization: with("exp", now.Add(-time.Minute).Unix()), want: invalid(invalidToken, token.Claims)}, // before iat
		"expired after a while":                  {authorization: bearer(corp.Mint(map[string]any{"sub": "alice", "aud": resource, "iat": now.Add(-time.Hour).Unix(), "exp": now.Add(-time.Minute).Unix()})), want: invalid(invalidToken, token.Expired)},
		"not yet valid":                          {authorization: with("nbf", now.Add(time.Minute).Unix()), want: invalid(invalidToken, token.NotYet)},
		"for too long":                           {authorization: with("exp", now.Add(48*time.Hour).Unix()), want: invalid(invalidToken, token.Lifetime)},
		"without a subject":                      {authorization: with("sub", nil), want: invalid(invalidToken, token.Claims)},
		"bound to a key":                         {authorization: with("cnf", map[string]string{"jkt": "x"}), want: invalid(invalidToken, token.Bound)},
		"good":                                   {authorization: bearer(good)},
		"good, for the other resource":           {authorization: with("aud", inCluster)},
		"good, in lower case":                    {authorization: []string{"bearer " + good}},
		"good, with a query":                     {authorization: bearer(good), query: "access=1&token=2&my_access_token=3"},
		"good, without scopes":                   {authorization: with("scope", nil)}, // a message is refused, not the request
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			document := documentOf(t, corp)
			if test.change != nil {
				test.change(document)
			}
			g := newGate(t, document)
			grant, refusal := g.Admit(Head{Authorization: test.authorization, Host: or(test.host, host), Query: test.query})
			if diff := cmp.Diff(test.want, refusal); diff != "" {
				t.Errorf("refusal (-want +got):\n%s", diff)
			}
			if (grant != nil) != (test.want == nil) {
				t.Errorf("granted %+v", grant)
			}
			if grant != nil && (grant.Identity.User != "corp:alice" || grant.Generation != 1) {
				t.Errorf("granted %+v to %+v", grant, grant.Identity)
			}
		})
	}
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return strings.TrimSpace(text)
}

// Every way to cheat that we know of ends with an answer of section 6.
func TestHostileTokens(t *testing.T) {
	for name, first := range map[string]*authserver.Server{"RS256": authserver.Start(t, authserver.Options{}), "ES256": startIssuer(t)} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t, documentOf(t, first))
			wantGrant(t, g, first.Mint(claimsOf("alice")), "corp:alice")
			for name, hostile := range first.Hostile(claimsOf("alice")) {
				t.Run(name, func(t *testing.T) {
					want, challenge := http.StatusUnauthorized, invalidToken
					if slices.Contains([]string{"huge", "JSON", "padded text"}, name) { // too long, or no b64token
						want, challenge = http.StatusBadRequest, `Bearer error="invalid_request"`
					}
					for range 2 { // the second time it is known
						grant, refusal := admit(g, hostile)
						if grant != nil || refusal == nil || refusal.Status != want || refusal.Challenge != challenge {
							t.Fatalf("got %+v, %+v, want %d", grant, refusal, want)
						}
					}
				})
			}
		})
	}
}

func TestForbid(t *testing.T) {
	corp := startIssuer(t)
	tests := map[string]struct {
		decision rules.Decision
		host     string
		change   func(*adapterapi.Access)
		want     Refusal
	}{
		"no rule": {
			decision: rules.Decision{Denied: rules.DeniedRule, Kind: rules.Tools, Text: "no"},
			want:     Refusal{Status: 403, Code: 403, Text: "no", Reason: "no_rule"},
		},
		"blocked": {
			decision: rules.Decision{Denied: rules.DeniedBlock, Text: "no"},
			want:     Refusal{Status: 403, Code: 403, Text: "no", Reason: "blocked"},
		},
		"scopes": {
			decision: rules.Decision{Denied: rules.DeniedScope, Kind: rules.Tools, Text: "no", Scopes: []string{"issues:write", "mcp:use"}},
			want: Refusal{
				Status: 403, Code: 403, Text: "no", Reason: "scope",
				Challenge: `Bearer error="insufficient_scope", scope="issues:write mcp:use", resource_metadata="` + metadata + `", error_description="the token lacks a scope that this call needs"`,
			},
		},
		"scopes of another resource": {
			decision: rules.Decision{Denied: rules.DeniedScope, Scopes: []string{"a"}}, host: "echo.demo.svc",
			want: Refusal{
				Status: 403, Code: 403, Reason: "scope",
				Challenge: `Bearer error="insufficient_scope", scope="a", resource_metadata="http://echo.demo.svc/.well-known/oauth-protected-resource/mcp", error_description="the token lacks a scope that this call needs"`,
			},
		},
		"scopes, and nowhere to log in": {
			decision: rules.Decision{Denied: rules.DeniedScope, Scopes: []string{"a"}}, change: func(a *adapterapi.Access) { a.AuthorizationServers = nil },
			want: Refusal{Status: 403, Code: 403, Reason: "scope", Challenge: `Bearer error="insufficient_scope", scope="a", error_description="the token lacks a scope that this call needs"`},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			document := documentOf(t, corp)
			if test.change != nil {
				test.change(document)
			}
			if diff := cmp.Diff(&test.want, newGate(t, document).Forbid(&test.decision, or(test.host, host))); diff != "" {
				t.Errorf("refusal (-want +got):\n%s", diff)
			}
		})
	}
}

// A value with a quote must not end the parameter of a challenge.
func TestChallengeIsQuoted(t *testing.T) {
	const want = `Bearer scope="a\"b\\c"`
	if got := bearer(parameter{"scope", `a"b\c`}, parameter{"empty", ""}); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// The document decides whether callers need a token, or the options if there is no document.
func TestAdmitWithoutTokens(t *testing.T) {
	corp := startIssuer(t)
	stale := []string{"Bearer of.a.server"}
	noDocument := &Refusal{Status: 503, Code: rpc.CodeInternal, Text: ErrNoDocument.Error(), RetryAfter: 5, Reason: "no_document"}
	open := func(mode adapterapi.AccessMode) *adapterapi.Access {
		return documentOf(t, corp, func(a *adapterapi.Access) {
			a.Mode, a.Rules, a.Issuers, a.Resources, a.Scopes, a.AuthorizationServers = mode, nil, nil, nil, nil, nil
		})
	}
	tests := map[string]struct {
		required bool
		document *adapterapi.Access
		want     *Refusal
		verifies bool
	}{
		"no document, and one is required": {required: true, want: noDocument},
		"no document, and none is needed":  {},
		"mode None":                        {required: true, document: open(adapterapi.AccessNone)},
		"mode Server":                      {required: true, document: open(adapterapi.AccessOfServer)},
		"mode Required":                    {document: documentOf(t, corp), want: invalid(invalidToken, token.Malformed), verifies: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := New(Options{Ring: ring, Required: test.required})
			if test.document != nil {
				take(t, g, test.document)
			}
			grant, refusal := g.Admit(Head{Authorization: stale, Host: host})
			if diff := cmp.Diff(test.want, refusal); diff != "" {
				t.Errorf("refusal (-want +got):\n%s", diff)
			}
			if grant != nil && (grant.Identity != nil || grant.Principal != "" || grant.Rights != nil) {
				t.Errorf("granted %+v", grant)
			}
			if err := g.Ready(); (err != nil) != (test.want == noDocument) {
				t.Errorf("Ready: %v", err)
			}
			if g.Verifies() != test.verifies {
				t.Errorf("Verifies is %t", g.Verifies())
			}
		})
	}
}
