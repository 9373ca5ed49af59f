package status

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// What is shown of words that are not ours, and of what a server last wrote: little
// enough that its end is not cut off an instance's message.
const (
	mostBytes = 1 << 10
	lastBytes = 768
	mostLines = 5
)

// stderrMark begins the part of an adapter's words that are the server's own.
const stderrMark = " on standard error: "

// brief shortens what somebody else says. Of what a server wrote on standard error it
// keeps the end.
func brief(text string) string {
	text = strings.TrimSpace(text)
	if head, tail, ok := strings.Cut(text, stderrMark); ok {
		return cut(head, mostBytes-lastBytes-len(stderrMark)) + stderrMark + lastLines(tail)
	}
	return cut(text, mostBytes)
}

// lastLines keeps the last lines of a text.
func lastLines(text string) string {
	text = strings.TrimSpace(strings.ToValidUTF8(text, "\uFFFD"))
	lines := strings.Split(text, "\n")
	text = strings.Join(lines[max(0, len(lines)-mostLines):], "\n")
	if len(text) > lastBytes {
		text = text[len(text)-lastBytes:]
		for !utf8.RuneStart(text[0]) {
			text = text[1:]
		}
		text = "…" + text
	}
	return text
}

// printable makes a text safe to show: what a server wrote may end up on a terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && !unicode.IsGraphic(r) {
			return '\uFFFD'
		}
		return r
	}, text)
}

// cut shortens a text to so many characters, as the API server counts them.
func cut(text string, most int) string {
	if len(text) <= most && utf8.ValidString(text) {
		return text
	}
	runes := []rune(strings.ToValidUTF8(text, "\uFFFD"))
	if len(runes) <= most {
		return string(runes)
	}
	return string(runes[:most-1]) + "…"
}
