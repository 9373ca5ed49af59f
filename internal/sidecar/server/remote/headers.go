package remote

import (
	"net/http"
	"slices"
	"strings"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
)

const AcceptBoth = front.TypeJSON + ", " + front.TypeEvents

// Headers that repeat what stands in the body of a request.
const (
	headerMethod = "Mcp-Method"
	headerName   = "Mcp-Name"
	headerParam  = "Mcp-Param-"
)

// hopByHop are the headers that concern one connection only.
var hopByHop = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// notForwarded are further headers of a request that the server does not get.
var notForwarded = []string{
	front.HeaderSession,    // names a session to us; the server's own id takes its place
	adapterapi.HeaderProbe, // is between the manager and us
	// We have checked where the request comes from. The server would refuse every
	// place that it has not been told of.
	"Origin", "Referer", "Sec-Fetch-Site", "Sec-Fetch-Mode", "Sec-Fetch-Dest", "Sec-Fetch-User",
	// The body was read and is sent anew.
	"Expect", "Content-Length", "Content-Encoding",
	// Anybody can say anything in these, and servers believe a peer on loopback.
	"Forwarded", "X-Real-Ip",
}

// ForwardedHeaders are the headers without those that the server does not get.
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

// shownBy are the headers that every request on behalf of a caller has: whatever else its
// client sends is about one request, and not about all that share a connection.
func shownBy(from *caller.Caller) http.Header {
	header := http.Header{
		"Accept-Encoding": {"identity"},
		"User-Agent":      {""}, // as for the requests that are forwarded
	}
	if from != nil && len(from.Authorization) > 0 {
		header["Authorization"] = slices.Clone(from.Authorization)
	}
	return header
}

// RemoveHopByHop removes the headers that concern one connection only.
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

// IsHeaderValue says whether what a server said may stand in a header of ours. For
// the ids of sessions that is what they may consist of (T-14).
func IsHeaderValue(value string) bool {
	const longest = 4096
	if value == "" || len(value) > longest {
		return false
	}
	for i := range len(value) {
		if value[i] < 0x21 || value[i] > 0x7e {
			return false
		}
	}
	return true
}
