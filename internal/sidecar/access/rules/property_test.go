package rules

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/identity"
)

// verdict is what the rules say of one name, found in the plainest way.
type verdict string

const (
	mayUse   verdict = "may use it"
	mightUse verdict = "might use it with more scopes"
	mayNot   verdict = "may not use it"
)

var oddURI = regexp.MustCompile(`(?i)\.\.|%2e|%2f|%5c|\\|[\x00-\x1f\x7f\x{80}-\x{9f}]`)

// naive goes through a document rule by rule.
func naive(access *adapterapi.Access, who *identity.Identity, kind Kind, name string) verdict {
	is := func(s adapterapi.AccessSubject) bool {
		if access.Mode == adapterapi.AccessNone {
			return s == group(adapterapi.GroupUnauthenticated)
		}
		return s == user(who.User) || who.Client != "" && s == oauthClient(who.Client) || s.Kind == adapterapi.SubjectGroup && slices.Contains(who.Groups, s.Name)
	}
	matches := func(pattern string) bool { return naiveMatch(kind, pattern, name) }
	if slices.ContainsFunc(access.Blocked, is) || kind == Tools && slices.ContainsFunc(access.Hidden, matches) {
		return mayNot
	}
	if access.Mode == adapterapi.AccessNone && len(access.Rules) == 0 {
		return mayUse
	}
	found := mayNot
	for _, rule := range access.Rules {
		patterns := map[Kind][]string{Tools: rule.Tools, Prompts: rule.Prompts, Resources: rule.Resources}[kind]
		if !slices.ContainsFunc(rule.Subjects, is) || !slices.ContainsFunc(patterns, matches) {
			continue
		}
		login := access.Mode == adapterapi.AccessRequired && who.Issuer != adapterapi.KubernetesIssuer
		lacks := func(scope string) bool { return !slices.Contains(who.Scopes, scope) }
		switch {
		case !login && len(rule.Scopes) > 0:
		case login && slices.ContainsFunc(append(slices.Clone(access.Scopes), rule.Scopes...), lacks):
			if found == mayNot {
				found = mightUse
			}
		default:
			found = mayUse
		}
	}
	return found
}

// naiveMatch compares with a pattern of a rule. Names here have no characters that are special to path.Match
// but the stars of patterns.
func naiveMatch(kind Kind, pattern, name string) bool {
	if kind != Resources {
		matched, err := path.Match(pattern, name)
		return matched && err == nil
	}
	literal, _, isTemplate := strings.Cut(name, "{")
	switch {
	case pattern == "*":
		return true
	case oddURI.MatchString(name):
		return false
	case strings.HasSuffix(pattern, "/"):
		return strings.HasPrefix(literal, pattern)
	}
	return pattern == name && !isTemplate
}

var (
	toolNames    = names{"a", "b", "ab", "ba", "aa", "abc", "c", "bab", "é"}
	nameGlobs    = names{"a", "b", "ab", "é", "a*", "*b", "*a*", "*"}
	uriNames     = names{"d:/", "d:/a", "d:/a/", "d:/a/b", "d:/a/../b", "d:/a/b%2Fc", "d:/b", "e:x"}
	uriPatterns  = names{"d:/", "d:/a", "d:/a/", "e:x", "e:", "*"}
	uriTemplates = names{"d:/{x}", "d:/a/{x}", "d:/a{x}", "d:/a/{x}/../y", "{x}", "d:/a", "e:x{y}"}
	scopeNames   = names{"s", "t", "u"}
	subjectNames = subjects{user("corp:ann"), user("system:serviceaccount:agents:a"), group("corp:g"), group(adapterapi.GroupAuthenticated), group(adapterapi.GroupUnauthenticated), oauthClient("corp:bot")}
)

func some[T any](random *rand.Rand, of []T, most int) []T {
	var chosen []T
	for range random.IntN(most + 1) {
		chosen = append(chosen, of[random.IntN(len(of))])
	}
	return chosen
}

