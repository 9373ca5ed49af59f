// Package subscription has the rules for subscriptions: which changes servers report, how a filter
// names them (N-01), and which notifications match a filter. All packages that handle subscriptions use
// these rules.
package subscription

import (
	"iter"
	"slices"
	"strings"
)

// Methods of subscriptions and of changes.
const (
	MethodListen       = "subscriptions/listen"
	MethodAcknowledged = "notifications/subscriptions/acknowledged"
	MethodUpdated      = "notifications/resources/updated"
	MethodToolsChanged = "notifications/tools/list_changed"
)

// Lists are the lists whose changes servers report.
var Lists = [...]struct {
	capability string // has listChanged if the server reports changes
	member     string // of a filter
	Method     string // of the notification
}{
	{"tools", "toolsListChanged", MethodToolsChanged},
	{"prompts", "promptsListChanged", "notifications/prompts/list_changed"},
	{"resources", "resourcesListChanged", "notifications/resources/list_changed"},
}

// memberURIs is the member of a filter that names resources.
const memberURIs = "resourceSubscriptions"

// Set has one value for each of Lists, in the same order.
type Set [len(Lists)]bool

// ListOf returns the index in Lists of the list whose change a notification reports, or -1.
func ListOf(method string) int {
	for i := range Lists {
		if Lists[i].Method == method {
			return i
		}
	}
	return -1
}

// Covers reports whether a subscription to one resource includes updates of another: of the same one,
// or of a part of it. The protocol lets a server report a part, and does not define parts. Here the
// URI of a part continues the subscribed one where a segment of the path, the query or the fragment
// begins.
func Covers(subscribed, updated string) bool {
	return strings.HasPrefix(updated, subscribed) && endsWhole(updated, len(subscribed))
}

// Wholes yields every URI of at most so many bytes that covers the updated one. With it, callers look
// up subscribers by URI instead of checking each.
func Wholes(updated string, longest int) iter.Seq[string] {
	return func(yield func(string) bool) {
		for n := 1; n <= min(len(updated), longest); n++ {
			if endsWhole(updated, n) && !yield(updated[:n]) {
				return
			}
		}
	}
}

// endsWhole reports whether the first n bytes of a URI name a resource that the whole URI is part of.
func endsWhole(uri string, n int) bool {
	return n == len(uri) || isDelimiter(uri[n]) || n > 0 && isDelimiter(uri[n-1])
}

func isDelimiter(c byte) bool { return c == '/' || c == '?' || c == '#' }

// Filter is the set of changes that a subscription asks for. The zero value is empty.
type Filter struct {
	Lists Set
	URIs  []string // of resources; sorted, each once
}

// IsEmpty reports whether the filter asks for nothing.
func (f Filter) IsEmpty() bool { return f.Lists == Set{} && len(f.URIs) == 0 }

// Matches reports whether the filter asks for a notification. The URI is that of an update.
func (f Filter) Matches(method, uri string) bool {
	if method != MethodUpdated {
		list := ListOf(method)
		return list >= 0 && f.Lists[list]
	}
	// A URI that covers another one sorts before it.
	i, found := slices.BinarySearch(f.URIs, uri)
	return found || slices.ContainsFunc(f.URIs[:i], func(subscribed string) bool { return Covers(subscribed, uri) })
}

// Includes reports whether the filter asks for all changes that another one asks for.
func (f Filter) Includes(other Filter) bool {
	common := f.And(other)
	return common.Lists == other.Lists && len(common.URIs) == len(other.URIs)
}

// And returns the changes that both filters ask for.
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

// Among returns those of some changes that the filter asks for. A change of a part of a resource is one of the part.
func (f Filter) Among(changes Filter) (wanted Filter) {
	for i := range wanted.Lists {
		wanted.Lists[i] = f.Lists[i] && changes.Lists[i]
	}
	for _, uri := range changes.URIs {
		if f.Matches(MethodUpdated, uri) {
			wanted.URIs = append(wanted.URIs, uri)
		}
	}
	return wanted
}

// Each yields one notification for each change that the filter asks for, always in the same order: its
// method, and the URI of an update. It is for clients that may have missed notifications.
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
