package front

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// The protocol revisions with sessions, which are those that are served, oldest
// first. 2024-11-05 had a transport of its own, but may be agreed on over any.
const (
	Revision20241105 = "2024-11-05"
	Revision20250326 = "2025-03-26"
	Revision20250618 = "2025-06-18"
	Revision20251125 = "2025-11-25"
)

// Revision20260728 is the one without sessions. Whether it is served depends on the
// server.
const Revision20260728 = "2026-07-28"

var revisions = []string{Revision20241105, Revision20250326, Revision20250618, Revision20251125}

// Revisions are those that are served, oldest first.
func Revisions() []string { return slices.Clone(revisions) }

// IsServed says whether a revision is one that is served.
func IsServed(revision string) bool { return slices.Contains(revisions, revision) }

// UnsupportedRevision is the answer to a request of a revision that is not served,
// which lists those that are, so that its client falls back to one (L-22).
func UnsupportedRevision(id []byte, requested string) []byte {
	return rpc.AppendError(nil, id, rpc.CodeUnsupportedRevision, unsupportedRevision, UnsupportedData(requested, revisions...))
}

const unsupportedRevision = "unsupported protocol version"

// UnsupportedData is what the answer says of the revisions that are served.
func UnsupportedData(requested string, supported ...string) []byte {
	data := []byte(`{"supported":["` + strings.Join(supported, `","`) + `"],"requested":`)
	return append(rpc.AppendString(data, requested), '}')
}

// RefuseRevision answers a request with UnsupportedRevision.
func RefuseRevision(w http.ResponseWriter, id []byte, requested string) {
	note(w, http.StatusBadRequest, rpc.CodeUnsupportedRevision, unsupportedRevision+" "+strconv.Quote(rpc.Clip(requested)))
	WriteJSON(w, http.StatusBadRequest, UnsupportedRevision(id, requested), WriteTimeout, nil)
}
