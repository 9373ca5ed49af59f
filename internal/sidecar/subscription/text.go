package subscription

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// ErrFilter says that a message has no filter, or an invalid one.
var ErrFilter = errors.New("params.notifications is not what it must be")

// Parse reads the filter in the params of a request to listen, or of the notification that acknowledges
// one (N-02). The message must have been scanned. Parse leaves out changes that this package does not
// know, such as those of tasks, and then returns true for more. A member of another type, or one that
// parsers read differently, is an error. A null member counts as absent.
func Parse(message []byte, params rpc.Span) (f Filter, more bool, err error) {
	found, err := rpc.Find(message, params, "notifications")
	if err != nil {
		return Filter{}, false, err
	}
	object := found[0]
	if !object.Present() || message[object.Start] != '{' {
		return Filter{}, false, ErrFilter
	}
	values, err := rpc.Find(message, object, Lists[0].member, Lists[1].member, Lists[2].member, memberURIs)
	if err != nil {
		return Filter{}, false, err
	}
	for i := range f.Lists {
		switch string(values[i].Of(message)) {
		case "true":
			f.Lists[i] = true
		case "", "false", "null":
		default:
			return Filter{}, false, ErrFilter
		}
	}
	if f.URIs, err = readURIs(values[len(Lists)].Of(message)); err != nil {
		return Filter{}, false, err
	}
	var all map[string]json.RawMessage
	if json.Unmarshal(object.Of(message), &all) != nil {
		return Filter{}, false, ErrFilter
	}
	known := 0
	for _, value := range values {
		if value.Present() {
			known++
		}
	}
	return f, len(all) > known, nil
}

func readURIs(value []byte) ([]string, error) {
	if len(value) == 0 {
		return nil, nil
	}
	var read []*string
	if json.Unmarshal(value, &read) != nil {
		return nil, ErrFilter
	}
	uris := make([]string, len(read))
	for i, uri := range read {
		if uri == nil {
			return nil, ErrFilter
		}
		uris[i] = *uri
	}
	slices.Sort(uris)
	return slices.Compact(uris), nil
}

// Announced returns the lists whose changes a server announces, according to its capabilities.
func Announced(message []byte, capabilities rpc.Span) (lists Set) {
	for i := range Lists {
		list := rpc.Lookup(message, capabilities, Lists[i].capability)
		lists[i] = string(rpc.Lookup(message, list, "listChanged").Of(message)) == "true"
	}
	return lists
}

// Append appends the filter as JSON.
func (f Filter) Append(dst []byte) []byte {
	dst = append(dst, '{')
	comma := ""
	for i, wanted := range f.Lists {
		if wanted {
			dst = append(dst, comma+`"`+Lists[i].member+`":true`...)
			comma = ","
		}
	}
	if len(f.URIs) > 0 {
		dst = append(dst, comma+`"`+memberURIs+`":[`...)
		for i, uri := range f.URIs {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = rpc.AppendString(dst, uri)
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

// Tag is the member _meta of a notification that names the subscription it belongs to (N-03).
func Tag(id []byte) string { return `"_meta":{"` + rpc.MetaSubscriptionID + `":` + string(id) + `}` }

// Acknowledgement tells a client what the server honors of its subscription (N-02).
func Acknowledgement(honored Filter, id []byte) []byte {
	return []byte(`{"jsonrpc":"2.0","method":"` + MethodAcknowledged + `","params":{` + Tag(id) + `,"notifications":` + honored.String() + `}}`)
}

// Completion is the answer that ends a subscription in order (N-05).
func Completion(id []byte) []byte {
	return rpc.AppendResult(nil, id, []byte(`{"resultType":"complete",`+Tag(id)+`}`))
}

// Notification announces a change that Each has named. The member _meta may be empty.
func Notification(method, uri, meta string) []byte {
	var members []string
	if method == MethodUpdated {
		members = append(members, `"uri":`+string(rpc.AppendString(nil, uri)))
	}
	if meta != "" {
		members = append(members, meta)
	}
	if members == nil {
		return []byte(`{"jsonrpc":"2.0","method":"` + method + `"}`)
	}
	return []byte(`{"jsonrpc":"2.0","method":"` + method + `","params":` + rpc.Object(members...) + `}`)
}

// String returns the filter as JSON.
func (f Filter) String() string { return string(f.Append(nil)) }
