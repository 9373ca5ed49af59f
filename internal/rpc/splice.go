package rpc

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// Edit replaces a range of a message.
type Edit struct {
	Span Span
	With []byte
}

// grows is by how many bytes it makes a message longer.
func (e Edit) grows() int { return len(e.With) - (e.Span.End - e.Span.Start) }

// AppendEdited appends the message with the edits made to dst and returns it. The
// edits must not overlap and must be in the order of their ranges.
func AppendEdited(dst, message []byte, edits ...Edit) []byte {
	from := 0
	for _, edit := range edits {
		dst = append(dst, message[from:edit.Span.Start]...)
		dst = append(dst, edit.With...)
		from = edit.Span.End
	}
	return append(dst, message[from:]...)
}

// Edited is a copy of a message with edits made, in whichever order they stand there. Of
// those that insert something at one place, the first stays the first.
func Edited(message []byte, edits ...Edit) []byte {
	size := len(message)
	for _, edit := range edits {
		size += edit.grows()
	}
	return AppendEdited(make([]byte, 0, size), message, sorted(edits)...)
}

// sorted sorts edits by their ranges, in place.
func sorted(edits []Edit) []Edit {
	slices.SortStableFunc(edits, func(a, b Edit) int {
		return cmp.Or(cmp.Compare(a.Span.Start, b.Span.Start), cmp.Compare(a.Span.End, b.Span.End))
	})
	return edits
}

// Object is an object with these members.
func Object(members ...string) string { return "{" + strings.Join(members, ",") + "}" }

// AppendString appends text as a JSON string. It is for messages that the bridge
// writes itself; what it forwards is never re-encoded.
func AppendString(dst []byte, text string) []byte {
	encoded, err := json.Marshal(text)
	if err != nil {
		return append(dst, `""`...) // a string always has an encoding
	}
	return append(dst, encoded...)
}
