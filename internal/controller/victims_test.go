package controller

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// living is a pod that is ready, of the newest template and as old as all others.
func living(name string, sessions int64, change ...func(*candidate)) candidate {
	pod := candidate{uid: types.UID(name), name: name, ready: true, isNewest: true, generation: podGeneration{template: "new"}, created: noon, sessions: sessions}
	for _, c := range change {
		c(&pod)
	}
	return pod
}

func unready(pod *candidate) { pod.ready = false }

// outdated makes a pod one of a template whose pods were created so many hours before.
func outdated(template string, hours int) func(*candidate) {
	return func(pod *candidate) {
		pod.isNewest, pod.generation.template = false, template
		pod.created = noon.Add(-hoursOf(hours))
	}
}

func aged(hours int) func(*candidate) {
	return func(pod *candidate) { pod.created = noon.Add(-hoursOf(hours)) }
}

func TestChooseVictims(t *testing.T) {
	for name, test := range map[string]struct {
		pods   []candidate
		before string // chosen
		n      int
		want   string
	}{
		"none":                       {[]candidate{living("a", 0)}, "", 0, ""},
		"more than there are":        {[]candidate{living("a", 0)}, "", 3, "a"},
		"fewest sessions":            {[]candidate{living("a", 4), living("b", 0), living("c", 7), living("d", 1), living("e", 2)}, "", 2, "b d"},
		"not ready, whatever it has": {[]candidate{living("a", 0), living("b", 9, unready)}, "", 1, "b"},
		"old template, whatever it has": {
			[]candidate{living("a", 0), living("b", 9, outdated("old", 1))}, "", 1, "b",
		},
		"oldest template": {
			[]candidate{living("a", 0, outdated("old", 1)), living("b", 5, outdated("older", 2)), living("c", 7, outdated("older", 0))}, "", 2, "b c",
		},
		"a template that is used again is the newest": {
			[]candidate{living("a", 0, aged(5)), living("b", 5, outdated("between", 1))}, "", 1, "b",
		},
		"chosen before, although it has got more": {[]candidate{living("a", 1), living("b", 2)}, "b", 1, "b"},
		"not ready before chosen before":          {[]candidate{living("a", 1, unready), living("b", 2)}, "b", 1, "a"},
		"the choice grows":                        {[]candidate{living("a", 1), living("b", 2), living("c", 0)}, "b", 2, "b c"},
		"the choice shrinks":                      {[]candidate{living("a", 1), living("b", 2), living("c", 0)}, "a b", 1, "a"},
		"a pod that was chosen is gone":           {[]candidate{living("a", 1), living("b", 2)}, "c", 1, "a"},
		"sessions are not known":                  {[]candidate{living("a", unknownSessions), living("b", 19)}, "", 1, "b"},
		"the youngest of equals":                  {[]candidate{living("a", 1, aged(2)), living("b", 1, aged(1)), living("c", 1, aged(3))}, "", 1, "b"},
		"by name at last":                         {[]candidate{living("b", 1), living("a", 1)}, "", 1, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			before := map[types.UID]bool{}
			for name := range strings.FieldsSeq(test.before) {
				before[types.UID(name)] = true
			}
			if got := namesOf(chooseVictims(test.pods, before, test.n)); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// Every victim costs less than every other pod, and of either those with fewer sessions cost less.
func TestDeletionCosts(t *testing.T) {
	for name, test := range map[string]struct {
		sessions int64
		isVictim bool
		want     string
	}{
		"empty":                   {0, false, "0"},
		"full":                    {1000, false, "1000"},
		"not known":               {unknownSessions, false, "2147483647"}, // the most that the annotation may have
		"an empty victim":         {0, true, "-1000"},
		"a victim":                {3, true, "-997"},
		"a full victim":           {1000, true, "-1"},
		"a victim, and not known": {unknownSessions, true, "-1"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := deletionCost(living("a", test.sessions), test.isVictim); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
