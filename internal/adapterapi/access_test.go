package adapterapi

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// wholeAccess has every member that there is.
func wholeAccess() Access {
	return Access{
		Version: AccessVersion, Generation: 1_794_900_000_000, Server: AccessServer{Namespace: "demo", Name: "echo"}, Mode: AccessRequired,
		Resources: []string{"https://echo.example.com/mcp"}, AuthorizationServers: []string{"https://login.example.com/realms/main"},
		Issuers: []AccessIssuer{
			{Name: KubernetesIssuer, Issuer: "https://kubernetes.default.svc", Audiences: []string{"https://echo.example.com/mcp"}, MaxLifetimeSeconds: 3600, Claims: AccessClaims{User: "sub"}},
			{
				Name: "corp", Issuer: "https://login.example.com/realms/main", Audiences: []string{"mcp-echo"}, MaxLifetimeSeconds: 86400,
				Claims: AccessClaims{User: "sub", Groups: "realm_access.roles", Client: "azp"},
				Keys:   []json.RawMessage{json.RawMessage(`{"kty":"OKP","crv":"Ed25519","kid":"k1","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}`)},
			},
		},
		Scopes: []string{"mcp:use"}, ScopeImplies: map[string][]string{"issues:admin": {"issues:write"}, "a": {"b"}},
		Rules: []AccessRule{
			{Subjects: []AccessSubject{{SubjectUser, "system:serviceaccount:agents:triage"}, {SubjectGroup, "corp:sre"}}, Tools: []string{"search", "list_*"}, Prompts: []string{"*"}, Resources: []string{"docs://handbook/"}},
			{Subjects: []AccessSubject{{SubjectGroup, GroupAuthenticated}}, Tools: []string{"create_issue"}, Scopes: []string{"issues:write"}},
		},
		Blocked: []AccessSubject{{SubjectClient, "corp:<bad>&co"}}, Hidden: []string{"admin_*"}, Audit: AccessAudit{AuditMetadata, AuditRefuse},
	}
}

func signed(t testing.TB, access Access, key Key) Document {
	t.Helper()
	document, err := access.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	return document
}

// sameAccess ignores the blanks in keys: the document is indented, and they are JSON, too.
func sameAccess(t *testing.T, want, got Access) {
	t.Helper()
	wanted, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	have, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(wanted), string(have)); diff != "" {
		t.Errorf("access (-want +got):\n%s", diff)
	}
}

// Pods may be two minor versions older than the manager. Adapters of a version must always be able to
// read the file of that version.
func TestAccessIsStable(t *testing.T) {
	key, err := ParseKey(strings.Repeat("5a", KeySize))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("testdata/access-v1.json")
	if err != nil {
		t.Fatal(err)
	}
	want := Document{1_794_900_000_000, SettingsDigest(text), string(text)}
	for range 5 { // the order of a map is another each time
		if diff := cmp.Diff(want, signed(t, wholeAccess(), key)); diff != "" {
			t.Fatalf("document (-want +got):\n%s", diff)
		}
	}
	got, err := Keyring{Current: key}.OpenAccess(text)
	if err != nil {
		t.Fatal(err)
	}
	sameAccess(t, wholeAccess(), got)
}

