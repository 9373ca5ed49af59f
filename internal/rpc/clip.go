package rpc

import (
	"strings"
	"unicode"
)

// clipBytes are enough for a name, a method, a revision or a header.
const clipBytes = 64

// Clip keeps a text short that a peer has chosen, where the adapter repeats it.
func Clip[T ~string | ~[]byte](text T) string { return ClipTo(text, clipBytes) }

// ClipTo is Clip to so many bytes. It does not cut characters in two, and shows where it
// cuts.
func ClipTo[T ~string | ~[]byte](text T, most int) string {
	if len(text) <= most {
		return string(text)
	}
	return strings.ToValidUTF8(string(text[:most]), "") + "…"
}

// Legible is ClipTo for logs and terminals: in it every character does nothing but show.
func Legible[T ~string | ~[]byte](text T, most int) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return unicode.ReplacementChar
	}, ClipTo(text, most))
}
