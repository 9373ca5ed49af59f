// Package text makes what servers, images and other programs wrote fit for a status, an Event or
// a log: short, valid UTF-8, and without characters that steer a terminal.
package text

import (
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ellipsis stands for what was left out.
const ellipsis = "…"

// Cut shortens a text to at most so many bytes. A text that lost something ends with an ellipsis.
// The result is valid UTF-8 and does not keep a longer text in memory.
func Cut(words string, most int) string {
	return clean(words, most, func(r rune) rune { return r })
}

// Line is Cut for one line: line breaks become spaces, and no character does anything but show.
func Line(words string, most int) string { return clean(words, most, harmless) }

// Block is Line for a text of several lines.
func Block(words string, most int) string {
	return clean(words, most, func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		return harmless(r)
	})
}

// Fit is Block for a text whose JSON, without quotes, is to have at most so many bytes.
func Fit(words string, most int) string {
	fitting := Block(words, most)
	if encodedSize(fitting) <= most {
		return fitting
	}
	room := most - len(ellipsis)
	for at, r := range fitting {
		if room -= encodedSize(string(r)); room < 0 {
			return strings.Clone(fitting[:at]) + ellipsis
		}
	}
	return fitting
}

// encodedSize is how many bytes a text has in JSON.
func encodedSize(words string) int {
	encoded, err := json.Marshal(words)
	if err != nil {
		return len(words) // which does not happen to a text
	}
	return len(encoded) - len(`""`)
}

// FirstSentence is the first sentence of a text, as a Line. A full stop ends a sentence unless a
// lower-case letter follows, as after an abbreviation. An empty line also ends it.
func FirstSentence(words string, most int) string {
	words = Cut(strings.TrimSpace(words), 8*most) // a description may have megabytes
	paragraph, _, _ := strings.Cut(strings.ReplaceAll(words, "\r\n", "\n"), "\n\n")
	one := strings.Join(strings.Fields(paragraph), " ")
	for at, r := range one {
		if !strings.ContainsRune(".!?", r) {
			continue
		}
		rest, found := strings.CutPrefix(one[at+1:], " ")
		if next, _ := utf8.DecodeRuneInString(rest); rest == "" || found && !unicode.IsLower(next) {
			return Line(strings.Clone(one[:at+1]), most)
		}
	}
	return Line(strings.Clone(one), most)
}

// clean replaces characters and shortens. Bytes that are no character become U+FFFD.
func clean(words string, most int, replace func(rune) rune) string {
	isLong := len(words) > most
	if isLong {
		words = strings.Clone(words[:lastStart(words, most)])
	}
	cleaned := strings.Map(replace, words)
	if !utf8.ValidString(cleaned) {
		cleaned = strings.ToValidUTF8(cleaned, string(utf8.RuneError))
	}
	if !isLong && len(cleaned) <= most {
		return cleaned
	}
	if room := max(most-len(ellipsis), 0); len(cleaned) > room {
		cleaned = cleaned[:lastStart(cleaned, room)]
	}
	return cleaned + ellipsis
}

// lastStart is where the last character begins that begins at or before an index.
func lastStart(words string, at int) int {
	for at > 0 && !utf8.RuneStart(words[at]) {
		at--
	}
	return at
}

// Emoji and some scripts need these.
const (
	zeroWidthNonJoiner = '\u200c'
	zeroWidthJoiner    = '\u200d'
)

// harmless replaces characters that steer a terminal, turn the direction of what follows them, or
// do not show.
func harmless(r rune) rune {
	switch {
	case unicode.IsControl(r), unicode.Is(unicode.Zl, r), unicode.Is(unicode.Zp, r):
		return ' '
	case unicode.Is(unicode.Cf, r) && r != zeroWidthJoiner && r != zeroWidthNonJoiner:
		return utf8.RuneError
	default:
		return r
	}
}
