package rpc

import (
	"bytes"
	"iter"
)

// Member is a member of an object, or an element of an array.
type Member struct {
	Name  []byte // decoded; an element has none
	Key   Span   // the name as it stands in the text, with its quotes
	Value Span
}

// All is the range of a member with its name.
func (m Member) All() Span {
	if !m.Key.Present() {
		return m.Value
	}
	return Span{m.Key.Start, m.Value.End}
}

// Members are the members of an object, or the elements of an array, in a text whose
// syntax was checked. Any other value has none. The loop allocates nothing unless a name
// has escapes.
func Members(text []byte, container Span) iter.Seq[Member] {
	return func(yield func(Member) bool) {
		w := walkOver(text, container)
		for m, ok := w.next(); ok && yield(m); {
			m, ok = w.next()
		}
	}
}

// Lookup is the value of the first member of an object with a name, in any spelling. It
// is for what the adapter translates or shows. Find is for what the adapter decides by,
// because a server's parser may prefer another member to the first.
func Lookup(text []byte, object Span, name string) Span {
	for m := range Members(text, object) {
		if string(m.Name) == name && m.Key.Present() {
			return m.Value
		}
	}
	return Span{}
}

// walk is a position between two members. It ends for every text, but what it finds in a
// text with invalid syntax means nothing.
type walk struct {
	text   []byte // up to the closing bracket
	at     int
	object bool
}

func walkOver(text []byte, container Span) walk {
	if !container.Present() || text[container.Start] != '{' && text[container.Start] != '[' {
		return walk{}
	}
	return walk{text: text[:container.End-1], at: container.Start + 1, object: text[container.Start] == '{'}
}

func (w *walk) next() (m Member, more bool) {
	w.skip(',')
	if w.at >= len(w.text) {
		return Member{}, false
	}
	if w.object {
		m.Key = w.value()
		m.Name = Text(w.text, m.Key)
		w.skip(':')
	}
	m.Value = w.value()
	return m, true
}

// skip goes over white space and a mark.
func (w *walk) skip(mark byte) {
	for w.at < len(w.text) && (w.text[w.at] == mark || isSpace(w.text[w.at])) {
		w.at++
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// value goes over a value.
func (w *walk) value() Span {
	start := w.at
	if start < len(w.text) {
		switch w.text[start] {
		case '"':
			w.at = endOfString(w.text, start)
		case '{', '[':
			w.at = endOfContainer(w.text, start)
		default:
			w.at = endOfScalar(w.text, start)
		}
	}
	return Span{start, w.at}
}

func endOfScalar(text []byte, at int) int {
	for at++; at < len(text); at++ {
		if c := text[at]; c == ',' || c == ']' || c == '}' || isSpace(c) {
			break
		}
	}
	return at
}

func endOfContainer(text []byte, at int) int {
	for depth := 0; at < len(text); at++ {
		switch text[at] {
		case '"':
			at = endOfString(text, at) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return at + 1
			}
		}
	}
	return len(text)
}

// endOfString looks for a quote, and then for escapes before that quote, so that it reads
// no byte more than twice.
func endOfString(text []byte, at int) int {
	at++
	for {
		quote := bytes.IndexByte(text[at:], '"')
		if quote < 0 {
			return len(text)
		}
		quote += at
		for at <= quote {
			escape := bytes.IndexByte(text[at:quote], '\\')
			if escape < 0 {
				return quote + 1
			}
			at += escape + len(`\"`) // which may be behind the quote
		}
	}
}
