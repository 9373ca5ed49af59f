package adapter

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
)

// AccessDocument is what an adapter goes by that runs with --access-file.
type AccessDocument struct {
	Path string
	adapterapi.Access
}

// NewAccess writes a document for a server at the URL, whose callers need a token of the issuer.
func NewAccess(t testing.TB, url string, issuer adapterapi.AccessIssuer, rules ...adapterapi.AccessRule) *AccessDocument {
	t.Helper()
	document := &AccessDocument{Path: filepath.Join(t.TempDir(), adapterapi.AccessFile), Access: adapterapi.Access{
		Version: adapterapi.AccessVersion, Mode: adapterapi.AccessRequired, Server: adapterapi.AccessServer{Namespace: "demo", Name: "test"},
		Resources: []string{url}, AuthorizationServers: []string{issuer.Issuer}, Issuers: []adapterapi.AccessIssuer{issuer}, Rules: rules,
		Audit: adapterapi.AccessAudit{Level: adapterapi.AuditNone, WhenFull: adapterapi.AuditDrop},
	}}
	document.Write(t)
	return document
}

// Write replaces the file by the next generation of the document.
func (d *AccessDocument) Write(t testing.TB) {
	t.Helper()
	d.Generation++
	text, err := json.Marshal(d.Access)
	if err != nil {
		t.Fatalf("encode access: %v", err)
	}
	// The adapter may read at any time, so the file changes in one step.
	if err := os.WriteFile(d.Path+".new", text, 0o600); err != nil {
		t.Fatalf("write access: %v", err)
	}
	if err := os.Rename(d.Path+".new", d.Path); err != nil {
		t.Fatalf("write access: %v", err)
	}
}

// Issuer describes one with these keys, whose tokens are for the audience.
func Issuer(t testing.TB, url, audience string, keys jose.JSONWebKeySet) adapterapi.AccessIssuer {
	t.Helper()
	issuer := adapterapi.AccessIssuer{
		Name: "corp", Issuer: url, Audiences: []string{audience}, MaxLifetimeSeconds: int64(time.Hour.Seconds()),
		Claims: adapterapi.AccessClaims{User: "sub", Groups: "groups", Client: "azp"},
	}
	for i := range keys.Keys {
		key, err := json.Marshal(&keys.Keys[i])
		if err != nil {
			t.Fatalf("encode key: %v", err)
		}
		issuer.Keys = append(issuer.Keys, key)
	}
	return issuer
}

// Everything allows every caller with a token to use everything that the rule does not limit.
func Everything() adapterapi.AccessRule {
	all := []string{"*"}
	return adapterapi.AccessRule{
		Subjects: []adapterapi.AccessSubject{{Kind: adapterapi.SubjectGroup, Name: adapterapi.GroupAuthenticated}},
		Tools:    all, Prompts: all, Resources: all,
	}
}
