package formodern

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

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

// filter is what a subscription is about.
type filter struct {
	kinds [len(listKinds)]bool
	uris  []string // each once
}

var errFilter = errors.New("params.notifications is not what it must be")

// filterOf is the filter of a request. What is not known in it is ignored.
func filterOf(r *request) (f filter, err error) {
	found, err := rpc.Find(r.Bytes, r.Envelope.Params, "notifications")
	if err != nil {
		return f, err
	}
	if !found[0].IsObject(r.Bytes) {
		return f, errFilter
	}
	var read map[string]json.RawMessage
	if json.Unmarshal(found[0].Of(r.Bytes), &read) != nil {
		return f, errFilter
	}
	for i, kind := range listKinds {
		if value := read[kind.member]; value != nil && json.Unmarshal(value, &f.kinds[i]) != nil {
			return f, errFilter
		}
	}
	if value := read[memberURIs]; value != nil && json.Unmarshal(value, &f.uris) != nil {
		return f, errFilter
	}
	slices.Sort(f.uris)
	f.uris = slices.Compact(f.uris)
	return f, nil
}

func (f *filter) empty() bool { return len(f.uris) == 0 && !slices.Contains(f.kinds[:], true) }

// text is the filter as it stands in a message.
func (f *filter) text() string {
	var members []string
	for i, kind := range listKinds {
		if f.kinds[i] {
			members = append(members, `"`+kind.member+`":true`)
		}
	}
	if len(f.uris) > 0 {
		uris := make([]string, len(f.uris))
		for i, uri := range f.uris {
			uris[i] = string(rpc.AppendString(nil, uri))
		}
		members = append(members, `"`+memberURIs+`":[`+strings.Join(uris, ",")+`]`)
	}
	return rpc.Object(members...)
}

// matches says whether news are what the filter asks for. The protocol lets a server
// report a part of a resource that was subscribed to.
func (f *filter) matches(news session.Message) bool {
	method := string(news.Envelope.Method)
	if method == methodUpdated {
		uri := string(news.Envelope.URI)
		return slices.ContainsFunc(f.uris, func(whole string) bool { return uri == whole || isPart(uri, whole) })
	}
	kind := kindOf(method)
	return kind >= 0 && f.kinds[kind]
}

func kindOf(method string) int {
	for i, kind := range listKinds {
		if kind.method == method {
			return i
		}
	}
	return -1
}

func isPart(uri, whole string) bool {
	rest, begins := strings.CutPrefix(uri, whole)
	return begins && rest != "" && (strings.ContainsAny(rest[:1], "/?#") || strings.HasSuffix(whole, "/"))
}
