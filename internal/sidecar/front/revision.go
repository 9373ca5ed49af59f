package front

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// The protocol revisions with sessions, oldest first. The adapter serves all of them.
// 2024-11-05 had a transport of its own, but clients and servers may agree on it over any.
const (
	Revision20241105 = "2024-11-05"
	Revision20250326 = "2025-03-26"
	Revision20250618 = "2025-06-18"
	Revision20251125 = "2025-11-25"
)

// Revision20260728 is the revision without sessions. The adapter serves it for some servers.
const Revision20260728 = "2026-07-28"

var revisions = []string{Revision20241105, Revision20250326, Revision20250618, Revision20251125}

// Revisions returns the revisions with sessions, oldest first.
func Revisions() []string { return slices.Clone(revisions) }

// IsServed reports whether a revision is one of Revisions.
func IsServed(revision string) bool { return slices.Contains(revisions, revision) }

// UnsupportedRevision returns the answer to a request of a revision that the adapter does not
// serve. The answer lists Revisions, so that the client can fall back to one of them (L-22).
func UnsupportedRevision(id []byte, requested string) []byte {
	return rpc.AppendError(nil, id, rpc.CodeUnsupportedRevision, unsupportedRevision, UnsupportedData(requested, revisions...))
}

const unsupportedRevision = "unsupported protocol version"

// UnsupportedData returns the data of such an answer, with the supported revisions.
func UnsupportedData(requested string, supported ...string) []byte {
	data := []byte(`{"supported":["` + strings.Join(supported, `","`) + `"],"requested":`)
	return append(rpc.AppendString(data, requested), '}')
}

// RefuseRevision answers an HTTP request with UnsupportedRevision.
func RefuseRevision(w http.ResponseWriter, id []byte, requested string) {
	note(w, http.StatusBadRequest, rpc.CodeUnsupportedRevision, unsupportedRevision+" "+strconv.Quote(rpc.Clip(requested)))
	WriteJSON(w, http.StatusBadRequest, UnsupportedRevision(id, requested), WriteTimeout, nil)
}
