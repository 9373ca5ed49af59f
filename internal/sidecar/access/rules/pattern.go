package rules

import (
	"bytes"
	"fmt"
	"strings"
)

// pattern is a name or URI in a rule, or a part of one with anything before it, behind it, or both.
type pattern struct {
	text   []byte
	before bool // anything may stand before the text
	behind bool // anything may stand behind the text
}

// namePattern reads a name of a tool or prompt, with * at one end, at both or at none.
func namePattern(text string) (pattern, error) {
	middle, before := strings.CutPrefix(text, "*")
	middle, behind := strings.CutSuffix(middle, "*")
	if text == "" || strings.Contains(middle, "*") {
		return pattern{}, fmt.Errorf("%q is no name, and no name with * at its ends", text)
	}
	if middle == "" { // "*" alone is both of its ends
		behind = true
	}
	return pattern{[]byte(middle), before, behind}, nil
}

// uriPattern reads a URI, a prefix of URIs that ends with a slash, or * for all.
func uriPattern(text string) (pattern, error) {
	switch {
	case text == "*":
		return pattern{before: true, behind: true}, nil
	case text == "" || strings.Contains(text, "*"):
		return pattern{}, fmt.Errorf("%q is no URI, no prefix with a slash at its end, and not *", text)
	}
	return pattern{text: []byte(text), behind: strings.HasSuffix(text, "/")}, nil
}

func (p *pattern) exact() bool { return !p.before && !p.behind }

// all reports whether everything matches.
func (p *pattern) all() bool { return p.behind && len(p.text) == 0 }

func (p *pattern) matches(name []byte) bool {
	switch {
	case p.before && p.behind:
		return bytes.Contains(name, p.text)
	case p.before:
		return bytes.HasSuffix(name, p.text)
	case p.behind:
		return bytes.HasPrefix(name, p.text)
	}
	return bytes.Equal(name, p.text)
}

// index finds the rules that give something, by its name or URI.
type index struct {
	exact map[string][]int
	globs []glob
}

type glob struct {
	pattern
	rules []int // in their order
}

func newIndex() *index { return &index{exact: map[string][]int{}} }

func (x *index) add(p pattern, rule int) {
	if p.exact() {
		x.exact[string(p.text)] = append(x.exact[string(p.text)], rule)
		return
	}
	for i := range x.globs {
		if g := &x.globs[i]; g.before == p.before && g.behind == p.behind && bytes.Equal(g.text, p.text) {
			g.rules = append(g.rules, rule)
			return
		}
	}
	x.globs = append(x.globs, glob{p, []int{rule}})
}
