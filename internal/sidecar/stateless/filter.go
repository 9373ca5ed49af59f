package stateless

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// filter is what a subscription is about (N-01).
type filter struct {
	kinds [len(listKinds)]bool
	uris  map[string]struct{}
}

// listKinds are the lists whose changes can be subscribed to: how a filter calls them,
// and how a change is told.
var listKinds = [...]struct{ member, method string }{
	{"toolsListChanged", "notifications/tools/list_changed"},
	{"promptsListChanged", "notifications/prompts/list_changed"},
	{"resourcesListChanged", "notifications/resources/list_changed"},
}

const (
	memberURIs    = "resourceSubscriptions"
	methodUpdated = "notifications/resources/updated"
)

// filterOf is the filter of a subscription, if all that it asks for is known here.
func filterOf(message session.Message) (f filter, known bool) {
	var params struct {
		Notifications map[string]json.RawMessage `json:"notifications"`
	}
	if !message.Envelope.Params.Present() || json.Unmarshal(message.Envelope.Params.Of(message.Bytes), &params) != nil || params.Notifications == nil {
		return filter{}, false
	}
	f.uris = map[string]struct{}{}
	for member, value := range params.Notifications {
		if !f.read(member, value) {
			return filter{}, false
		}
	}
	return f, true
}

func (f *filter) read(member string, value json.RawMessage) bool {
	if member == memberURIs {
		var uris []string
		if json.Unmarshal(value, &uris) != nil {
			return false
		}
		for _, uri := range uris {
			f.uris[uri] = struct{}{}
		}
		return true
	}
	for i, kind := range listKinds {
		if kind.member == member {
			return json.Unmarshal(value, &f.kinds[i]) == nil
		}
	}
	return false
}

func (f *filter) empty() bool { return len(f.uris) == 0 && !slices.Contains(f.kinds[:], true) }

// both is what two filters have in common.
func both(a, b filter) filter {
	common := filter{uris: map[string]struct{}{}}
	for i := range common.kinds {
		common.kinds[i] = a.kinds[i] && b.kinds[i]
	}
	for uri := range a.uris {
		if _, ok := b.uris[uri]; ok {
			common.uris[uri] = struct{}{}
		}
	}
	return common
}

// text is the filter as it stands in a message.
func (f *filter) text() string {
	members := map[string]any{}
	for i, kind := range listKinds {
		if f.kinds[i] {
			members[kind.member] = true
		}
	}
	if len(f.uris) > 0 {
		uris := make([]string, 0, len(f.uris))
		for uri := range f.uris {
			uris = append(uris, uri)
		}
		slices.Sort(uris)
		members[memberURIs] = uris
	}
	text, err := json.Marshal(members)
	if err != nil {
		return "{}" // texts and truth always have an encoding
	}
	return string(text)
}

// matches says whether news are what the filter asks for. The protocol lets a server
// report a part of a resource that was subscribed to.
func (f *filter) matches(news session.Message) bool {
	method := string(news.Envelope.Method)
	if method == methodUpdated {
		return f.hasURI(string(news.Envelope.URI))
	}
	for i, kind := range listKinds {
		if kind.method == method {
			return f.kinds[i]
		}
	}
	return false
}

func (f *filter) hasURI(uri string) bool {
	if _, ok := f.uris[uri]; ok {
		return true
	}
	for part := range f.uris {
		rest, begins := strings.CutPrefix(uri, part)
		if begins && rest != "" && (strings.ContainsAny(rest[:1], "/?#") || strings.HasSuffix(part, "/")) {
			return true
		}
	}
	return false
}
