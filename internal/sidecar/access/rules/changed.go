package rules

import (
	"bytes"
	"maps"
	"slices"

	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// Changed returns the lists of which a caller sees other entries after a change of its rights, whatever entries
// the server has. A change of scopes alone changes no list: lists have what a caller can get with more scopes.
func Changed(before, after *Rights) (lists subscription.Set) {
	if before == after {
		return lists
	}
	for i, kind := range allKinds { // which are in the order of subscription.Lists
		was, is := before.viewOf(kind), after.viewOf(kind)
		lists[i] = !was.shown.equals(&is.shown) || !was.hidden.equals(&is.hidden)
	}
	return lists
}

// view is what a caller sees of a kind: what shown matches, without what hidden matches. It has no pattern that
// makes no difference, so that two views of the same entries have the same patterns. A view with globs in both
// sets may have some, and then a list counts as changed that is not.
type view struct{ shown, hidden patterns }

func (r *Rights) viewOf(kind Kind) (v view) {
	everything := patterns{globs: []pattern{{before: true, behind: true}}}
	switch {
	case r == nil || r.probe || r.all:
		return view{shown: everything}
	case r.blocked:
		return view{}
	case r.open:
		v.shown = everything
	default:
		v.shown = r.patternsOf(kind)
	}
	if kind == Tools {
		for _, hidden := range r.policy.hidden {
			v.hidden.add(hidden)
		}
	}
	v.reduce()
	return v
}

// patternsOf returns the patterns of all rules that are for the caller.
func (r *Rights) patternsOf(kind Kind) (all patterns) {
	x := r.policy.indexes[kind]
	isFor := func(rule int) bool { return r.standings[rule] != stranger }
	for name, rules := range x.exact {
		if slices.ContainsFunc(rules, isFor) {
			all.add(pattern{text: []byte(name)})
		}
	}
	for i := range x.globs {
		if slices.ContainsFunc(x.globs[i].rules, isFor) {
			all.add(x.globs[i].pattern)
		}
	}
	return all
}

// reduce removes the patterns that make no difference.
func (v *view) reduce() {
	v.hidden.deleteFunc(func(p *pattern) bool { return v.hidden.include(p) })
	v.shown.deleteFunc(func(p *pattern) bool { return v.shown.include(p) || v.hidden.has(p) || v.hidden.include(p) })
	v.hidden.deleteFunc(func(p *pattern) bool { return !v.shown.overlap(p) })
}

// patterns is a set. A rule may have very many exact names, and few patterns with stars.
type patterns struct {
	exact map[string]struct{}
	globs []pattern
}

func (ps *patterns) add(p pattern) {
	switch {
	case ps.has(&p):
	case !p.exact():
		ps.globs = append(ps.globs, p)
	case ps.exact == nil:
		ps.exact = map[string]struct{}{string(p.text): {}}
	default:
		ps.exact[string(p.text)] = struct{}{}
	}
}

func (ps *patterns) has(p *pattern) bool {
	if p.exact() {
		_, ok := ps.exact[string(p.text)]
		return ok
	}
	return slices.ContainsFunc(ps.globs, func(glob pattern) bool { return glob.includes(p) && p.includes(&glob) })
}

// include reports whether a glob matches everything that the pattern matches, and more.
func (ps *patterns) include(p *pattern) bool {
	return slices.ContainsFunc(ps.globs, func(glob pattern) bool { return glob.includes(p) && !p.includes(&glob) })
}

// overlap reports whether there is something that both the pattern and one of the set match.
func (ps *patterns) overlap(p *pattern) bool {
	if p.exact() {
		return ps.has(p) || ps.include(p)
	}
	for name := range ps.exact {
		if p.matches([]byte(name)) {
			return true
		}
	}
	return slices.ContainsFunc(ps.globs, p.overlaps)
}

// deleteFunc may be asked to delete by what the set itself has: what is deleted first includes nothing that
// another pattern of the set does not include, too.
func (ps *patterns) deleteFunc(del func(*pattern) bool) {
	maps.DeleteFunc(ps.exact, func(name string, _ struct{}) bool { return del(&pattern{text: []byte(name)}) })
	var kept []pattern
	for _, glob := range ps.globs {
		if !del(&glob) {
			kept = append(kept, glob)
		}
	}
	ps.globs = kept
}

func (ps *patterns) equals(other *patterns) bool {
	return maps.Equal(ps.exact, other.exact) && len(ps.globs) == len(other.globs) &&
		!slices.ContainsFunc(ps.globs, func(glob pattern) bool { return !other.has(&glob) })
}

// includes reports whether the pattern matches everything that another one matches.
func (p *pattern) includes(other *pattern) bool {
	return (p.before || !other.before) && (p.behind || !other.behind) && p.matches(other.text)
}

// overlaps reports whether there is something that two patterns with stars both match.
func (p *pattern) overlaps(other pattern) bool {
	switch {
	case !p.before && !other.before:
		return bytes.HasPrefix(p.text, other.text) || bytes.HasPrefix(other.text, p.text)
	case !p.behind && !other.behind:
		return bytes.HasSuffix(p.text, other.text) || bytes.HasSuffix(other.text, p.text)
	}
	return true
}
