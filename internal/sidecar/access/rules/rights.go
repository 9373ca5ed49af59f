package rules

import "slices"

// Rights are what one caller may do. They are immutable. A nil *Rights allows everything.
type Rights struct {
	policy  *Policy
	probe   bool // it is the manager's
	open    bool // there are no rules: everything is allowed but to call hidden tools
	blocked bool
	all     bool // the caller may do everything, and sees everything
	// entitled says that at least one rule is for the caller.
	entitled  bool
	standings []standing // by rule
	partial   []Kind     // of which the caller does not see everything
	base      []string   // scopes that every message needs
	held      []string   // scopes of the token
}

// standing is what a rule is to a caller.
type standing uint8

const (
	stranger standing = iota // the rule is for others
	lacking                  // the token lacks scopes for it
	granted
)

// standingOf compares a caller with the subjects and scopes of a rule. A caller whose token cannot have
// scopes, or who has none, has no use for a rule with scopes: no login would help it, so it must not
// be asked for one.
func (r *Rights) standingOf(number int, who caller) standing {
	rule := &r.policy.rules[number]
	switch {
	case !slices.ContainsFunc(rule.subjects, who.is):
		return stranger
	case !who.hasScopes && rule.scoped:
		return stranger
	case who.hasScopes && r.countMissing(number) > 0:
		return lacking
	}
	return granted
}

func (r *Rights) countMissing(rule int) (n int) {
	for _, scope := range r.policy.rules[rule].needs {
		if !slices.Contains(r.held, scope) {
			n++
		}
	}
	return n
}

// lacks reports whether the token does not have all of the scopes.
func (r *Rights) lacks(scopes []string) bool {
	return slices.ContainsFunc(scopes, func(scope string) bool { return !slices.Contains(r.held, scope) })
}

// Probe returns the rights of the manager's probe: it sees everything and calls nothing.
func Probe() *Rights { return &Rights{probe: true} }

// None reports whether the caller may do nothing at all, whatever scopes its next token has.
func (r *Rights) None() bool {
	return r != nil && !r.probe && !r.open && !r.entitled
}

// search is what to look for in an index.
type search struct {
	name    []byte
	noExact bool // it is a part of a name
	onlyAll bool // only a rule for everything gives it
}

// everything is what an unknown method may be about.
var everything = search{noExact: true, onlyAll: true}

// find returns the rule that gives the caller something, or -1. In that case it also returns the rule that
// would with the fewest scopes more, or -1.
func (r *Rights) find(kind Kind, what search) (grant, offer int) {
	offer = -1
	x := r.policy.indexes[kind]
	if !what.noExact && !what.onlyAll {
		if grant, offer = r.best(x.exact[string(what.name)], offer); grant >= 0 {
			return grant, -1
		}
	}
	for i := range x.globs {
		g := &x.globs[i]
		if what.onlyAll && !g.all() || !g.matches(what.name) {
			continue
		}
		if grant, offer = r.best(g.rules, offer); grant >= 0 {
			return grant, -1
		}
	}
	return -1, offer
}

// best returns the first of the rules that is granted, or -1, and the best offer of these rules and an
// earlier one.
func (r *Rights) best(rules []int, earlier int) (grant, offer int) {
	offer = earlier
	for _, rule := range rules {
		switch r.standings[rule] {
		case granted:
			return rule, offer
		case lacking:
			if offer < 0 || r.countMissing(rule) < r.countMissing(offer) {
				offer = rule
			}
		case stranger:
		}
	}
	return -1, offer
}

// HearsOf reports whether the caller may know that a resource has changed: it may read the resource. A server may
// tell of a part of the resource that the caller has subscribed to, and rules may give it one without the other.
func (r *Rights) HearsOf(uri []byte) bool {
	switch {
	case r == nil || r.all || r.open || r.probe:
		return true
	case r.blocked || uri == nil:
		return false
	}
	grant, _ := r.find(Resources, searchURI(uri))
	return grant >= 0
}

// seesAll reports whether the caller sees everything of a kind.
func (r *Rights) seesAll(kind Kind) bool {
	switch {
	case kind == Tools && len(r.policy.hidden) > 0:
		return false
	case r.open:
		return true
	}
	grant, offer := r.find(kind, everything)
	return grant >= 0 || offer >= 0
}

// mayAll reports whether the rules give the caller everything of all kinds.
func (r *Rights) mayAll() bool {
	for _, kind := range allKinds {
		if grant, _ := r.find(kind, everything); grant < 0 {
			return false
		}
	}
	return true
}

// hides reports whether the policy hides the tool from every caller.
func (r *Rights) hides(kind Kind, name []byte) bool {
	return kind == Tools && slices.ContainsFunc(r.policy.hidden, func(p pattern) bool { return p.matches(name) })
}

// shows reports whether the caller sees something in a list: what it may use, and what it might use with
// more scopes.
func (r *Rights) shows(kind Kind, what search) bool {
	switch {
	case r.blocked || r.hides(kind, what.name):
		return false
	case r.open:
		return true
	}
	grant, offer := r.find(kind, what)
	return grant >= 0 || offer >= 0
}
