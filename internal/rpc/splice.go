package rpc

import "encoding/json"

// Edit replaces a range of a message.
type Edit struct {
	Span Span
	With []byte
}

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

// AppendString appends text as a JSON string. It is for messages that the bridge
// writes itself; what it forwards is never re-encoded.
func AppendString(dst []byte, text string) []byte {
	encoded, err := json.Marshal(text)
	if err != nil {
		return append(dst, `""`...) // a string always has an encoding
	}
	return append(dst, encoded...)
}
