package subscription

import (
	"slices"
	"strings"
)

// Want is what the clients of one pod listen to, at the processes that serve a principal. The Principal is empty where
// callers share processes.
type Want struct {
	Principal string
	Filter
}

// Observer hears of the changes that some Wants ask for. Its methods never wait, and may be called at the same time.
type Observer interface {
	// Changed takes one change. of is the index of the Want, and the URI that of an update.
	Changed(of int, method, uri string)
	// Missed says that all that the Want asks for may have changed.
	Missed(of int)
	// Ended says that the Observer hears of no more changes.
	Ended()
}

// All are all lists.
func All() (all Set) {
	for i := range all {
		all[i] = true
	}
	return all
}

// Names are the lists of the set, for pods of any version.
func (s Set) Names() (names []string) {
	for i, has := range s {
		if has {
			names = append(names, Lists[i].capability)
		}
	}
	return names
}

// SetOf is the set of lists with these names. It leaves out those that it does not know.
func SetOf(names []string) (s Set) {
	for i := range Lists {
		s[i] = slices.Contains(names, Lists[i].capability)
	}
	return s
}

// Or returns the changes that either filter asks for.
func (f Filter) Or(other Filter) (either Filter) {
	for i := range either.Lists {
		either.Lists[i] = f.Lists[i] || other.Lists[i]
	}
	if len(other.URIs) == 0 {
		either.URIs = f.URIs
		return either
	}
	either.URIs = slices.Concat(f.URIs, other.URIs)
	slices.Sort(either.URIs)
	either.URIs = slices.Compact(either.URIs)
	return either
}

// Without returns the changes that this filter asks for, and another one does not.
func (f Filter) Without(other Filter) (rest Filter) {
	for i := range rest.Lists {
		rest.Lists[i] = f.Lists[i] && !other.Lists[i]
	}
	for _, uri := range f.URIs {
		if _, found := slices.BinarySearch(other.URIs, uri); !found {
			rest.URIs = append(rest.URIs, uri)
		}
	}
	return rest
}

// CompareWants orders Wants by their principals.
func CompareWants(a, b Want) int { return strings.Compare(a.Principal, b.Principal) }
