package token

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/identity"
)

func repeat(value any, count int) []any { return slices.Repeat([]any{value}, count) }

func TestVerifyNamesTheCaller(t *testing.T) {
	everybody := []string{"system:authenticated"}
	for name, test := range map[string]struct {
		paths   adapterapi.AccessClaims
		changes map[string]any
		want    *identity.Identity // nil: a claim is wrong
	}{
		"least":                              {adapterapi.AccessClaims{User: "sub"}, nil, &identity.Identity{User: "corp:alice", Groups: everybody}},
		"groups without a path do not count": {adapterapi.AccessClaims{User: "sub"}, map[string]any{"groups": []any{"a"}}, &identity.Identity{User: "corp:alice", Groups: everybody}},
		"all": {
			adapterapi.AccessClaims{User: "sub", Groups: "groups"},
			map[string]any{"groups": []any{"sre", "dev"}, "azp": "bot", "client_id": "other", "scope": "a b", "jti": "17", "act": map[string]any{"sub": "agent", "act": map[string]any{"sub": "proxy"}}},
			&identity.Identity{
				User: "corp:alice", Groups: []string{"corp:sre", "corp:dev", "system:authenticated"}, Client: "corp:bot",
				Scopes: []string{"a", "b"}, TokenID: "17", Actors: []string{"agent", "proxy"},
			},
		},
		"name of a ServiceAccount":   {adapterapi.AccessClaims{User: "sub"}, map[string]any{"sub": "system:serviceaccount:a:b"}, &identity.Identity{User: "corp:system:serviceaccount:a:b", Groups: everybody}},
		"group of the cluster":       {adapterapi.AccessClaims{User: "sub", Groups: "groups"}, map[string]any{"groups": "system:masters"}, &identity.Identity{User: "corp:alice", Groups: []string{"corp:system:masters", "system:authenticated"}}},
		"user at a path":             {adapterapi.AccessClaims{User: "a.b"}, map[string]any{"a": map[string]any{"b": "bob"}}, &identity.Identity{User: "corp:bob", Groups: everybody}},
		"literal name before a path": {adapterapi.AccessClaims{User: "a.b"}, map[string]any{"a": map[string]any{"b": "bob"}, "a.b": "carol"}, &identity.Identity{User: "corp:carol", Groups: everybody}},
		"path ends in the middle":    {adapterapi.AccessClaims{User: "a.b.c"}, map[string]any{"a": map[string]any{"b": "bob"}}, nil},
		"path into a list":           {adapterapi.AccessClaims{User: "a.0"}, map[string]any{"a": []any{"bob"}}, nil},
		"empty steps of a path":      {adapterapi.AccessClaims{User: "a..b"}, map[string]any{"a": map[string]any{"b": "bob"}}, nil},
		"no user":                    {adapterapi.AccessClaims{User: "sub"}, map[string]any{"sub": absent}, nil},
		"user is null":               {adapterapi.AccessClaims{User: "sub"}, map[string]any{"sub": nil}, nil},
		"user is empty":              {adapterapi.AccessClaims{User: "sub"}, map[string]any{"sub": ""}, nil},
		"user is a number":           {adapterapi.AccessClaims{User: "sub"}, map[string]any{"sub": 17}, nil},
		"user is a list":             {adapterapi.AccessClaims{User: "sub"}, map[string]any{"sub": []any{"alice"}}, nil},
		"longest user":               {adapterapi.AccessClaims{User: "sub"}, map[string]any{"sub": strings.Repeat("x", 512)}, &identity.Identity{User: "corp:" + strings.Repeat("x", 512), Groups: everybody}},
		"user is too long":           {adapterapi.AccessClaims{User: "sub"}, map[string]any{"sub": strings.Repeat("x", 513)}, nil},
		"user with a line end":       {adapterapi.AccessClaims{User: "sub"}, map[string]any{"sub": "alice\nroot"}, nil},
		"user with NUL":              {adapterapi.AccessClaims{User: "sub"}, map[string]any{"sub": "alice\x00"}, nil},
		"user with C1":               {adapterapi.AccessClaims{User: "sub"}, map[string]any{"sub": "alice\u0085"}, nil},
		"user with half a pair":      {adapterapi.AccessClaims{User: "sub"}, map[string]any{"sub": json.RawMessage(`"alice\ud800"`)}, nil},
		"user of several alphabets":  {adapterapi.AccessClaims{User: "sub"}, map[string]any{"sub": "Ελένη 😀"}, &identity.Identity{User: "corp:Ελένη 😀", Groups: everybody}},
		"verified address":           {adapterapi.AccessClaims{User: "email"}, map[string]any{"email": "a@b", "email_verified": true}, &identity.Identity{User: "corp:a@b", Groups: everybody}},
		"address":                    {adapterapi.AccessClaims{User: "email"}, map[string]any{"email": "a@b"}, &identity.Identity{User: "corp:a@b", Groups: everybody}},
		"address is not verified":    {adapterapi.AccessClaims{User: "email"}, map[string]any{"email": "a@b", "email_verified": false}, nil},
		"address, verified by text":  {adapterapi.AccessClaims{User: "email"}, map[string]any{"email": "a@b", "email_verified": "true"}, nil},
		"address is not the user":    {adapterapi.AccessClaims{User: "sub"}, map[string]any{"email_verified": false}, &identity.Identity{User: "corp:alice", Groups: everybody}},

		"groups at a path":                   {adapterapi.AccessClaims{User: "sub", Groups: "realm_access.roles"}, map[string]any{"realm_access": map[string]any{"roles": []any{"a"}}}, &identity.Identity{User: "corp:alice", Groups: []string{"corp:a", "system:authenticated"}}},
		"groups at a URL":                    {adapterapi.AccessClaims{User: "sub", Groups: "https://example.com/groups"}, map[string]any{"https://example.com/groups": []any{"a"}}, &identity.Identity{User: "corp:alice", Groups: []string{"corp:a", "system:authenticated"}}},
		"groups at a literal of wrong type":  {adapterapi.AccessClaims{User: "sub", Groups: "a.b"}, map[string]any{"a.b": 1, "a": map[string]any{"b": "x"}}, nil},
		"one group":                          {adapterapi.AccessClaims{User: "sub", Groups: "groups"}, map[string]any{"groups": "a b"}, &identity.Identity{User: "corp:alice", Groups: []string{"corp:a b", "system:authenticated"}}},
		"groups are null":                    {adapterapi.AccessClaims{User: "sub", Groups: "groups"}, map[string]any{"groups": nil}, &identity.Identity{User: "corp:alice", Groups: everybody}},
		"groups are empty":                   {adapterapi.AccessClaims{User: "sub", Groups: "groups"}, map[string]any{"groups": []any{}}, &identity.Identity{User: "corp:alice", Groups: everybody}},
		"groups are an object":               {adapterapi.AccessClaims{User: "sub", Groups: "groups"}, map[string]any{"groups": map[string]any{"a": 1}}, nil},
		"a group is a number":                {adapterapi.AccessClaims{User: "sub", Groups: "groups"}, map[string]any{"groups": []any{"a", 1}}, nil},
		"a group is null":                    {adapterapi.AccessClaims{User: "sub", Groups: "groups"}, map[string]any{"groups": []any{nil}}, nil},
		"a group is empty":                   {adapterapi.AccessClaims{User: "sub", Groups: "groups"}, map[string]any{"groups": []any{""}}, nil},
		"a group is empty text":              {adapterapi.AccessClaims{User: "sub", Groups: "groups"}, map[string]any{"groups": ""}, nil},
		"a group has a line end":             {adapterapi.AccessClaims{User: "sub", Groups: "groups"}, map[string]any{"groups": []any{"a\n"}}, nil},
		"longest group":                      {adapterapi.AccessClaims{User: "sub", Groups: "groups"}, map[string]any{"groups": strings.Repeat("x", 256)}, &identity.Identity{User: "corp:alice", Groups: []string{"corp:" + strings.Repeat("x", 256), "system:authenticated"}}},
		"a group is too long":                {adapterapi.AccessClaims{User: "sub", Groups: "groups"}, map[string]any{"groups": []any{strings.Repeat("x", 257)}}, nil},
		"most groups":                        {adapterapi.AccessClaims{User: "sub", Groups: "groups"}, map[string]any{"groups": repeat("x", 256)}, &identity.Identity{User: "corp:alice", Groups: append(slices.Repeat([]string{"corp:x"}, 256), "system:authenticated")}},
		"too many groups":                    {adapterapi.AccessClaims{User: "sub", Groups: "groups"}, map[string]any{"groups": repeat("x", 257)}, nil},
		"groups are somewhere else":          {adapterapi.AccessClaims{User: "sub", Groups: "groups"}, map[string]any{"_claim_names": map[string]any{"groups": "src1"}}, nil},
		"groups are there, others elsewhere": {adapterapi.AccessClaims{User: "sub", Groups: "groups"}, map[string]any{"groups": "a", "_claim_names": map[string]any{"x": "src1"}}, &identity.Identity{User: "corp:alice", Groups: []string{"corp:a", "system:authenticated"}}},

		"client_id":             {adapterapi.AccessClaims{User: "sub"}, map[string]any{"client_id": "bot"}, &identity.Identity{User: "corp:alice", Groups: everybody, Client: "corp:bot"}},
		"client_id, azp null":   {adapterapi.AccessClaims{User: "sub"}, map[string]any{"client_id": "bot", "azp": nil}, &identity.Identity{User: "corp:alice", Groups: everybody, Client: "corp:bot"}},
		"client at a path":      {adapterapi.AccessClaims{User: "sub", Client: "x.app"}, map[string]any{"azp": "bot", "x": map[string]any{"app": "web"}}, &identity.Identity{User: "corp:alice", Groups: everybody, Client: "corp:web"}},
		"no client at the path": {adapterapi.AccessClaims{User: "sub", Client: "x.app"}, map[string]any{"azp": "bot"}, &identity.Identity{User: "corp:alice", Groups: everybody}},
		"client is empty":       {adapterapi.AccessClaims{User: "sub"}, map[string]any{"azp": ""}, &identity.Identity{User: "corp:alice", Groups: everybody}},
		"client is a list":      {adapterapi.AccessClaims{User: "sub"}, map[string]any{"azp": []any{"bot"}}, nil},
		"client is too long":    {adapterapi.AccessClaims{User: "sub"}, map[string]any{"azp": strings.Repeat("x", 513)}, nil},

		"scope with many blanks":     {adapterapi.AccessClaims{User: "sub"}, map[string]any{"scope": " a  b "}, &identity.Identity{User: "corp:alice", Groups: everybody, Scopes: []string{"a", "b"}}},
		"scope is empty":             {adapterapi.AccessClaims{User: "sub"}, map[string]any{"scope": ""}, &identity.Identity{User: "corp:alice", Groups: everybody}},
		"scope is a list":            {adapterapi.AccessClaims{User: "sub"}, map[string]any{"scope": []any{"a", "b"}}, &identity.Identity{User: "corp:alice", Groups: everybody, Scopes: []string{"a", "b"}}},
		"scp is text":                {adapterapi.AccessClaims{User: "sub"}, map[string]any{"scp": "a b"}, &identity.Identity{User: "corp:alice", Groups: everybody, Scopes: []string{"a", "b"}}},
		"scp is a list":              {adapterapi.AccessClaims{User: "sub"}, map[string]any{"scp": []any{"a", "b"}}, &identity.Identity{User: "corp:alice", Groups: everybody, Scopes: []string{"a", "b"}}},
		"scope before scp":           {adapterapi.AccessClaims{User: "sub"}, map[string]any{"scope": "a", "scp": "b"}, &identity.Identity{User: "corp:alice", Groups: everybody, Scopes: []string{"a"}}},
		"scope is a number":          {adapterapi.AccessClaims{User: "sub"}, map[string]any{"scope": 1}, nil},
		"scope with a tab":           {adapterapi.AccessClaims{User: "sub"}, map[string]any{"scope": "a\tb"}, nil},
		"scope of a list with blank": {adapterapi.AccessClaims{User: "sub"}, map[string]any{"scp": []any{"a b"}}, nil},
		"scope with a quote":         {adapterapi.AccessClaims{User: "sub"}, map[string]any{"scope": `a"b`}, nil},
		"too many scopes":            {adapterapi.AccessClaims{User: "sub"}, map[string]any{"scope": strings.Repeat("a ", 257)}, nil},

		"jti is a number":        {adapterapi.AccessClaims{User: "sub"}, map[string]any{"jti": 1}, nil},
		"jti with a line end":    {adapterapi.AccessClaims{User: "sub"}, map[string]any{"jti": "a\n"}, nil},
		"act is text":            {adapterapi.AccessClaims{User: "sub"}, map[string]any{"act": "agent"}, nil},
		"act without sub":        {adapterapi.AccessClaims{User: "sub"}, map[string]any{"act": map[string]any{"client_id": "x"}}, nil},
		"act with sub of a list": {adapterapi.AccessClaims{User: "sub"}, map[string]any{"act": map[string]any{"sub": []any{"x"}}}, nil},
		"most actors":            {adapterapi.AccessClaims{User: "sub"}, map[string]any{"act": actors(8)}, &identity.Identity{User: "corp:alice", Groups: everybody, Actors: []string{"8", "7", "6", "5", "4", "3", "2", "1"}}},
		"too many actors":        {adapterapi.AccessClaims{User: "sub"}, map[string]any{"act": actors(9)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			issuer := corpIssuer(allKeys(t)...)
			issuer.Claims = test.paths
			got, err := verifyAt(t, newVerifier(t, issuer), goodToken(t, test.changes), now)
			if test.want == nil {
				if diff := cmp.Diff(error(&Error{Reason: Claims, Issuer: "corp"}), err); diff != "" {
					t.Errorf("error (-want +got):\n%s", diff)
				}
				return
			}
			if err != nil {
				t.Fatalf("Verify: %v", err)
			}
			want := *test.want
			want.Issuer, want.Expires = "corp", now.Add(10*time.Minute)
			if diff := cmp.Diff(&want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("caller (-want +got):\n%s", diff)
			}
		})
	}
}

