package status

import (
	"strings"

	"github.com/slipway-mcp/slipway/internal/diagnosis"
	"github.com/slipway-mcp/slipway/internal/text"
)

// mostBytes bounds what is shown of words that are not ours.
const mostBytes = 960

// stderrMark begins the part of an adapter's words that are the server's own.
const stderrMark = " on standard error: "

// brief shortens what another program says. Of what a server wrote on standard error it
// keeps the lines that say why: older adapters send all that they have.
func brief(words string) string {
	words = strings.TrimSpace(words)
	if head, lines, ok := strings.Cut(words, stderrMark); ok {
		return text.Cut(head, mostBytes-diagnosis.MostBytes-len(stderrMark)) + stderrMark + diagnosis.Lines("", lines)
	}
	return text.Cut(words, mostBytes)
}
