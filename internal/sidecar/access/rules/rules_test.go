package rules

import (
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/identity"
)

func TestCompileRefuses(t *testing.T) {
	everybody := subjects{group(adapterapi.GroupUnauthenticated)}
	tests := map[string]struct {
		access adapterapi.Access
		want   string
	}{
		"no mode":               {adapterapi.Access{}, `mode is ""`},
		"rules of a server":     {adapterapi.Access{Mode: adapterapi.AccessOfServer, Rules: []adapterapi.AccessRule{{Subjects: everybody}}}, "mode Server has rules"},
		"blocked by a server":   {adapterapi.Access{Mode: adapterapi.AccessOfServer, Blocked: everybody}, "mode Server has rules"},
		"star inside":           {adapterapi.Access{Mode: adapterapi.AccessNone, Rules: []adapterapi.AccessRule{{Tools: names{"ok", "a*b"}}}}, `rules[0].tools: "a*b"`},
		"three stars":           {adapterapi.Access{Mode: adapterapi.AccessNone, Rules: []adapterapi.AccessRule{{}, {Prompts: names{"***"}}}}, `rules[1].prompts: "***"`},
		"empty":                 {adapterapi.Access{Mode: adapterapi.AccessNone, Rules: []adapterapi.AccessRule{{Tools: names{""}}}}, `""`},
		"glob in a URI":         {adapterapi.Access{Mode: adapterapi.AccessNone, Rules: []adapterapi.AccessRule{{Resources: names{"docs://*"}}}}, `rules[0].resources: "docs://*"`},
		"empty URI":             {adapterapi.Access{Mode: adapterapi.AccessNone, Rules: []adapterapi.AccessRule{{Resources: names{""}}}}, `""`},
		"hidden, star inside":   {adapterapi.Access{Mode: adapterapi.AccessNone, Hidden: names{"a*b"}}, `"a*b"`},
		"hidden, nothing":       {adapterapi.Access{Mode: adapterapi.AccessNone, Hidden: names{""}}, `""`},
		"the second of several": {adapterapi.Access{Mode: "Some", Hidden: names{"a*b"}}, `"a*b"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Compile(&test.access)
			if err == nil || !strings.HasPrefix(err.Error(), "compile access: ") || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want one with %s", err, test.want)
			}
		})
	}
}

// The rights that each mode gives to each caller.
func TestFor(t *testing.T) {
	all := func(who ...adapterapi.AccessSubject) []adapterapi.AccessRule {
		return []adapterapi.AccessRule{{Subjects: who, Tools: names{"*"}, Prompts: names{"*"}, Resources: names{"*"}}}
	}
	unauthenticated, authenticated := group(adapterapi.GroupUnauthenticated), group(adapterapi.GroupAuthenticated)
	const (
		everything = "everything"
		some       = "some"
		scopes     = "some, with more scopes"
		nothing    = "nothing"
	)
	tests := map[string]struct {
		access adapterapi.Access
		who    *identity.Identity
		want   string
	}{
		"None":                             {adapterapi.Access{Mode: adapterapi.AccessNone}, nil, everything},
		"None, hidden":                     {adapterapi.Access{Mode: adapterapi.AccessNone, Hidden: names{"x"}}, nil, some},
		"None, blocked":                    {adapterapi.Access{Mode: adapterapi.AccessNone, Blocked: subjects{unauthenticated}}, nil, nothing},
		"None, others blocked":             {adapterapi.Access{Mode: adapterapi.AccessNone, Blocked: subjects{user("corp:ann")}}, nil, everything},
		"None, rule for all":               {adapterapi.Access{Mode: adapterapi.AccessNone, Rules: all(unauthenticated)}, nil, everything},
		"None, rule for others":            {adapterapi.Access{Mode: adapterapi.AccessNone, Rules: all(authenticated, user(""), oauthClient(""))}, nil, nothing},
		"None, rule with scopes":           {adapterapi.Access{Mode: adapterapi.AccessNone, Rules: []adapterapi.AccessRule{{Subjects: subjects{unauthenticated}, Tools: names{"*"}, Scopes: names{"a"}}}}, nil, nothing},
		"None, scopes":                     {adapterapi.Access{Mode: adapterapi.AccessNone, Scopes: names{"a"}, Rules: all(unauthenticated)}, nil, everything},
		"None, rule for some":              {adapterapi.Access{Mode: adapterapi.AccessNone, Rules: []adapterapi.AccessRule{{Subjects: subjects{unauthenticated}, Tools: names{"*"}, Prompts: names{"*"}, Resources: names{"a:b/"}}}}, nil, some},
		"None, an identity that is no use": {adapterapi.Access{Mode: adapterapi.AccessNone, Rules: all(authenticated)}, token("corp:ann"), nothing},
		"Server":                           {adapterapi.Access{Mode: adapterapi.AccessOfServer}, nil, everything},
		"Server, hidden":                   {adapterapi.Access{Mode: adapterapi.AccessOfServer, Hidden: names{"x"}}, nil, some},
		"Required":                         {adapterapi.Access{Mode: adapterapi.AccessRequired, Rules: all(authenticated)}, token("corp:ann"), everything},
		"Required, no caller":              {adapterapi.Access{Mode: adapterapi.AccessRequired, Rules: all(authenticated, unauthenticated, user(""), oauthClient(""))}, nil, nothing},
		"Required, without rules":          {adapterapi.Access{Mode: adapterapi.AccessRequired}, token("corp:ann"), nothing},
		"Required, hidden":                 {adapterapi.Access{Mode: adapterapi.AccessRequired, Rules: all(authenticated), Hidden: names{"x"}}, token("corp:ann"), some},
		"Required, base scopes lack":       {adapterapi.Access{Mode: adapterapi.AccessRequired, Scopes: names{"a"}, Rules: all(authenticated)}, token("corp:ann"), scopes},
		"Required, account without them":   {adapterapi.Access{Mode: adapterapi.AccessRequired, Scopes: names{"a"}, Rules: all(authenticated)}, serviceAccount("a"), everything},
		"Required, base scopes held":       {adapterapi.Access{Mode: adapterapi.AccessRequired, Scopes: names{"a"}, Rules: all(authenticated)}, token("corp:ann", "a"), everything},
		"Required, user":                   {adapterapi.Access{Mode: adapterapi.AccessRequired, Rules: all(user("corp:ann"))}, token("corp:ann"), everything},
		"Required, user as a group":        {adapterapi.Access{Mode: adapterapi.AccessRequired, Rules: all(group("corp:ann"), oauthClient("corp:ann"))}, token("corp:ann"), nothing},
		"Required, client":                 {adapterapi.Access{Mode: adapterapi.AccessRequired, Rules: all(oauthClient("corp:bot"))}, with(token("corp:ann"), nil, "corp:bot"), everything},
		"Required, no client":              {adapterapi.Access{Mode: adapterapi.AccessRequired, Rules: all(oauthClient(""))}, token("corp:ann"), nothing},
		"Required, blocked":                {adapterapi.Access{Mode: adapterapi.AccessRequired, Rules: all(authenticated), Blocked: subjects{group("corp:gone")}}, with(token("corp:ann"), names{"corp:gone"}, ""), nothing},
		"Required, an odd kind":            {adapterapi.Access{Mode: adapterapi.AccessRequired, Rules: all(adapterapi.AccessSubject{Kind: "Robot", Name: "corp:ann"})}, token("corp:ann"), nothing},
		"Required, of several rules": {adapterapi.Access{Mode: adapterapi.AccessRequired, Rules: []adapterapi.AccessRule{
			{Subjects: subjects{authenticated}, Tools: names{"**"}},
			{Subjects: subjects{authenticated}, Prompts: names{"*"}},
			{Subjects: subjects{authenticated}, Resources: names{"*"}},
		}}, token("corp:ann"), everything},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			rights := compile(t, test.access).For(test.who)
			ping := decide(t, rights, request("ping", "")).Denied
			got := some
			switch {
			case rights == nil || rights.all:
				got = everything
			case ping == DeniedScope && !rights.None():
				got = scopes
			case ping != Allowed && rights.None():
				got = nothing
			case ping != Allowed || rights.None():
				got = "a contradiction"
			}
			if got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			if wantNil := got == everything && test.access.Mode != adapterapi.AccessRequired; (rights == nil) != wantNil {
				t.Errorf("the rights are nil: %v, want %v", rights == nil, wantNil)
			}
		})
	}
}

// onlyAdmins has rules that give corp:root everything, and every other caller all prompts and one tool.
var onlyAdmins = adapterapi.Access{Mode: adapterapi.AccessRequired, Rules: []adapterapi.AccessRule{
	{Subjects: subjects{user("corp:root")}, Tools: names{"*"}, Prompts: names{"*"}, Resources: names{"*"}},
	{Subjects: subjects{group(adapterapi.GroupAuthenticated)}, Tools: names{"search"}, Prompts: names{"*"}},
}}

// A caller with all rights costs no check, and metrics still count its requests by kind.
func TestEverythingIsAllowed(t *testing.T) {
	for name, rights := range map[string]*Rights{"no rules": nil, "rules": compile(t, onlyAdmins).For(token("corp:root"))} {
		t.Run(name, func(t *testing.T) {
			for message, kind := range map[string]Kind{
				callTool("x"): Tools, request("tools/call", ""): Tools, getPrompt("x"): Prompts, read("../x"): Resources,
				request("x/y", ""): "", listen(`"resourceSubscriptions":["a:b"]`): Resources, `{"jsonrpc":"2.0","id":1,"result":{}}`: "",
			} {
				if got := decide(t, rights, message); got.Denied != Allowed || got.Kind != kind || got.Rule != -1 {
					t.Errorf("%s: %+v", message, got)
				}
			}
			if rights.None() {
				t.Error("a caller who may do everything has no rights")
			}
		})
	}
}

// With nothing but hidden tools, a server works as without the adapter but for these.
func TestHiddenAlone(t *testing.T) {
	tests := map[string]struct {
		message string
		want    Denial
	}{
		"tool":               {callTool("x"), Allowed},
		"hidden":             {callTool("admin_x"), DeniedRule},
		"hidden, escaped":    {callTool(`\u0061dmin_x`), DeniedRule},
		"hidden, no request": {`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"admin_x"}}`, DeniedRule},
		"no name":            {request("tools/call", `"name":["admin_x"]`), DeniedName},
		"prompt":             {getPrompt("admin_x"), Allowed},
		"prompt, no name":    {request("prompts/get", ""), Allowed},
		"resource":           {read("../../x"), Allowed},
		"listen":             {listen(`"resourceSubscriptions":7`), Allowed},
		"complete":           {request("completion/complete", ""), Allowed},
		"unknown":            {request("x/y", ""), Allowed},
		"initialize":         {request("initialize", ""), Allowed},
	}
	for _, mode := range []adapterapi.AccessMode{adapterapi.AccessNone, adapterapi.AccessOfServer} {
		rights := compile(t, adapterapi.Access{Mode: mode, Hidden: names{"admin_*"}}).For(nil)
		for name, test := range tests {
			t.Run(string(mode)+", "+name, func(t *testing.T) {
				if got := decide(t, rights, test.message).Denied; got != test.want {
					t.Errorf("got %q, want %q", got, test.want)
				}
			})
		}
		got := filter(t, rights, methodListTools, result(`"tools":[{"name":"admin_x"},{"name":"a"}]`))
		if want := result(`"tools":[{"name":"a"}]`); got != want {
			t.Errorf("list:\n got %s\nwant %s", got, want)
		}
	}
}
