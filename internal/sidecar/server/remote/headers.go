package remote

import (
	"net/http"
	"slices"
	"strings"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
)

// AcceptBoth is the Accept header of a POST. Servers look for both types by name.
const AcceptBoth = front.TypeJSON + ", " + front.TypeEvents

// shownBy are the headers of every request that the adapter makes on behalf of a caller. The other
// headers of the client are about one of its requests, and many share a connection.
func shownBy(from *caller.Caller) http.Header {
	header := http.Header{
		"Accept-Encoding": {"identity"},
		"User-Agent":      {""}, // net/http would send its own
	}
	if from != nil && len(from.Authorization) > 0 {
		header["Authorization"] = slices.Clone(from.Authorization)
	}
	return header
}

// IsHeaderValue says whether text of a server may stand in a header that the adapter sends. Ids of
// sessions must consist of such text (T-14).
func IsHeaderValue(value string) bool {
	const longest = 4096
	return value != "" && len(value) <= longest && !strings.ContainsFunc(value, func(r rune) bool { return r < 0x21 || r > 0x7e })
}