func randomAccess(random *rand.Rand) *adapterapi.Access {
	access := &adapterapi.Access{Mode: adapterapi.AccessRequired}
	if random.IntN(4) == 0 {
		access.Mode = adapterapi.AccessNone
	}
	if random.IntN(3) == 0 {
		access.Scopes = some(random, scopeNames, 2)
	}
	if random.IntN(3) == 0 {
		access.Hidden = some(random, nameGlobs[:7], 2)
	}
	if random.IntN(6) == 0 {
		access.Blocked = some(random, subjectNames, 1)
	}
	for range random.IntN(6) {
		access.Rules = append(access.Rules, adapterapi.AccessRule{
			Subjects: some(random, subjectNames, 3),
			Tools:    some(random, nameGlobs, 3), Prompts: some(random, nameGlobs, 2), Resources: some(random, uriPatterns, 2),
			Scopes: some(random, scopeNames, 2),
		})
	}
	return access
}

func randomIdentity(random *rand.Rand) *identity.Identity {
	if random.IntN(4) == 0 {
		return serviceAccount("a")
	}
	who := token("corp:ann", some(random, scopeNames, 3)...)
	return with(who, some(random, names{"corp:g"}, 1), names{"", "corp:bot"}[random.IntN(2)])
}

// What a list shows is what may be called, or might be with more scopes: for random rules, callers and
// catalogs. And both are what a plain reading of the rules says.
func TestListsShowWhatCallsGet(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	seen := map[verdict]int{}
	for round := range 2000 {
		access, who := randomAccess(random), randomIdentity(random)
		rights := compile(t, *access).For(who)
		where := func() string {
			text, err := json.Marshal(access)
			return fmt.Sprintf("round %d, %+v, %s %v", round, who, text, err)
		}
		for _, catalog := range []struct {
			listing
			names   names
			message func(string) string
		}{
			{listings[0], toolNames, callTool},
			{listings[1], toolNames, getPrompt},
			{listings[2], uriNames, read},
			{listings[3], uriTemplates, func(template string) string { return complete(`"type":"ref/resource","uri":"` + template + `"`) }},
		} {
			names := some(random, catalog.names, 12)
			want, entries := []string{}, make([]string, len(names))
			for i, name := range names {
				entries[i] = fmt.Sprintf(`{"x":%d,%q:%q}`, i, catalog.key, name)
				got := mayNot
				switch d := decide(t, rights, catalog.message(name)); d.Denied {
				case Allowed:
					got = mayUse
				case DeniedScope:
					got = mightUse
				}
				seen[got]++
				if plain := naive(access, who, catalog.kind, name); got != plain {
					t.Fatalf("%s %q: decided %q, want %q\n%s", catalog.kind, name, got, plain, where())
				}
				if got != mayNot {
					want = append(want, entries[i])
				}
			}
			answer := result(`"` + catalog.member + `":[` + strings.Join(entries, ",") + `]`)
			expect := result(`"` + catalog.member + `":[` + strings.Join(want, ",") + `]`)
			if diff := cmp.Diff(expect, filter(t, rights, catalog.method, answer)); diff != "" {
				t.Fatalf("%s (-may be called +shown):\n%s\n%s", catalog.method, diff, where())
			}
			if diff := cmp.Diff(expect, filterAny(t, rights, answer)); diff != "" {
				t.Fatalf("any %s (-may be called +shown):\n%s\n%s", catalog.method, diff, where())
			}
			if !rights.Filters([]byte(catalog.method)) && len(want) != len(names) {
				t.Fatalf("%s is not filtered\n%s", catalog.method, where())
			}
		}
	}
	for _, each := range []verdict{mayUse, mightUse, mayNot} {
		if seen[each] < 2000 {
			t.Errorf("%q: only %d of %v", each, seen[each], seen)
		}
	}
}
