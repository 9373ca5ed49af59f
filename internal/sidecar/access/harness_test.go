package access

import (
	"encoding/json"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/test/authserver"
)

const (
	resource  = "https://echo.example.com/mcp"
	host      = "echo.example.com"
	metadata  = "https://echo.example.com/.well-known/oauth-protected-resource/mcp"
	inCluster = "http://echo.demo.svc/mcp"
	client    = "192.0.2.7"
)

// Tokens are verified by ES256 where it does not matter: making them takes less time.
func startIssuer(t testing.TB) *authserver.Server {
	t.Helper()
	return authserver.Start(t, authserver.Options{Algorithms: []jose.SignatureAlgorithm{jose.ES256, jose.RS256}})
}

func keysOf(t testing.TB, s *authserver.Server) (keys []json.RawMessage) {
	t.Helper()
	for _, key := range s.Keys().Keys {
		text, err := key.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, text)
	}
	return keys
}

// documentOf says that users of corp may call the tool search, and with the scope issues:write create_issue.
func documentOf(t testing.TB, corp *authserver.Server, changes ...func(*adapterapi.Access)) *adapterapi.Access {
	t.Helper()
	access := &adapterapi.Access{
		Version: adapterapi.AccessVersion, Generation: 1, Server: adapterapi.AccessServer{Namespace: "demo", Name: "echo"}, Mode: adapterapi.AccessRequired,
		Resources: []string{resource, inCluster}, AuthorizationServers: []string{corp.Issuer},
		Issuers: []adapterapi.AccessIssuer{{
			Name: "corp", Issuer: corp.Issuer, Audiences: []string{resource, inCluster}, MaxLifetimeSeconds: 86400,
			Claims: adapterapi.AccessClaims{User: "sub", Groups: "groups", Client: "azp"}, Keys: keysOf(t, corp),
		}},
		Scopes: []string{"mcp:use"},
		Rules: []adapterapi.AccessRule{
			{Subjects: []adapterapi.AccessSubject{{Kind: adapterapi.SubjectGroup, Name: adapterapi.GroupAuthenticated}}, Tools: []string{"search"}},
			{Subjects: []adapterapi.AccessSubject{{Kind: adapterapi.SubjectUser, Name: "corp:alice"}}, Tools: []string{"create_issue"}, Scopes: []string{"issues:write"}},
		},
		Audit: adapterapi.AccessAudit{Level: adapterapi.AuditNone, WhenFull: adapterapi.AuditDrop},
	}
	for _, change := range changes {
		change(access)
	}
	return access
}

// claimsOf are those of a token that counts.
func claimsOf(subject string) map[string]any {
	return map[string]any{"sub": subject, "aud": resource, "scope": "mcp:use"}
}

var testKey = adapterapi.NewKey()

func ring() adapterapi.Keyring { return adapterapi.Keyring{Current: testKey} }

// newGate returns a Gate with the document in effect, if there is one.
func newGate(t testing.TB, document *adapterapi.Access) *Gate {
	t.Helper()
	g := New(Options{Ring: ring, Required: true, Log: logr.Discard()})
	if document != nil {
		take(t, g, document)
	}
	return g
}

func take(t testing.TB, g *Gate, document *adapterapi.Access) {
	t.Helper()
	signed, err := document.Sign(testKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Take([]byte(signed.Text)); err != nil {
		t.Fatal(err)
	}
}

// admit asks with one token.
func admit(g *Gate, token string) (*Grant, *Refusal) {
	return g.Admit(Head{Authorization: []string{"Bearer " + token}, Host: host, Client: client})
}

// wantGrant fails unless the token is that of the user.
func wantGrant(t testing.TB, g *Gate, token, user string) *Grant {
	t.Helper()
	grant, refusal := admit(g, token)
	if refusal != nil {
		t.Fatalf("refused with %+v", *refusal)
	}
	if grant.Identity == nil || grant.Identity.User != user || grant.Principal != "user "+user {
		t.Fatalf("granted to %+v, want %s", grant, user)
	}
	return grant
}

func wantRefusal(t testing.TB, g *Gate, token string, status int, reason string) *Refusal {
	t.Helper()
	grant, refusal := admit(g, token)
	if refusal == nil || grant != nil || refusal.Status != status || refusal.Reason != reason {
		t.Fatalf("got %+v, %+v, want %d for %s", grant, refusal, status, reason)
	}
	return refusal
}
