package rpc

import "bytes"

// Find returns the values of the members with these names, of an object that stands in
// a message that was scanned. One that is not there, or an object that is none, is
// absent. There may be eight names; they must stand there exactly, once and without
// escapes, as for Scan, because the adapter decides by these values. Where it does not,
// Lookup is enough.
func Find(message []byte, object Span, names ...string) ([]Span, error) {
	f := finder{picker: picker{names: names}, found: make([]Span, len(names))}
	if !object.IsObject(message) {
		return f.found, nil
	}
	for m := range Members(message, object) {
		if _, err := f.look(message, m); err != nil {
			return nil, err
		}
	}
	return f.found, nil
}

// finder keeps the values of the members that it looks for.
type finder struct {
	picker
	found []Span
}

// look says whether a member is one of those.
func (f *finder) look(message []byte, m Member) (bool, error) {
	if m.Name == nil {
		return false, syntaxError(m.Key.Start, "want a string") // the message was not scanned
	}
	name := message[m.Key.Start+1 : m.Key.End-1]
	key, err := f.lookUp(name, bytes.IndexByte(name, '\\') >= 0, m.Key.Start)
	if err != nil {
		return false, err
	}
	if key >= 0 {
		f.found[key] = m.Value
	}
	return key >= 0, nil
}
