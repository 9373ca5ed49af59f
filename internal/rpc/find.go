package rpc

import (
	"cmp"
	"slices"
)

// Find returns the values of the members with these names, of an object that stands in
// a message that was scanned. One that is not there, or an object that is none, is
// absent. There may be eight names; they must stand there exactly, once and without
// escapes, as for Scan.
func Find(message []byte, object Span, names ...string) ([]Span, error) {
	found := make([]Span, len(names))
	if !object.Present() || message[object.Start] != '{' {
		return found, nil
	}
	s := syntax{b: message[:object.End], i: object.Start}
	m := members{names: names}
	for {
		key, more, err := m.next(&s)
		if err != nil {
			return nil, err
		}
		if !more {
			return found, nil
		}
		value, err := s.value()
		if err != nil {
			return nil, err
		}
		if key >= 0 {
			found[key] = value
		}
	}
}

// Text is the content of a string that stands in a message, or nil for any other value.
func Text(message []byte, value Span) []byte {
	if !value.Present() {
		return nil
	}
	s := scanner{syntax: syntax{b: message}}
	return s.text(value)
}

// Edited is a copy of a message with edits made, in whichever order they stand there.
func Edited(message []byte, edits ...Edit) []byte {
	size := len(message)
	for _, edit := range edits {
		size += len(edit.With)
	}
	slices.SortFunc(edits, func(a, b Edit) int { return cmp.Compare(a.Span.Start, b.Span.Start) })
	return AppendEdited(make([]byte, 0, size), message, edits...)
}
