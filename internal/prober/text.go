package prober

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const ellipsis = "…"

// line makes somebody's words fit for one line of a status: at most limit
// characters, and none that does anything but show.
func line(words string, limit int) string {
	return strings.Map(harmless, cut(words, limit))
}

// text is line for words of more than one line.
func text(words string, limit int) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		return harmless(r)
	}, cut(words, limit))
}

// harmless replaces characters that steer a terminal or turn the direction of what
// follows them. Bytes that are no character arrive as utf8.RuneError.
func harmless(r rune) rune {
	switch {
	case unicode.IsControl(r), unicode.Is(unicode.Zl, r), unicode.Is(unicode.Zp, r):
		return ' '
	case unicode.Is(unicode.Bidi_Control, r), r == '\ufeff':
		return utf8.RuneError
	default:
		return r
	}
}

// cut shortens to a number of characters, the last of which then says so. What is
// left does not keep the rest in memory.
func cut(words string, limit int) string {
	if len(words) <= limit {
		return words
	}
	count, end := 0, 0
	for at := range words {
		if count == limit-1 {
			end = at
		}
		count++
		if count > limit {
			return strings.Clone(words[:end] + ellipsis)
		}
	}
	return words
}
