package access

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/access/rules"
	"github.com/slipway-mcp/slipway/internal/sidecar/document"
	"github.com/slipway-mcp/slipway/internal/sidecar/identity"
	"github.com/slipway-mcp/slipway/test/authserver"
)

// generation returns a document that differs from others of other generations only by that.
func generation(n int64) func(*adapterapi.Access) {
	return func(a *adapterapi.Access) { a.Generation = n }
}

func signedText(t *testing.T, access *adapterapi.Access, key adapterapi.Key) string {
	t.Helper()
	signed, err := access.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	return signed.Text
}

func TestTake(t *testing.T) {
	corp := startIssuer(t)
	g := newGate(t, nil)
	changes := 0
	g.OnChange(func() { changes++ })
	if diff := cmp.Diff(adapterapi.AccessState{Version: 1}, g.State()); diff != "" || g.Document() != nil {
		t.Errorf("state before (-want +got):\n%s", diff)
	}
	of := func(n int64, changes ...func(*adapterapi.Access)) string {
		return signedText(t, documentOf(t, corp, append(changes, generation(n))...), testKey)
	}
	noIssuer := func(a *adapterapi.Access) { a.Issuers[0].Name = "system" }
	badRule := func(a *adapterapi.Access) { a.Rules[0].Tools = []string{"a*b"} }
	hides := func(a *adapterapi.Access) { a.Hidden = []string{"x"} }
	for _, step := range []struct {
		name, text string
		err        error  // that it wraps; may be nil
		want       string // of the error; empty for none
		generation int64
		changes    int
	}{
		{name: "not signed by us", text: signedText(t, documentOf(t, corp), adapterapi.NewKey()), err: adapterapi.ErrAccessUnsigned, want: "signature"},
		{name: "the first", text: of(5), generation: 5, changes: 1},
		{name: "the same", text: of(5), generation: 5, changes: 1},
		{name: "an older one", text: of(4), err: document.ErrOlder, want: "generation 4 after 5", generation: 5, changes: 1},
		{name: "not a document", text: "{}", want: "decode access", generation: 5, changes: 1},
		{name: "not signed by us, and newer", text: signedText(t, documentOf(t, corp, generation(6)), adapterapi.NewKey()), err: adapterapi.ErrAccessUnsigned, want: "signature", generation: 5, changes: 1},
		{name: "a rule that cannot be enforced", text: of(6, badRule), want: "compile access", generation: 5, changes: 1},
		{name: "an issuer that cannot be told apart", text: of(6, noIssuer), want: "make verifier", generation: 5, changes: 1},
		// The manager has signed it with another key, or white space outside of it has changed.
		{name: "another of that generation", text: of(5, hides), generation: 5, changes: 2},
		{name: "a newer one", text: of(9), generation: 9, changes: 3},
		{name: "the first again", text: of(5), err: document.ErrOlder, want: "older", generation: 9, changes: 3},
	} {
		err := g.Take([]byte(step.text))
		if (err == nil) != (step.want == "") || err != nil && !strings.Contains(err.Error(), step.want) || step.err != nil && !errors.Is(err, step.err) {
			t.Errorf("%s: %v, want %q", step.name, err, step.want)
		}
		if state := g.State(); state.Generation != step.generation || changes != step.changes || step.want == "" && state.Digest != adapterapi.SettingsDigest([]byte(step.text)) {
			t.Errorf("%s: %+v is in effect after %d changes, want generation %d after %d", step.name, state, changes, step.generation, step.changes)
		}
	}
}

