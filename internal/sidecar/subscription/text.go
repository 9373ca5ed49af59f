package subscription

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// ErrFilter says that a message has no filter, or one that cannot be read.
var ErrFilter = errors.New("params.notifications is not what it must be")

// Parse reads the filter in the params of a request to listen, or of the notification that
// acknowledges one (N-02). The message must have been scanned. What the filter asks for
// beyond what this package knows, such as changes of tasks, is left out, and more is true.
// A member that parsers disagree on is an error, like one of another type; null counts as
// absent.
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
	known := slices.DeleteFunc(values, func(value rpc.Span) bool { return !value.Present() })
	return f, len(all) > len(known), nil
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

// Append appends the filter as it stands in a message.
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

// AppendChange appends the notification of a change to the subscription with the id (N-03). The
// URI is that of an update.
func AppendChange(dst []byte, method, uri string, id []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","method":"`+method+`","params":{`...)
	if method == MethodUpdated {
		dst = append(rpc.AppendString(append(dst, `"uri":`...), uri), ',')
	}
	dst = append(append(dst, `"_meta":{"`+rpc.MetaSubscriptionID+`":`...), id...)
	return append(dst, "}}}"...)
}

// String is the filter as it stands in a message.
func (f Filter) String() string { return string(f.Append(nil)) }
