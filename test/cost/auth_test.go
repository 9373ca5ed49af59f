package cost

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/test/authserver"
)

// What a token and rules cost a call, beyond what net/http needs to read the header that the token is in.
func TestAuth(t *testing.T) {
	const resource = "https://echo.example.com/mcp"
	issuer := authserver.Start(t, authserver.Options{})
	token := issuer.Mint(map[string]any{"sub": "alice", "aud": resource, "padding": strings.Repeat("p", 300)})
	var keys []json.RawMessage
	for _, key := range issuer.Keys().Keys {
		text, err := key.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, text)
	}
	withAccess := func(access adapterapi.Access) *subject {
		t.Helper()
		access.Version, access.Generation = adapterapi.AccessVersion, 1
		access.Audit = adapterapi.AccessAudit{Level: adapterapi.AuditNone, WhenFull: adapterapi.AuditDrop}
		text, err := json.Marshal(access)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), adapterapi.AccessFile)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return start(t, adapterProgram, "serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--access-file", file, "--", echoServer)
	}
	header := smallCall(t, start(t, emptyProgram), token).objects - smallCall(t, start(t, emptyProgram), "").objects
	none := smallCall(t, withAccess(adapterapi.Access{Mode: adapterapi.AccessNone}), "")
	plain := smallCall(t, startAdapter(t), "")
	required := smallCall(t, withAccess(adapterapi.Access{
		Mode: adapterapi.AccessRequired, Resources: []string{resource},
		Issuers: []adapterapi.AccessIssuer{{
			Name: "corp", Issuer: issuer.Issuer, Audiences: []string{resource}, MaxLifetimeSeconds: 3600, Claims: adapterapi.AccessClaims{User: "sub"}, Keys: keys,
		}},
		Rules: []adapterapi.AccessRule{{Subjects: []adapterapi.AccessSubject{{Kind: adapterapi.SubjectGroup, Name: adapterapi.GroupAuthenticated}}, Tools: []string{"echo"}}},
	}), token)
	t.Logf("net/http allocates %.2f objects for the header; without a document %+v, with one for everybody %+v, with tokens and rules %+v", header, plain, none, required)
	const little = 0.2 // of an object: what else happens in a process
	atMost(t, "objects that a small call allocates for a document that allows everything", none.objects-plain.objects, little)
	atMost(t, "objects that a small call allocates for its token and rules", required.objects-plain.objects-header, authObjects+little)
}