// In a pod the kubelet writes the document; without a manager its user does, who does not count
// generations.
func TestMountedDocument(t *testing.T) {
	corp := startIssuer(t)
	synctest.Test(t, func(t *testing.T) {
		for _, signed := range []bool{true, false} {
			file := filepath.Join(t.TempDir(), adapterapi.AccessFile)
			write := func(n int64, mode adapterapi.AccessMode) {
				t.Helper()
				a := documentOf(t, corp, generation(n), func(a *adapterapi.Access) { a.Mode = mode })
				text := signedText(t, a, testKey)
				if !signed {
					_, text, _ = strings.Cut(strings.TrimSuffix(text, "\n}\n"), `"access": `)
				}
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			options := Options{File: file, Required: true}
			if signed {
				options.Ring = ring
			}
			write(3, adapterapi.AccessNone)
			g := New(options)
			if err := g.Ready(); err != nil || g.Verifies() {
				t.Fatalf("signed %t: the document is not read at the start: %v", signed, err)
			}
			ctx, end := context.WithCancel(t.Context())
			go g.Run(ctx)
			write(4, adapterapi.AccessRequired)
			time.Sleep(document.ReadInterval)
			synctest.Wait()
			if !g.Verifies() {
				t.Errorf("signed %t: generation %d is in effect, want 4", signed, g.State().Generation)
			}
			write(2, adapterapi.AccessNone)
			time.Sleep(document.ReadInterval)
			synctest.Wait()
			if g.Verifies() != signed {
				t.Errorf("signed %t: generation %d is in effect after 2 was mounted", signed, g.State().Generation)
			}
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			time.Sleep(document.ReadInterval)
			synctest.Wait()
			if g.Document() == nil {
				t.Errorf("signed %t: nothing is in effect after the file has gone", signed)
			}
			end()
		}
	})
}

func TestMetadata(t *testing.T) {
	corp := startIssuer(t)
	several := func(a *adapterapi.Access) {
		a.Resources = []string{resource, "https://mcp.example.com:8443/team/echo", "https://echo.example.com/second"}
	}
	of := func(resource string) string {
		return fmt.Sprintf(`{"resource":%q,"authorization_servers":[%q],"bearer_methods_supported":["header"],"scopes_supported":["mcp:use"],"resource_name":"echo"}`, resource, corp.Issuer)
	}
	tests := map[string]struct {
		path, host string
		change     func(*adapterapi.Access)
		want       string // empty for none
	}{
		"root":                            {path: MetadataPath, host: host, want: of(resource)},
		"root with a slash":               {path: MetadataPath + "/", host: host, want: of(resource)},
		"root of another host":            {path: MetadataPath, host: "mcp.example.com:8443", want: of("https://mcp.example.com:8443/team/echo")},
		"root of another host, capitals":  {path: MetadataPath, host: "MCP.example.com:8443", want: of("https://mcp.example.com:8443/team/echo")},
		"root of another port":            {path: MetadataPath, host: "mcp.example.com", want: of(resource)},
		"root of an unknown host":         {path: MetadataPath, host: "evil.example.com", want: of(resource)},
		"root of no host":                 {path: MetadataPath, want: of(resource)},
		"inserted":                        {path: MetadataPath + "/mcp", host: host, want: of(resource)},
		"inserted, second of the host":    {path: MetadataPath + "/second", host: host, want: of("https://echo.example.com/second")},
		"inserted, of another host":       {path: MetadataPath + "/team/echo", host: "mcp.example.com:8443", want: of("https://mcp.example.com:8443/team/echo")},
		"inserted, behind a proxy":        {path: MetadataPath + "/team/echo", host: "10.0.0.1:16270", want: of("https://mcp.example.com:8443/team/echo")},
		"inserted, of no resource":        {path: MetadataPath + "/other", host: host},
		"inserted, with a slash more":     {path: MetadataPath + "/mcp/", host: host},
		"another document":                {path: "/.well-known/openid-configuration", host: host},
		"a longer name":                   {path: MetadataPath + "-x", host: host},
		"kubernetes only":                 {path: MetadataPath, host: host, change: func(a *adapterapi.Access) { a.AuthorizationServers = nil }},
		"kubernetes only, inserted":       {path: MetadataPath + "/mcp", host: host, change: func(a *adapterapi.Access) { a.AuthorizationServers = nil }},
		"mode None":                       {path: MetadataPath, host: host, change: func(a *adapterapi.Access) { a.Mode = adapterapi.AccessNone }},
		"mode Server":                     {path: MetadataPath, host: host, change: func(a *adapterapi.Access) { a.Mode, a.Rules = adapterapi.AccessOfServer, nil }},
		"resource as it is written":       {path: MetadataPath, host: "echo.example.com", change: func(a *adapterapi.Access) { a.Resources = []string{"https://Echo.Example.com/mcp"} }, want: of("https://Echo.Example.com/mcp")},
		"resource without a path":         {path: MetadataPath, host: host, change: func(a *adapterapi.Access) { a.Resources = []string{"https://echo.example.com"} }, want: of("https://echo.example.com")},
		"path of a resource without path": {path: MetadataPath + "/mcp", host: host, change: func(a *adapterapi.Access) { a.Resources = []string{"https://echo.example.com"} }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			a := documentOf(t, corp, several)
			if test.change != nil {
				test.change(a)
			}
			got, ok := newGate(t, a).Metadata(test.path, test.host)
			if string(got) != test.want || ok != (test.want != "") {
				t.Errorf("got %t %s\nwant %s", ok, got, test.want)
			}
		})
	}
	if _, ok := newGate(t, nil).Metadata(MetadataPath, host); ok {
		t.Error("there is metadata without a document")
	}
}

