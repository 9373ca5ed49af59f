package remote

import (
	"net/http"
	"slices"
	"strings"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
)

// AcceptBoth is the Accept header of a POST. Servers look for both types by name.
const AcceptBoth = front.TypeJSON + ", " + front.TypeEvents

// hopByHop are the headers that concern one TCP connection only.
var hopByHop = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// notForwarded are the other headers of a client that the server does not get. It gets all that
// neither list has, except X-Forwarded-* and names with an underscore.
var notForwarded = []string{
	front.HeaderSession,    // the adapter's id of the session; the server's id takes its place
	adapterapi.HeaderProbe, // from the manager to the adapter
	// The adapter has checked where the request comes from. A server refuses every origin that it
	// is not configured for.
	"Origin", "Referer", "Sec-Fetch-Site", "Sec-Fetch-Mode", "Sec-Fetch-Dest", "Sec-Fetch-User",
	// The adapter has read the body and sends it anew.
	"Expect", "Content-Length", "Content-Encoding",
	// A client can write any address into these, and servers believe a peer on loopback.
	"Forwarded", "X-Real-Ip",
}

// ForwardedHeaders are the headers of a client's request that the server gets with it.
func ForwardedHeaders(header http.Header) http.Header {
	header = header.Clone()
	RemoveHopByHop(header)
	for _, name := range notForwarded {
		header.Del(name)
	}
	for name := range header {
		// Some servers cannot tell an underscore from a hyphen.
		if strings.HasPrefix(name, "X-Forwarded-") || strings.Contains(name, "_") {
			header.Del(name)
		}
	}
	return header
}

// RemoveHopByHop removes the headers that concern one TCP connection only.
func RemoveHopByHop(header http.Header) {
	for _, value := range header.Values("Connection") {
		for name := range strings.SplitSeq(value, ",") {
			header.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range hopByHop {
		header.Del(name)
	}
}

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
