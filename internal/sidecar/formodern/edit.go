package formodern

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

func isObject(message []byte, value rpc.Span) bool {
	return value.Present() && message[value.Start] == '{'
}

func joined(members []string) string { return "{" + strings.Join(members, ",") + "}" }

// cut is what must be edited for members to be gone from an object that stands in a
// message, with the commas that belong to them.
func cut(message []byte, object rpc.Span, names ...string) ([]rpc.Edit, error) {
	values, err := rpc.Find(message, object, names...)
	if err != nil {
		return nil, err
	}
	return cutFound(message, names, values), nil
}

// cutFound is cut for members of one object that were found.
func cutFound(message []byte, names []string, values []rpc.Span) []rpc.Edit {
	edits := make([]rpc.Edit, 0, len(names))
	for i, name := range names {
		if value := values[i]; value.Present() {
			edits = append(edits, rpc.Edit{Span: rpc.Span{Start: nameStart(message, value, name), End: value.End}})
		}
	}
	slices.SortFunc(edits, func(a, b rpc.Edit) int { return cmp.Compare(a.Span.Start, b.Span.Start) })
	return withCommas(message, edits)
}

// nameStart is where a member begins: with its name, which stands there exactly, a colon
// and perhaps blanks before its value.
func nameStart(message []byte, value rpc.Span, name string) int {
	i := bytes.LastIndexByte(message[:value.Start], ':')
	return len(bytes.TrimRight(message[:i], " \t")) - len(name) - len(`""`)
}

// withCommas extends ranges that are members, in their order, to those that can be taken
// out: by the comma behind each, or by the one before if none is left behind.
func withCommas(message []byte, members []rpc.Edit) []rpc.Edit {
	ranges := members[:0] // there are never more of these
	for _, m := range members {
		start, end := m.Span.Start, blanks(message, m.Span.End)
		last := message[end] != ','
		if !last {
			end = blanks(message, end+1)
		} else {
			end = m.Span.End
		}
		if n := len(ranges); n > 0 && ranges[n-1].Span.End == start {
			start = ranges[n-1].Span.Start
			ranges = ranges[:n-1]
		}
		if before := len(bytes.TrimRight(message[:start], " \t")); last && message[before-1] == ',' {
			start = before - 1
		}
		ranges = append(ranges, rpc.Edit{Span: rpc.Span{Start: start, End: end}})
	}
	return ranges
}

// blanks is the first position from i on that is not blank.
func blanks(message []byte, i int) int {
	for message[i] == ' ' || message[i] == '\t' {
		i++
	}
	return i
}

// insert puts members, each followed by a comma, in front of an object's others. Nothing
// else may be edited where the first of these begins.
func insert(message []byte, object rpc.Span, members string) rpc.Edit {
	at := object.Start + 1
	if message[blanks(message, at)] == '}' {
		members = strings.TrimSuffix(members, ",")
	}
	return rpc.Edit{Span: rpc.Span{Start: at, End: at}, With: []byte(members)}
}
