package status

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/slipway-mcp/slipway/internal/diagnosis"
)

// mostBytes bounds what is shown of words that are not ours.
const mostBytes = 1 << 10

// stderrMark begins the part of an adapter's words that are the server's own.
const stderrMark = " on standard error: "

// brief shortens what another program says. Of what a server wrote on standard error it
// keeps the lines that say why: older adapters send all that they have.
func brief(text string) string {
	text = strings.TrimSpace(text)
	if head, lines, ok := strings.Cut(text, stderrMark); ok {
		return cut(head, mostBytes-diagnosis.MostBytes-len(stderrMark)) + stderrMark + diagnosis.Lines("", lines)
	}
	return cut(text, mostBytes)
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
