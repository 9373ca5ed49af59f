package forlegacy

import (
	"bytes"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// member is a member of an object, or an element of an array, in a text whose syntax
// has been checked.
type member struct {
	name  []byte   // decoded; an element has none
	key   rpc.Span // the name as it stands there
	value rpc.Span
}

// is says what the value is by its first byte: '{', '[', '"', or that of anything else.
func (m member) is(text []byte, first byte) bool { return text[m.value.Start] == first }

// walk goes over the members of an object or the elements of an array. It allocates
// nothing unless a name has escapes.
type walk struct {
	text []byte
	at   int
	ends byte
}

// over begins a walk. What is neither an object nor an array has no members.
func over(text []byte, container rpc.Span) walk {
	if !container.Present() || text[container.Start] != '{' && text[container.Start] != '[' {
		return walk{}
	}
	return walk{text: text, at: container.Start + 1, ends: text[container.Start] + 2} // '}' and ']' are two after their opening halves
}

func (w *walk) next() (m member, ok bool) {
	if w.ends == 0 {
		return member{}, false
	}
	w.skip(" \t\r\n,")
	if w.text[w.at] == w.ends {
		return member{}, false
	}
	if w.ends == '}' {
		m.key = rpc.Span{Start: w.at, End: endOf(w.text, w.at)}
		m.name = rpc.Text(w.text, m.key)
		w.at = m.key.End
		w.skip(" \t\r\n:")
	}
	m.value = rpc.Span{Start: w.at, End: endOf(w.text, w.at)}
	w.at = m.value.End
	return m, true
}

func (w *walk) skip(these string) {
	for bytes.IndexByte([]byte(these), w.text[w.at]) >= 0 {
		w.at++
	}
}

// find is the value of the first member with a name.
func find(text []byte, object rpc.Span, name string) rpc.Span {
	for w := over(text, object); ; {
		m, ok := w.next()
		if !ok || string(m.name) == name && w.ends == '}' {
			return m.value
		}
	}
}

// endOf is where the value ends that begins at a place.
func endOf(text []byte, at int) int {
	switch text[at] {
	case '"':
		return endOfString(text, at)
	case '{', '[':
		return endOfContainer(text, at)
	}
	for at < len(text) && bytes.IndexByte([]byte(" \t\r\n,]}"), text[at]) < 0 {
		at++
	}
	return at
}

func endOfContainer(text []byte, at int) int {
	for depth := 0; ; at++ {
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
}

func endOfString(text []byte, at int) int {
	at++
	quote := at + bytes.IndexByte(text[at:], '"')
	for {
		escape := bytes.IndexByte(text[at:quote], '\\')
		if escape < 0 {
			return quote + 1
		}
		at += escape + 2
		if at > quote { // it was that one
			quote = at + bytes.IndexByte(text[at:], '"')
		}
	}
}

// edits are made on a text from its beginning to its end. Members of an object are kept
// or dropped one after the other, each dropped one with the comma that belongs to it.
type edits struct {
	list []rpc.Edit
	room [6]rpc.Edit
}

// replace notes an edit behind all others.
func (e *edits) replace(at rpc.Span, with []byte) {
	if e.list == nil {
		e.list = e.room[:0]
	}
	e.list = append(e.list, rpc.Edit{Span: at, With: with})
}

// grows is by how many bytes the text does.
func (e *edits) grows() (by int) {
	for _, edit := range e.list {
		by += len(edit.With) - (edit.Span.End - edit.Span.Start)
	}
	return by
}

// of is the text with the edits made. If there are none it is the same text.
func (e *edits) of(text []byte) []byte {
	if len(e.list) == 0 {
		return text
	}
	return rpc.AppendEdited(make([]byte, 0, len(text)+e.grows()), text, e.list...)
}

// thinning keeps and drops members of one object.
type thinning struct {
	edits *edits
	end   int      // of the last member that is kept
	kept  int      // how many are
	run   rpc.Span // of members to be dropped
}

func (t *thinning) drop(m member) {
	if !t.run.Present() {
		t.run.Start = m.key.Start
		if t.kept > 0 {
			t.run.Start = t.end
		}
	}
	t.run.End = m.value.End
}

// keep must be told of a member before anything in it is edited.
func (t *thinning) keep(m member) {
	if t.run.Present() && t.kept == 0 {
		t.run.End = m.key.Start
	}
	t.close()
	t.end = m.value.End
	t.kept++
}

// close must be called behind the last member.
func (t *thinning) close() {
	if t.run.Present() {
		t.edits.replace(t.run, nil)
		t.run = rpc.Span{}
	}
}
