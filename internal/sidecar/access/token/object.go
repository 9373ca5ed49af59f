package token

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxDepth bounds how deep the values of a header or of claims are nested.
const maxDepth = 16

// object is a JSON object that every parser reads the same way. Its members are those of encoding/json, with
// a json.Number for a number, and an object for an object. Names count exactly: ISS is not iss.
type object map[string]any

// readObject reads a JSON object. It refuses what two parsers could read differently: a name that occurs
// twice, also in nested objects; names at the top that differ only by case or by characters that show
// nothing; and bytes that are not UTF-8.
//
// Nested objects may have names that differ by case, because some have names of clients, which issuers
// tell apart by case.
func readObject(text []byte) (object, bool) {
	if !utf8.Valid(text) || !json.Valid(text) {
		return nil, false
	}
	r := objectReader{text: text}
	if r.peek() != '{' {
		return nil, false
	}
	o, ok := r.object(0)
	return o, ok && !hasLookalikes(o)
}

// objectReader reads an object whose text is known to be valid JSON, so that something always follows:
// at least the closing brace. The decoder of encoding/json keeps quiet about duplicates, unless it is asked
// for one token after the other, which doubles the allocations of Verify.
type objectReader struct {
	text []byte
	at   int
}

// peek skips what stands between values.
func (r *objectReader) peek() byte {
	for {
		switch c := r.text[r.at]; c {
		case ' ', '\t', '\r', '\n', ',', ':':
			r.at++
		default:
			return c
		}
	}
}

func (r *objectReader) value(depth int) (any, bool) {
	if depth > maxDepth {
		return nil, false
	}
	switch r.peek() {
	case '{':
		return r.object(depth)
	case '[':
		return r.array(depth)
	case '"':
		return r.string()
	}
	switch literal := r.literal(); literal {
	case "null":
		return nil, true
	case "true", "false":
		return literal == "true", true
	default:
		return json.Number(literal), true
	}
}

func (r *objectReader) object(depth int) (object, bool) {
	o := object{}
	for r.at++; r.peek() != '}'; {
		name, ok := r.string()
		if _, twice := o[name]; !ok || twice {
			return nil, false
		}
		if o[name], ok = r.value(depth + 1); !ok {
			return nil, false
		}
	}
	r.at++
	return o, true
}

func (r *objectReader) array(depth int) ([]any, bool) {
	array := []any{}
	for r.at++; r.peek() != ']'; {
		element, ok := r.value(depth + 1)
		if !ok {
			return nil, false
		}
		array = append(array, element)
	}
	r.at++
	return array, true
}

func (r *objectReader) string() (text string, ok bool) {
	start := r.at
	escaped := false
	for r.at++; r.text[r.at] != '"'; r.at++ {
		if r.text[r.at] == '\\' {
			escaped = true
			r.at++
		}
	}
	r.at++
	if !escaped {
		return string(r.text[start+1 : r.at-1]), true
	}
	err := json.Unmarshal(r.text[start:r.at], &text)
	return text, err == nil
}

// literal reads a number, true, false or null.
func (r *objectReader) literal() string {
	start := r.at
	r.at += bytes.IndexAny(r.text[start:], " \t\r\n,]}")
	return string(r.text[start:r.at])
}

// hasLookalikes says whether two members have names that a lenient parser takes for one.
func hasLookalikes(o object) bool {
	var changed map[string]bool
	for name := range o {
		folded := fold(name)
		if folded == name {
			continue
		}
		if _, other := o[folded]; other || changed[folded] {
			return true
		}
		if changed == nil {
			changed = map[string]bool{}
		}
		changed[folded] = true
	}
	return false
}

// fold makes names equal that differ only by case, by characters that show nothing, or by blanks at their
// ends. It returns most names as they are.
func fold(name string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r):
			return -1
		case r == 'İ' || r == 'ı': // decoders that change case take them for an i
			return 'i'
		case r >= utf8.RuneSelf:
			r = leastFold(r)
		}
		if 'A' <= r && r <= 'Z' {
			return r - 'A' + 'a'
		}
		return r
	}, name))
}

// leastFold returns the least of the runes that are equal but for their case.
func leastFold(r rune) rune {
	for {
		next := unicode.SimpleFold(r)
		if next <= r {
			return next
		}
		r = next
	}
}

// find returns the value at a path, such as realm_access.roles. A member whose name is the whole path
// comes first, because the names of claims can be URLs. Null is as good as absent.
func (o object) find(path string) any {
	if value, ok := o[path]; ok {
		return value
	}
	for {
		name, rest, nested := strings.Cut(path, ".")
		if !nested {
			return o[name]
		}
		if o, nested = o[name].(object); !nested {
			return nil
		}
		path = rest
	}
}
