// Package rules decides which messages a caller may send, and which entries of lists it sees.
package rules

import (
	"errors"
	"fmt"
	"slices"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/identity"
)

// Policy is the compiled rules of an access document. It is immutable.
type Policy struct {
	mode    adapterapi.AccessMode
	rules   []rule
	blocked []adapterapi.AccessSubject
	hidden  []pattern // tools
	indexes map[Kind]*index
	scopes  []string // that every token of an issuer needs
}

type rule struct {
	subjects []adapterapi.AccessSubject
	scoped   bool     // it has scopes of its own
	needs    []string // all scopes that a token of an issuer needs for it
}

// Compile compiles the rules, blocked subjects and hidden tools of a document. It refuses a document that
// it cannot enforce as it stands.
func Compile(access *adapterapi.Access) (*Policy, error) {
	p := &Policy{
		mode:    access.Mode,
		blocked: slices.Clone(access.Blocked),
		indexes: map[Kind]*index{Tools: newIndex(), Prompts: newIndex(), Resources: newIndex()},
		scopes:  union(nil, access.Scopes),
	}
	var problems []error
	switch access.Mode {
	case adapterapi.AccessNone, adapterapi.AccessRequired:
	case adapterapi.AccessOfServer:
		if len(access.Rules) > 0 || len(access.Blocked) > 0 {
			problems = append(problems, errors.New("mode Server has rules or blocked, and the adapter does not know who calls"))
		}
	default:
		problems = append(problems, fmt.Errorf("mode is %q", access.Mode))
	}
	for _, name := range access.Hidden {
		hidden, err := namePattern(name)
		problems = append(problems, err)
		p.hidden = append(p.hidden, hidden)
	}
	for i := range access.Rules {
		problems = append(problems, p.add(&access.Rules[i]))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("compile access: %w", err)
	}
	return p, nil
}

func (p *Policy) add(from *adapterapi.AccessRule) error {
	number := len(p.rules)
	p.rules = append(p.rules, rule{
		subjects: slices.Clone(from.Subjects),
		scoped:   len(from.Scopes) > 0,
		needs:    union(slices.Clone(p.scopes), from.Scopes),
	})
	var problems []error
	for _, of := range []struct {
		kind  Kind
		texts []string
		parse func(string) (pattern, error)
	}{
		{Tools, from.Tools, namePattern},
		{Prompts, from.Prompts, namePattern},
		{Resources, from.Resources, uriPattern},
	} {
		for _, text := range of.texts {
			parsed, err := of.parse(text)
			if err != nil {
				problems = append(problems, fmt.Errorf("rules[%d].%s: %w", number, of.kind, err))
				continue
			}
			p.indexes[of.kind].add(parsed, number)
		}
	}
	return errors.Join(problems...)
}

// union appends what the list does not have yet.
func union(list, more []string) []string {
	for _, one := range more {
		if !slices.Contains(list, one) {
			list = append(list, one)
		}
	}
	return list
}

// open reports whether every caller may do everything but call hidden tools.
func (p *Policy) open() bool {
	return p.mode == adapterapi.AccessOfServer || p.mode == adapterapi.AccessNone && len(p.rules) == 0
}

// tellsApart reports whether callers may see different lists. Without tokens, all callers are the same.
func (p *Policy) tellsApart() bool { return p.mode == adapterapi.AccessRequired }

// For returns what a caller may do. A nil identity is a caller without a token. The result depends on
// nothing else, so it can be kept with the identity. It is nil if all callers may do everything and see
// everything.
func (p *Policy) For(who *identity.Identity) *Rights {
	caller := callerOf(p.mode, who)
	r := &Rights{
		policy:  p,
		open:    p.open(),
		blocked: slices.ContainsFunc(p.blocked, caller.is),
		held:    caller.scopes,
	}
	if r.blocked {
		r.open = false
		return r
	}
	if caller.hasScopes {
		r.base = p.scopes
	}
	r.standings = make([]standing, len(p.rules))
	for i := range p.rules {
		r.standings[i] = r.standingOf(i, caller)
		r.entitled = r.entitled || r.standings[i] != stranger
	}
	for _, kind := range []Kind{Tools, Prompts, Resources} {
		if !r.seesAll(kind) {
			r.partial = append(r.partial, kind)
		}
	}
	r.all = len(r.partial) == 0 && (r.open || r.mayAll())
	if r.all && !p.tellsApart() {
		return nil
	}
	return r
}

// caller is what subjects of rules match.
type caller struct {
	user, client string
	groups       []string
	hasScopes    bool // it has a token of an issuer, which gives scopes
	scopes       []string
}

func callerOf(mode adapterapi.AccessMode, who *identity.Identity) caller {
	switch {
	case mode == adapterapi.AccessNone: // the adapter verifies no tokens
		return caller{groups: []string{adapterapi.GroupUnauthenticated}}
	case mode != adapterapi.AccessRequired || who == nil:
		return caller{}
	}
	c := caller{user: who.User, client: who.Client, groups: who.Groups}
	if who.Issuer != adapterapi.KubernetesIssuer {
		c.hasScopes, c.scopes = true, who.Scopes
	}
	return c
}

// is reports whether a subject names the caller.
func (c caller) is(subject adapterapi.AccessSubject) bool {
	switch subject.Kind {
	case adapterapi.SubjectUser:
		return subject.Name != "" && subject.Name == c.user
	case adapterapi.SubjectClient:
		return subject.Name != "" && subject.Name == c.client
	case adapterapi.SubjectGroup:
		return slices.Contains(c.groups, subject.Name)
	}
	return false
}
