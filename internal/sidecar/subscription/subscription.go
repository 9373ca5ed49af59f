// Package subscription has the rules of what a client can subscribe to: which changes
// servers tell of, how a filter names them (N-01), and which notifications match a filter.
// It has no connections. The packages that take subscriptions of clients, or make their
// own at a server, all use these rules.
package subscription

import (
	"iter"
	"slices"
	"strings"
)

// Methods of subscriptions, and of the changes that more than one package looks for.
const (
	MethodListen       = "subscriptions/listen"
	MethodAcknowledged = "notifications/subscriptions/acknowledged"
	MethodUpdated      = "notifications/resources/updated"
	MethodToolsChanged = "notifications/tools/list_changed"
)

// Lists are those whose changes servers tell of.
var Lists = [...]struct {
	Capability string // that has listChanged if the server tells of changes
	member     string // of a filter
	Method     string // of the notification
}{
	{"tools", "toolsListChanged", MethodToolsChanged},
	{"prompts", "promptsListChanged", "notifications/prompts/list_changed"},
	{"resources", "resourcesListChanged", "notifications/resources/list_changed"},
}

// memberURIs is the member of a filter that names resources.
const memberURIs = "resourceSubscriptions"

// Set says something of each of Lists, in the same order.
type Set [len(Lists)]bool

// ListOf is the position in Lists of the list whose changes a notification tells of, or -1.
func ListOf(method string) int {
	for i := range Lists {
		if Lists[i].Method == method {
			return i
		}
	}
	return -1
}

// Covers says whether the subscribers of one resource want to know of an update of another:
// of the same one, or of a part of it. The protocol lets a server report a part, and does
// not define one. Here a part has a URI that continues the subscribed one where a segment of
// the path, the query or the fragment begins.
func Covers(subscribed, updated string) bool {
	return strings.HasPrefix(updated, subscribed) && endsWhole(updated, len(subscribed))
}

// Wholes yields every URI that covers the updated one and is not longer than that. It is for
// finding a few of many subscribers.
func Wholes(updated string, longest int) iter.Seq[string] {
	return func(yield func(string) bool) {
		for n := 1; n <= min(len(updated), longest); n++ {
			if endsWhole(updated, n) && !yield(updated[:n]) {
				return
			}
		}
	}
}

// endsWhole says whether the first n bytes of a URI name a resource that the rest is part of.
func endsWhole(uri string, n int) bool {
	return n == len(uri) || isDelimiter(uri[n]) || n > 0 && isDelimiter(uri[n-1])
}

func isDelimiter(c byte) bool { return c == '/' || c == '?' || c == '#' }

// Filter is what a subscription is about. The zero value is about nothing.
type Filter struct {
	Lists Set
	URIs  []string // of resources; sorted, each once
}

// IsEmpty says whether the filter is about nothing.
func (f Filter) IsEmpty() bool { return f.Lists == Set{} && len(f.URIs) == 0 }

// Matches says whether the filter asks for a notification. The URI is that of an update.
func (f Filter) Matches(method, uri string) bool {
	if method != MethodUpdated {
		list := ListOf(method)
		return list >= 0 && f.Lists[list]
	}
	// A URI that the other continues sorts before it.
	i, found := slices.BinarySearch(f.URIs, uri)
	return found || slices.ContainsFunc(f.URIs[:i], func(subscribed string) bool { return Covers(subscribed, uri) })
}

// Includes says whether the filter asks for all that another asks for.
func (f Filter) Includes(other Filter) bool {
	common := f.And(other)
	return common.Lists == other.Lists && len(common.URIs) == len(other.URIs)
}

// And is what two filters have in common.
func (f Filter) And(other Filter) (common Filter) {
	for i := range common.Lists {
		common.Lists[i] = f.Lists[i] && other.Lists[i]
	}
	for _, uri := range other.URIs {
		if _, found := slices.BinarySearch(f.URIs, uri); found {
			common.URIs = append(common.URIs, uri)
		}
	}
	return common
}

// Each yields a notification for each change that the filter asks for, in the same order
// every time: its method, and the URI of an update. It is for clients that may have missed
// some.
func (f Filter) Each(yield func(method, uri string) bool) {
	for i, wanted := range f.Lists {
		if wanted && !yield(Lists[i].Method, "") {
			return
		}
	}
	for _, uri := range f.URIs {
		if !yield(MethodUpdated, uri) {
			return
		}
	}
}