// stream is one that only listens, of a token.
func stream(t *testing.T, g *Gate, corp *authserver.Server, user string) (ctx context.Context, over func()) {
	t.Helper()
	return g.Listen(t.Context(), wantGrant(t, g, corp.Mint(claimsOf(user)), "corp:"+user))
}

func TestListenEndsWithTheToken(t *testing.T) {
	corp := startIssuer(t)
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, documentOf(t, corp))
		ctx, over := stream(t, g, corp, "alice")
		defer over()
		closed, close := stream(t, g, corp, "bob")
		close()
		time.Sleep(10*time.Minute + 30*time.Second - time.Nanosecond)
		synctest.Wait()
		if err := context.Cause(ctx); err != nil {
			t.Errorf("ended too early: %v", err)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if err := context.Cause(ctx); !errors.Is(err, ErrExpired) {
			t.Errorf("30 s after the token expired: %v", err)
		}
		if err := context.Cause(closed); errors.Is(err, ErrExpired) {
			t.Errorf("a stream that was over: %v", err)
		}
		if got := len(g.streams.open); got != 1 {
			t.Errorf("%d streams are kept, want that of alice", got)
		}
	})
}

func TestListenEndsWithTheRules(t *testing.T) {
	corp := startIssuer(t)
	only := func(n int64, users ...string) *adapterapi.Access {
		return documentOf(t, corp, generation(n), func(a *adapterapi.Access) {
			a.Rules = a.Rules[:1]
			a.Rules[0].Subjects = nil
			for _, user := range users {
				a.Rules[0].Subjects = append(a.Rules[0].Subjects, adapterapi.AccessSubject{Kind: adapterapi.SubjectUser, Name: "corp:" + user})
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, only(1, "alice", "bob"))
		late := wantGrant(t, g, corp.Mint(claimsOf("bob")), "corp:bob")
		alice, overAlice := stream(t, g, corp, "alice")
		defer overAlice()
		bob, overBob := stream(t, g, corp, "bob")
		defer overBob()
		take(t, g, only(2, "alice"))
		if err := context.Cause(alice); err != nil {
			t.Errorf("alice keeps her rule: %v", err)
		}
		if err := context.Cause(bob); !errors.Is(err, ErrRevoked) {
			t.Errorf("bob lost his rule: %v", err)
		}
		// The document changed after bob was admitted, and before he listens.
		behind, overBehind := g.Listen(t.Context(), late)
		defer overBehind()
		if err := context.Cause(behind); !errors.Is(err, ErrRevoked) {
			t.Errorf("bob listens with a grant of the document before: %v", err)
		}
		anonymous, overAnonymous := g.Listen(t.Context(), &Grant{Generation: 1})
		defer overAnonymous()
		if err := context.Cause(anonymous); !errors.Is(err, ErrRevoked) {
			t.Errorf("a stream without a token, now that one is needed: %v", err)
		}
	})
}

func TestKeeps(t *testing.T) {
	corp := startIssuer(t)
	alice := &identity.Identity{Issuer: "corp", User: "corp:alice", Groups: []string{adapterapi.GroupAuthenticated}}
	block := func(a *adapterapi.Access) {
		a.Blocked = []adapterapi.AccessSubject{{Kind: adapterapi.SubjectUser, Name: "corp:alice"}}
	}
	onlyBob := func(a *adapterapi.Access) {
		a.Rules[0].Subjects[0] = adapterapi.AccessSubject{Kind: adapterapi.SubjectUser, Name: "corp:bob"}
		a.Rules = a.Rules[:1]
	}
	scoped := func(a *adapterapi.Access) { a.Rules = a.Rules[1:] }
	none := func(a *adapterapi.Access) { a.Mode, a.Rules = adapterapi.AccessNone, nil }
	hidden := func(a *adapterapi.Access) { a.Mode, a.Rules, a.Hidden = adapterapi.AccessNone, nil, []string{"*"} }
	ofServer := func(a *adapterapi.Access) { a.Mode, a.Rules = adapterapi.AccessOfServer, nil }
	tests := map[string]struct {
		change func(*adapterapi.Access)
		who    *identity.Identity
		want   bool
	}{
		"a rule":                              {func(*adapterapi.Access) {}, alice, true},
		"a rule that needs another scope":     {scoped, alice, true},
		"no rule":                             {onlyBob, alice, false},
		"blocked":                             {block, alice, false},
		"no token, and one is needed":         {func(*adapterapi.Access) {}, nil, false},
		"a token, and none is needed":         {none, alice, false},
		"no token, and none is needed":        {none, nil, true},
		"no token, and all tools are hidden":  {hidden, nil, true},
		"no token, and the server looks":      {ofServer, nil, true},
		"a token, and the server looks at it": {ofServer, alice, false},
	}
	for name, test := range tests {
		if got := newGate(t, documentOf(t, corp, test.change)).Keeps(test.who); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if g := newGate(t, nil); !g.Keeps(alice) || !g.Keeps(nil) {
		t.Error("there is no document that could leave a caller without rights")
	}
}

func TestMetrics(t *testing.T) {
	corp := startIssuer(t)
	g := newGate(t, documentOf(t, corp, generation(7)))
	token := corp.Mint(claimsOf("alice"))
	for range 3 {
		wantGrant(t, g, token, "corp:alice")
		_, _ = g.Admit(Head{Host: host})
	}
	wantRefusal(t, g, "abc", 401, "malformed")
	wantRefusal(t, g, "abc", 401, "malformed")
	g.Forbid(&rules.Decision{Denied: rules.DeniedRule, Kind: rules.Tools}, host)
	g.Forbid(&rules.Decision{Denied: rules.DeniedRule, Kind: rules.Tools}, host)
	g.Forbid(&rules.Decision{Denied: rules.DeniedBlock}, host)
	const want = `
# HELP slipway_adapter_access_denied_total Messages denied by the access rules, by kind and reason. Absent until the first denial.
# TYPE slipway_adapter_access_denied_total counter
slipway_adapter_access_denied_total{kind="",reason="blocked"} 1
slipway_adapter_access_denied_total{kind="tools",reason="no_rule"} 2
# HELP slipway_adapter_access_generation Generation of the access rules in effect. 0 if there are none.
# TYPE slipway_adapter_access_generation gauge
slipway_adapter_access_generation 7
# HELP slipway_adapter_auth_total Tokens that the adapter verified, and requests that it refused before it read their body, by result. The adapter verifies each token once.
# TYPE slipway_adapter_auth_total counter
slipway_adapter_auth_total{result="malformed"} 2
slipway_adapter_auth_total{result="missing"} 3
slipway_adapter_auth_total{result="verified"} 1
`
	if err := testutil.CollectAndCompare(g, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