func TestOpenAccess(t *testing.T) {
	key, former := NewKey(), NewKey()
	text := signed(t, wholeAccess(), key).Text
	settings, err := Settings{Version: SettingsVersion, Generation: 1, AllowedHosts: []string{"a"}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	large := wholeAccess()
	large.Hidden = []string{strings.Repeat("a", MaxAccessBytes-len(text)+len("admin_*"))}
	tests := map[string]struct {
		ring Keyring
		text string
		want string // of the error; empty for none
	}{
		"the current key":          {Keyring{Current: key}, text, ""},
		"a key that is accepted":   {Keyring{Current: former, Accepted: []Key{NewKey(), key}}, text, ""},
		"as large as may be":       {Keyring{Current: key}, signed(t, large, key).Text, ""},
		"other blanks around it":   {Keyring{Current: key}, "\n" + text + " ", ""},
		"another key":              {Keyring{Current: former}, text, ErrAccessUnsigned.Error()},
		"no key":                   {Keyring{}, text, ErrAccessUnsigned.Error()},
		"no MAC":                   {Keyring{Current: key}, `{"access":` + encoded(t, wholeAccess()) + `}`, ErrAccessUnsigned.Error()},
		"an empty MAC":             {Keyring{Current: key}, `{"mac":"","access":` + encoded(t, wholeAccess()) + `}`, ErrAccessUnsigned.Error()},
		"without a signature":      {Keyring{Current: key}, encoded(t, wholeAccess()), "version is not known to this adapter"},
		"settings":                 {Keyring{Current: key}, settings.Text, "is not known to this adapter"},
		"another member beside it": {Keyring{Current: key}, strings.Replace(text, `"access":`, `"mode": "None", "access":`, 1), "mode is not known"},
		"more behind it":           {Keyring{Current: key}, text + "{}", "more than one value"},
		"a brace behind it":        {Keyring{Current: key}, text + "}", "more than one value"},
		"a bracket behind it":      {Keyring{Current: key}, text + "]", "more than one value"},
		"cut":                      {Keyring{Current: key}, text[:len(text)/2], "ends too early"},
		"nothing":                  {Keyring{Current: key}, "", "ends too early"},
		"larger than allowed":      {Keyring{Current: key}, text + strings.Repeat(" ", MaxAccessBytes), "want at most 458752"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := test.ring.OpenAccess([]byte(test.text))
			switch {
			case test.want == "" && err != nil:
				t.Fatal(err)
			case test.want == "":
				if got.Generation != wholeAccess().Generation {
					t.Errorf("generation is %d", got.Generation)
				}
			case err == nil || !strings.Contains(err.Error(), test.want):
				t.Errorf("got %v, want an error with %q", err, test.want)
			case got.Mode != "":
				t.Errorf("refused, and yet returned as %+v", got)
			}
			if unsigned := test.want == ErrAccessUnsigned.Error(); errors.Is(err, ErrAccessUnsigned) != unsigned {
				t.Errorf("errors.Is(%v, ErrAccessUnsigned) is %t", err, !unsigned)
			}
		})
	}
}

func encoded(t *testing.T, access Access) string {
	t.Helper()
	text, err := json.Marshal(access)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// No byte of a document can change so that it says something else.
func TestChangedAccess(t *testing.T) {
	key := NewKey()
	text := []byte(signed(t, wholeAccess(), key).Text)
	for at := range text {
		for _, flip := range []byte{0x01, 0x20, 0x80} {
			changed := append([]byte(nil), text...)
			changed[at] ^= flip
			if got, err := (Keyring{Current: key}).OpenAccess(changed); err == nil && encoded(t, got) != encoded(t, wholeAccess()) {
				t.Fatalf("byte %d is %q instead of %q, and the document is taken", at, changed[at], text[at])
			}
		}
	}
}

func TestAccessTooLargeIsNotSigned(t *testing.T) {
	access := wholeAccess()
	access.Hidden = []string{strings.Repeat("a", MaxAccessBytes)}
	if _, err := access.Sign(NewKey()); !errors.Is(err, ErrAccessTooLarge) || !strings.Contains(err.Error(), "want at most 458752") {
		t.Errorf("got %v", err)
	}
}

func TestDecodeAccess(t *testing.T) {
	const open = `{"version":1,"generation":7,"server":{"namespace":"n","name":"s"},"mode":"None","audit":{"level":"None","whenFull":"Drop"}`
	change := func(change func(*Access)) string {
		access := wholeAccess()
		change(&access)
		return encoded(t, access)
	}
	tests := map[string]struct{ text, want string }{
		"nothing":                   {``, "JSON"},
		"cut":                       {open, "JSON"},
		"more behind it":            {open + `} {}`, "after top-level value"},
		"a brace behind it":         {open + `}}`, "after top-level value"},
		"a list":                    {`[]`, "array"},
		"no version":                {strings.Replace(open, `"version":1,`, ``, 1) + `}`, "version is missing"},
		"another version":           {strings.Replace(open, `"version":1`, `"version":2,"unheardOf":1`, 1) + `}`, "version is 2, and this adapter reads 1"},
		"unknown member":            {open + `,"allowAll":true}`, "allowAll is not known to this adapter"},
		"unknown member of a rule":  {open + `,"rules":[{"subjects":[],"verbs":["*"]}]}`, "verbs is not known to this adapter"},
		"rules are no list":         {open + `,"rules":{}}`, "rules is a JSON object"},
		"no generation":             {change(func(a *Access) { a.Generation = 0 }), "generation is 0, want at least 1"},
		"a generation below zero":   {change(func(a *Access) { a.Generation = -1 }), "generation is -1"},
		"no mode":                   {change(func(a *Access) { a.Mode = "" }), `mode is ""`},
		"another mode":              {change(func(a *Access) { a.Mode = "required" }), `mode is "required", want None, Required or Server`},
		"no audit level":            {change(func(a *Access) { a.Audit.Level = "" }), `audit.level is ""`},
		"another audit level":       {change(func(a *Access) { a.Audit.Level = "Request" }), `audit.level is "Request", want None or Metadata`},
		"another whenFull":          {change(func(a *Access) { a.Audit.WhenFull = "Wait" }), `audit.whenFull is "Wait", want Drop or Refuse`},
		"required without rules":    {change(func(a *Access) { a.Rules = nil }), "mode Required needs rules, issuers and resources"},
		"required without issuers":  {change(func(a *Access) { a.Issuers = nil }), "mode Required needs rules, issuers and resources"},
		"required without resource": {change(func(a *Access) { a.Resources = nil }), "mode Required needs rules, issuers and resources"},
		"an issuer without a name":  {change(func(a *Access) { a.Issuers[1].Name = "" }), "issuers[1] needs name"},
		"an issuer without iss":     {change(func(a *Access) { a.Issuers[1].Issuer = "" }), "issuers[1] needs name, issuer"},
		"an issuer, no audience":    {change(func(a *Access) { a.Issuers[0].Audiences = nil }), "issuers[0] needs name, issuer, audiences"},
		"an issuer without an end":  {change(func(a *Access) { a.Issuers[0].MaxLifetimeSeconds = 0 }), "maxLifetimeSeconds"},
		"an issuer without users":   {change(func(a *Access) { a.Issuers[0].Claims.User = "" }), "claims.user"},
		"a rule without subjects":   {change(func(a *Access) { a.Rules[1].Subjects = nil }), "rules[1].subjects is empty"},
		"a subject without a kind":  {change(func(a *Access) { a.Rules[0].Subjects[1].Kind = "" }), "rules[0].subjects is empty, or has one"},
		"a subject of no kind":      {change(func(a *Access) { a.Rules[0].Subjects[1].Kind = "Everybody" }), "rules[0].subjects is empty, or has one"},
		"a subject without a name":  {change(func(a *Access) { a.Rules[0].Subjects[0].Name = "" }), "rules[0].subjects is empty, or has one"},
		"blocked without a name":    {change(func(a *Access) { a.Blocked[0].Name = "" }), "blocked: subject 0 has no known kind and name"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeAccess([]byte(test.text))
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "decode access: ") {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
			if diff := cmp.Diff(Access{}, got); diff != "" {
				t.Errorf("refused, and yet returned (-want +got):\n%s", diff)
			}
		})
	}
	if _, err := DecodeAccess([]byte(open + `}`)); err != nil {
		t.Errorf("the least that a document has: %v", err)
	}
}