// actors nests some, the last of which is nearest to the user's name.
func actors(count int) map[string]any {
	var act map[string]any
	for i := range count {
		outer := map[string]any{"sub": strconv.Itoa(i + 1)}
		if act != nil {
			outer["act"] = act
		}
		act = outer
	}
	return act
}

func TestVerifyNamesServiceAccounts(t *testing.T) {
	v := newVerifier(t, corpIssuer(allKeys(t)...), clusterIssuer(allKeys(t)...))
	for name, test := range map[string]struct {
		sub       any
		namespace string // empty: no ServiceAccount
	}{
		"account":             {"system:serviceaccount:agents:triage", "agents"},
		"account with dots":   {"system:serviceaccount:agents:triage.v2", "agents"},
		"longest names":       {"system:serviceaccount:" + strings.Repeat("n", 63) + ":" + strings.Repeat("a", 253), strings.Repeat("n", 63)},
		"namespace too long":  {"system:serviceaccount:" + strings.Repeat("n", 64) + ":a", ""},
		"name too long":       {"system:serviceaccount:n:" + strings.Repeat("a", 254), ""},
		"no name":             {"system:serviceaccount:agents:", ""},
		"no namespace":        {"system:serviceaccount::triage", ""},
		"no account":          {"system:serviceaccount:agents", ""},
		"one part more":       {"system:serviceaccount:agents:triage:x", ""},
		"capitals":            {"system:serviceaccount:Agents:triage", ""},
		"line end":            {"system:serviceaccount:agents:triage\n", ""},
		"user":                {"alice", ""},
		"node":                {"system:node:a", ""},
		"prefix in capitals":  {"System:ServiceAccount:agents:triage", ""},
		"group of all":        {"system:masters", ""},
		"absent":              {absent, ""},
		"number":              {1, ""},
		"blank in front":      {" system:serviceaccount:agents:triage", ""},
		"wildcard":            {"system:serviceaccount:*:*", ""},
		"path in a namespace": {"system:serviceaccount:a/b:triage", ""},
	} {
		t.Run(name, func(t *testing.T) {
			// What other issuers have counts for nothing here.
			text := goodToken(t, map[string]any{"iss": cluster, "sub": test.sub, "jti": "17", "groups": []any{"system:masters"}, "azp": "x", "scope": "y"})
			got, err := verifyAt(t, v, text, now)
			if test.namespace == "" {
				if diff := cmp.Diff(error(&Error{Reason: Claims, Issuer: "kubernetes"}), err); diff != "" {
					t.Errorf("error (-want +got):\n%s", diff)
				}
				return
			}
			if err != nil {
				t.Fatalf("Verify: %v", err)
			}
			want := &identity.Identity{
				Issuer:  "kubernetes",
				User:    test.sub.(string),
				Groups:  []string{"system:serviceaccounts", "system:serviceaccounts:" + test.namespace, "system:authenticated"},
				TokenID: "17",
				Expires: now.Add(10 * time.Minute),
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("caller (-want +got):\n%s", diff)
			}
		})
	}
}

func TestVerifyAddsImpliedScopes(t *testing.T) {
	many := make([]string, 2*maxScopes)
	for i := range many {
		many[i] = fmt.Sprint("many-", i)
	}
	v, err := New(Options{Issuers: []adapterapi.AccessIssuer{corpIssuer(allKeys(t)...)}, ScopeImplies: map[string][]string{
		"admin": {"write", "audit"},
		"write": {"read"},
		"this":  {"that"},
		"that":  {"this", "that"},
		"many":  many,
	}})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	for scope, want := range map[string][]string{
		"read":       {"read"},
		"write":      {"write", "read"},
		"admin":      {"admin", "write", "audit", "read"},
		"read admin": {"read", "admin", "write", "audit"},
		"this":       {"this", "that"},
		"other":      {"other"},
		"ADMIN":      {"ADMIN"},
		"many":       append([]string{"many"}, many[:maxScopes-1]...),
		"":           nil,
	} {
		got, err := verifyAt(t, v, goodToken(t, map[string]any{"scope": scope}), now)
		if err != nil {
			t.Fatalf("Verify: %v", err)
		}
		if diff := cmp.Diff(want, got.Scopes, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("scope %q (-want +got):\n%s", scope, diff)
		}
	}
}
