package rpc

import (
	"bytes"
	"cmp"
	"slices"
)

// Edits are changes to one text, which Edited makes. Their order does not matter, but no
// two of them may replace the same bytes. The zero value has none. A function that edits a
// text and returns has its Edits on the stack, where most texts need no more room.
//
// Edits read objects as leniently as Members. Only Take is as strict as Find.
type Edits struct {
	few  [8]Edit
	size int    // of few
	many []Edit // in place of few once there are more
}

func (e *Edits) all() []Edit {
	if e.many != nil {
		return e.many
	}
	return e.few[:e.size]
}

// Len is how many edits there are.
func (e *Edits) Len() int { return len(e.all()) }

// Truncate forgets the edits after the first n.
func (e *Edits) Truncate(n int) {
	if e.many != nil {
		e.many = e.many[:n]
		return
	}
	e.size = n
}

// Edited is a copy of the text with the edits made.
func (e *Edits) Edited(text []byte) []byte { return Edited(text, e.all()...) }

// AppendEdited appends the text with the edits made.
func (e *Edits) AppendEdited(dst, text []byte) []byte {
	return AppendEdited(dst, text, sorted(e.all())...)
}

// EditedInPlace is Edited for a text that is the caller's own, of which no edit inserts
// a part. It overwrites the text, unless an edit needs more room than those before it free.
func (e *Edits) EditedInPlace(text []byte) []byte {
	grown := 0
	for _, edit := range sorted(e.all()) {
		if grown += edit.grows(); grown > 0 {
			return e.Edited(text)
		}
	}
	return AppendEdited(text[:0], text, e.all()...)
}

// Replace puts something in the place of a range.
func (e *Edits) Replace(at Span, with []byte) {
	edit := Edit{at, with}
	switch {
	case e.many != nil:
		e.many = append(e.many, edit)
	case e.size < len(e.few):
		e.few[e.size] = edit
		e.size++
	default:
		e.many = append(append(make([]Edit, 0, 4*len(e.few)), e.few[:]...), edit)
	}
}

// Filter drops the members of an object, or the elements of an array, for which keep
// returns false. Each goes with the comma that belongs to it. Filter returns how many
// stay. keep may edit the inside of a member that stays.
func (e *Edits) Filter(text []byte, container Span, keep func(Member) bool) (kept int) {
	var drop Span // members to drop that follow each other
	end := 0      // of the last member that stays
	for m := range Members(text, container) {
		all := m.All()
		switch stays := keep(m); {
		case stays:
			if drop.Present() && kept == 0 {
				drop.End = all.Start // with the comma behind them
			}
			e.drop(drop)
			drop, end = Span{}, all.End
			kept++
		case drop.Present():
			drop.End = all.End
		case kept > 0:
			drop = Span{end, all.End} // with the comma before them
		default:
			drop = all
		}
	}
	e.drop(drop)
	return kept
}

func (e *Edits) drop(at Span) {
	if at.Present() {
		e.Replace(at, nil)
	}
}

// Take drops the members with these names from an object, and returns their values. It
// refuses what Find refuses, and then the edits must not be made.
func (e *Edits) Take(text []byte, object Span, names ...string) (Found, error) {
	f := finder{picker: picker{names: names}}
	if !object.IsObject(text) {
		return f.found, nil
	}
	var refused error
	e.Filter(text, object, func(m Member) bool {
		taken, err := f.look(text, m)
		refused = cmp.Or(refused, err)
		return !taken
	})
	if refused != nil {
		return Found{}, refused
	}
	return f.found, nil
}

// Insert puts members, with commas between them, in front of those that the object has.
// It must come after Filter and Take, because they may leave the object none.
func (e *Edits) Insert(text []byte, object Span, members []byte) {
	at := Span{object.Start + 1, object.Start + 1}
	others := !e.empties(text, Span{at.Start, object.End - 1})
	if !others && slices.ContainsFunc(e.all(), func(edit Edit) bool { return edit.Span == at }) {
		e.Replace(at, comma) // behind what an earlier Insert has put there
	}
	e.Replace(at, members)
	if others {
		e.Replace(at, comma)
	}
}

// InsertMeta puts a member _meta, which is an object, into an object that may have one at meta. Then
// the members of the new one come first. Insert's rule holds.
func (e *Edits) InsertMeta(text []byte, object, meta Span, member []byte) {
	const before = `"_meta":`
	switch {
	case meta.IsObject(text):
		e.Insert(text, meta, member[len(before)+1:len(member)-1])
	case meta.Present(): // some write null
		e.Replace(meta, member[len(before):])
	default:
		e.Insert(text, object, member)
	}
}

var comma = []byte{','}

// empties says whether the edits leave nothing in a range but white space.
func (e *Edits) empties(text []byte, inside Span) bool {
	return isBlank(inside.Of(text)) || slices.ContainsFunc(e.all(), func(edit Edit) bool {
		at := edit.Span
		return edit.With == nil && inside.Start <= at.Start && at.End <= inside.End &&
			isBlank(text[inside.Start:at.Start]) && isBlank(text[at.End:inside.End])
	})
}

func isBlank(text []byte) bool { return len(bytes.TrimLeft(text, " \t\r\n")) == 0 }

// Moved is where a range stands once the edits are made. No edit may have one end of its
// own inside the range and the other outside.
func (e *Edits) Moved(at Span) Span {
	moved := at
	for _, edit := range e.all() {
		by := edit.grows()
		if edit.Span.End <= at.Start {
			moved.Start += by
		}
		if edit.Span.End <= at.End && edit.Span.Start < at.End {
			moved.End += by
		}
	}
	return moved
}

// MovedEnvelope is the envelope of a text once the edits are made. The edits must leave alone the
// strings that the envelope has. These still alias the text as it was.
func (e *Edits) MovedEnvelope(of Envelope) Envelope {
	for _, at := range []*Span{&of.ID, &of.Params, &of.Result, &of.Error, &of.ProgressToken, &of.RequestID, &of.Meta, &of.SubscriptionID} {
		*at = e.Moved(*at)
	}
	return of
}