func TestAccessStateLacks(t *testing.T) {
	document := Document{Generation: 7, Digest: "d7"}
	tests := map[string]struct {
		state AccessState
		want  bool
	}{
		"nothing yet":                      {AccessState{}, true},
		"an older one":                     {AccessState{Generation: 6, Digest: "d6"}, true},
		"the same":                         {AccessState{Generation: 7, Digest: "d7"}, false},
		"another of the same generation":   {AccessState{Generation: 7, Digest: "other"}, true},
		"a newer one, of another manager":  {AccessState{Generation: 8, Digest: "d8"}, false},
		"the same, and keys are not known": {AccessState{Generation: 7, Digest: "d7", UnknownKeys: []string{"corp"}}, false},
	}
	for name, test := range tests {
		if got := test.state.Lacks(document); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if (AccessState{}).Lacks(Document{}) {
		t.Error("an adapter lacks a document that there is not")
	}
}

// Whatever the bytes are, nothing but what the key has signed is taken.
func FuzzOpenAccess(f *testing.F) {
	key, err := ParseKey(strings.Repeat("5a", KeySize))
	if err != nil {
		f.Fatal(err)
	}
	ring := Keyring{Current: key}
	document, err := wholeAccess().Sign(key)
	if err != nil {
		f.Fatal(err)
	}
	want, err := ring.OpenAccess([]byte(document.Text))
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{
		document.Text, document.Text + "}", strings.ToUpper(document.Text), strings.ReplaceAll(document.Text, "\n", ""), `{}`, `{"mac":"","access":{}}`, `{"mac":"AAAA","access":null}`,
		strings.Replace(document.Text, `"access":`, `"access":{},"access":`, 1), strings.Replace(document.Text, `"mac"`, `"MAC"`, 1),
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := ring.OpenAccess(text)
		if err != nil {
			if diff := cmp.Diff(Access{}, got); diff != "" {
				t.Errorf("refused, and yet returned (-want +got):\n%s", diff)
			}
			return
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("accepted a document that the key did not sign (-want +got):\n%s", diff)
		}
	})
}
