package subscription

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A server may report a part of what a client is subscribed to. Every package that routes
// updates has the same idea of a part.
func TestCovers(t *testing.T) {
	for name, test := range map[string]struct {
		subscribed, updated string
		want                bool
	}{
		"itself":                        {"file:///dir", "file:///dir", true},
		"a segment":                     {"file:///dir", "file:///dir/a", true},
		"a segment of a directory":      {"file:///dir/", "file:///dir/a", true},
		"the directory":                 {"file:///dir", "file:///dir/", true},
		"a query":                       {"file:///dir", "file:///dir?q", true},
		"an empty query":                {"file:///dir", "file:///dir?", true},
		"a query of an empty one":       {"file:///dir?", "file:///dir?q", true},
		"a fragment":                    {"file:///dir", "file:///dir#f", true},
		"a fragment of an empty one":    {"file:///dir#", "file:///dir#f", true},
		"all of a scheme":               {"x://", "x://y", true},
		"a name that goes on":           {"file:///dir", "file:///dirt", false},
		"a query that goes on":          {"file:///dir?a", "file:///dir?a=1", false},
		"the whole":                     {"file:///dir/a", "file:///dir", false},
		"another":                       {"file:///dir", "file:///other/dir", false},
		"no resource, and a path":       {"", "/a", true},
		"no resource, and another":      {"", "a", false},
		"an update that names nothing":  {"a", "", false},
		"nothing, updated, as asked":    {"", "", true},
		"a whole that ends in a letter": {"a:b", "a:bc", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Covers(test.subscribed, test.updated); got != test.want {
				t.Errorf("Covers(%q, %q) is %v", test.subscribed, test.updated, got)
			}
			if got := slices.Contains(slices.Collect(Wholes(test.updated, 100)), test.subscribed); got != test.want && test.subscribed != "" {
				t.Errorf("%q is among the wholes of %q: %v", test.subscribed, test.updated, got)
			}
			filter := Filter{URIs: []string{test.subscribed}}
			if got := filter.Matches(MethodUpdated, test.updated); got != test.want {
				t.Errorf("a filter for %q matches %q: %v", test.subscribed, test.updated, got)
			}
		})
	}
}

func TestWholes(t *testing.T) {
	const uri = "x://h/a?q"
	want := []string{"x:", "x:/", "x://", "x://h", "x://h/", "x://h/a", "x://h/a?", uri}
	if got := slices.Collect(Wholes(uri, 100)); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if got := slices.Collect(Wholes(uri, len("x://h"))); !slices.Equal(got, want[:4]) {
		t.Errorf("of those that are short got %q", got)
	}
	for range Wholes(uri, 100) {
		break
	}
}

// N-01: a filter matches what it asks for and nothing else.
func TestMatches(t *testing.T) {
	all := Filter{Lists: Set{true, true, true}, URIs: []string{"a://", "a://x", "a://y", "b://z/", "c"}}
	for method, list := range map[string]int{
		"notifications/tools/list_changed":     0,
		"notifications/prompts/list_changed":   1,
		"notifications/resources/list_changed": 2,
	} {
		var one Filter
		one.Lists[list] = true
		others := all
		others.Lists[list] = false
		if !one.Matches(method, "") || !all.Matches(method, "") || others.Matches(method, "") || others.Matches(method, "a://x") {
			t.Errorf("%s: not exactly the filters with list %d match", method, list)
		}
	}
	for _, method := range []string{"notifications/roots/list_changed", "notifications/message", "notifications/progress", "notifications/tasks", ""} {
		if all.Matches(method, "a://x") || ListOf(method) >= 0 {
			t.Errorf("a filter matches %q", method)
		}
	}
	for uri, want := range map[string]bool{"a://x": true, "a://xx": true, "b://z": false, "b://z/a": true, "b://zz": false, "c/d": true, "c": true, "cc": false, "b": false, "": false} {
		if got := all.Matches(MethodUpdated, uri); got != want {
			t.Errorf("the filter matches an update of %q: %v", uri, got)
		}
	}
	if (Filter{}).Matches(MethodUpdated, "") || (Filter{Lists: Set{true, true, true}}).Matches(MethodUpdated, "a") {
		t.Error("a filter without resources matches an update")
	}
}

// A server must not cost more the longer the URI is that it invents.
func TestMatchesLongURIs(t *testing.T) {
	filter := Filter{URIs: []string{"a://x", "a://y/"}}
	if long := "a://x" + strings.Repeat("/", 1<<20); !filter.Matches(MethodUpdated, long) || filter.Matches(MethodUpdated, long[1:]) {
		t.Error("a long URI is not matched by its beginning")
	}
}

func TestSets(t *testing.T) {
	one := Filter{Lists: Set{true, false, true}, URIs: []string{"a", "b", "d"}}
	two := Filter{Lists: Set{true, true, false}, URIs: []string{"b", "c", "d"}}
	want := Filter{Lists: Set{true, false, false}, URIs: []string{"b", "d"}}
	for _, got := range []Filter{one.And(two), two.And(one), one.And(want), want.And(two)} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("in common (-want +got):\n%s", diff)
		}
	}
	if !one.Includes(want) || !one.Includes(one) || !one.Includes(Filter{}) || one.Includes(two) || want.Includes(one) {
		t.Error("a filter includes another that asks for more, or not one that asks for less")
	}
	if (Filter{}).Includes(Filter{Lists: Set{true}}) || (Filter{}).Includes(Filter{URIs: []string{"a"}}) {
		t.Error("a filter for nothing includes another")
	}
	if !(Filter{}).IsEmpty() || (Filter{Lists: Set{2: true}}).IsEmpty() || (Filter{URIs: []string{"a"}}).IsEmpty() {
		t.Error("a filter is empty that asks for something, or not one for nothing")
	}
}

func TestEach(t *testing.T) {
	filter := Filter{Lists: Set{true, false, true}, URIs: []string{"a", "b"}}
	var got []string
	for method, uri := range filter.Each {
		got = append(got, method+" "+uri)
		if !filter.Matches(method, uri) {
			t.Errorf("the filter does not ask for its own %s %s", method, uri)
		}
	}
	want := []string{"notifications/tools/list_changed ", "notifications/resources/list_changed ", MethodUpdated + " a", MethodUpdated + " b"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	for range filter.Each {
		break
	}
}
