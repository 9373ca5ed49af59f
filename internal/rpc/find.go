package rpc

import "bytes"

// Find returns the values of the members with these names, of an object in a scanned
// message. A member that the object does not have is absent, and so is every member of a
// value that is not an object. Each name may stand there once, exactly and without escapes,
// as for Scan, because the adapter decides by these values. Where it does not, Lookup is
// enough. There may be MostNames names.
func Find(message []byte, object Span, names ...string) (Found, error) {
	f := finder{picker: picker{names: names}}
	if !object.IsObject(message) {
		return f.found, nil
	}
	for m := range Members(message, object) {
		if _, err := f.look(message, m); err != nil {
			return Found{}, err
		}
	}
	return f.found, nil
}

// MostNames is how many members Find and Take can look for at a time.
const MostNames = 8

// Found are the values of members, in the order of the names that were asked for. It is an
// array because a slice would be an allocation for every object that the adapter reads.
type Found [MostNames]Span

// finder keeps the values of the members that it looks for.
type finder struct {
	picker
	found Found
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
