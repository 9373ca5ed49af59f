package rules

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

func TestChanged(t *testing.T) {
	rule := func(tools ...string) adapterapi.AccessRule {
		return adapterapi.AccessRule{Subjects: []adapterapi.AccessSubject{user("corp:ann")}, Tools: tools}
	}
	document := func(rules ...adapterapi.AccessRule) adapterapi.Access {
		return adapterapi.Access{Mode: adapterapi.AccessRequired, Rules: rules}
	}
	with := func(access adapterapi.Access, change func(*adapterapi.Access)) adapterapi.Access {
		access.Rules = slices.Clone(access.Rules)
		change(&access)
		return access
	}
	hide := func(names ...string) func(*adapterapi.Access) {
		return func(a *adapterapi.Access) { a.Hidden = names }
	}
	others := adapterapi.AccessRule{Subjects: []adapterapi.AccessSubject{user("corp:bob")}, Tools: []string{"*"}, Prompts: []string{"*"}, Resources: []string{"*"}}
	echo := document(rule("echo"))
	for name, test := range map[string]struct {
		before, after adapterapi.Access
		want          subscription.Set
	}{
		"nothing":                  {echo, echo, subscription.Set{}},
		"another order":            {document(rule("echo", "add")), document(rule("add"), rule("echo")), subscription.Set{}},
		"a tool more":              {echo, document(rule("echo", "add")), subscription.Set{0: true}},
		"another tool":             {echo, document(rule("add")), subscription.Set{0: true}},
		"a prompt":                 {echo, with(echo, func(a *adapterapi.Access) { a.Rules[0].Prompts = []string{"p"} }), subscription.Set{1: true}},
		"a resource":               {echo, with(echo, func(a *adapterapi.Access) { a.Rules[0].Resources = []string{"d:/"} }), subscription.Set{2: true}},
		"a rule of others":         {echo, document(rule("echo"), others), subscription.Set{}},
		"a rule that adds nothing": {document(rule("e*")), document(rule("e*"), rule("echo", "ec*")), subscription.Set{}},
		"only scopes":              {echo, with(echo, func(a *adapterapi.Access) { a.Rules[0].Scopes = []string{"s"} }), subscription.Set{}},
		"hidden":                   {echo, with(echo, hide("ec*")), subscription.Set{0: true}},
		"others are hidden":        {echo, with(echo, hide("add", "sub*")), subscription.Set{}},
		"hidden in a glob":         {document(rule("e*")), with(document(rule("e*")), hide("end")), subscription.Set{0: true}},
		"blocked": {echo, with(echo, func(a *adapterapi.Access) { a.Blocked = []adapterapi.AccessSubject{user("corp:ann")} }),
			subscription.Set{0: true}},
		"no rules any more": {echo, document(), subscription.Set{0: true}},
	} {
		t.Run(name, func(t *testing.T) {
			who := token("corp:ann", "s")
			before, after := compile(t, test.before).For(who), compile(t, test.after).For(who)
			if diff := cmp.Diff(test.want, Changed(before, after)); diff != "" {
				t.Errorf("forward (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.want, Changed(after, before)); diff != "" {
				t.Errorf("backward (-want +got):\n%s", diff)
			}
		})
	}
	all := subscription.Set{true, true, true}
	if got := Changed(nil, compile(t, document()).For(token("corp:ann"))); got != all {
		t.Errorf("from everything to nothing: %v", got)
	}
}

// For random rules, a list has changed exactly if there is something that the caller sees before and not after,
// or the other way around.
func TestChangedIsWhatCallersSee(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	probes := map[Kind]names{}
	for _, text := range slices.Concat(toolNames, nameGlobs) { // and what is like them
		text = strings.Trim(text, "*")
		probes[Tools] = append(probes[Tools], text, text+"~", "~"+text, "~"+text+"~")
	}
	probes[Prompts] = probes[Tools]
	for _, text := range slices.Concat(uriNames, uriPatterns) {
		probes[Resources] = append(probes[Resources], text, text+"~")
	}
	counts := map[bool]int{}
	for round := range 5000 {
		first, who := randomAccess(random), randomIdentity(random)
		second := randomAccess(random)
		if random.IntN(2) == 0 { // a small change
			text, err := json.Marshal(first)
			if err != nil {
				t.Fatal(err)
			}
			second = new(adapterapi.Access)
			if err := json.Unmarshal(text, second); err != nil {
				t.Fatal(err)
			}
			random.Shuffle(len(second.Rules), func(i, j int) { second.Rules[i], second.Rules[j] = second.Rules[j], second.Rules[i] })
			second.Hidden = append(second.Hidden, some(random, nameGlobs[:4], 1)...)
		}
		before, after := compile(t, *first).For(who), compile(t, *second).For(who)
		changed := Changed(before, after)
		for i, kind := range allKinds {
			differs := slices.ContainsFunc(probes[kind], func(name string) bool { return sees(before, kind, name) != sees(after, kind, name) })
			counts[differs]++
			mayErr := kind == Tools && len(first.Hidden)+len(second.Hidden) > 0 // then a list may count as changed although it is not
			if differs && !changed[i] || changed[i] && !differs && !mayErr {
				t.Fatalf("round %d, %s: changed is %t, and the caller sees a difference: %t\n%s\n%s", round, kind, changed[i], differs, jsonOf(first), jsonOf(second))
			}
		}
	}
	if counts[true] < 1000 || counts[false] < 1000 {
		t.Errorf("the documents are too much alike: %v", counts)
	}
}

func sees(rights *Rights, kind Kind, name string) bool {
	if rights == nil {
		return true
	}
	what := search{name: []byte(name)}
	if kind == Resources {
		what = searchURI([]byte(name))
	}
	return rights.shows(kind, what)
}

func jsonOf(value any) string {
	text, err := json.Marshal(value)
	return fmt.Sprintf("%s %v", text, err)
}
