package proxy

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/remote"
)

// notForwarded are headers of a client that the server does not get. It gets all others, except
// hop-by-hop headers, X-Forwarded-*, those between adapters, and names with an underscore.
var notForwarded = []string{
	front.HeaderSession,    // the adapter's id of the session; the server's id takes its place
	adapterapi.HeaderProbe, // from the manager to the adapter
	// The adapter has checked where the request comes from. A server refuses every origin that it
	// is not configured for.
	"Origin", "Referer", "Sec-Fetch-Site", "Sec-Fetch-Mode", "Sec-Fetch-Dest", "Sec-Fetch-User",
	// The adapter has read the body and sends its own copy.
	"Expect", "Content-Length", "Content-Encoding",
	// A client can write any address into these, and servers believe a peer on loopback.
	"Forwarded", "X-Real-Ip",
}

// forwarded are the headers that the server gets with a request.
func forwarded(r *edge.Request) http.Header {
	header := r.Header.Clone()
	front.RemoveHopByHop(header)
	for _, name := range notForwarded {
		header.Del(name)
	}
	for name := range header {
		// Some servers cannot tell an underscore from a hyphen.
		if strings.HasPrefix(name, "X-Forwarded-") || strings.HasPrefix(name, front.PeerPrefix) || strings.Contains(name, "_") {
			header.Del(name)
		}
	}
	withhold(header, r)
	if r.Caller.Address != "" {
		header.Set("X-Forwarded-For", r.Caller.Address)
	}
	// The proxy puts comments between events, which it could not do if they were compressed.
	header.Set("Accept-Encoding", "identity")
	if r.Method == http.MethodPost {
		// Without parameters: no server may read the body in another character set.
		header.Set("Content-Type", front.TypeJSON)
		if accept := header.Get("Accept"); accept == "" || strings.Contains(accept, "*/*") {
			header.Set("Accept", remote.AcceptBoth)
		}
	}
	if _, ok := header["User-Agent"]; !ok {
		header.Set("User-Agent", "") // net/http would send its own
	}
	return header
}

// withhold removes what only the adapter may know, and what no rule was asked about.
func withhold(header http.Header, r *edge.Request) {
	if r.Caller.Identity() != nil { // the token is for the adapter, and no server gets it
		header.Del("Authorization")
		header.Del("Cookie")
	}
	if r.Caller.Rights() != nil && (r.Method != http.MethodPost || !isStateless(r)) { // only 2026-07-28 has them
		header.Del(front.HeaderMethod)
		header.Del(front.HeaderName)
	}
}

// passHeaders sets the headers that the client gets with an answer of the server.
func passHeaders(dst, header http.Header) {
	front.RemoveHopByHop(header)
	header.Del(front.HeaderSession) // no client learns the server's id of a session
	// The edge has answered for other origins; the server did not learn which one asks. And no server speaks for the
	// adapter.
	maps.DeleteFunc(header, func(name string, _ []string) bool {
		return strings.HasPrefix(name, "Access-Control-") || strings.HasPrefix(name, "Slipway-")
	})
	if ours := dst["Vary"]; len(ours) > 0 {
		header["Vary"] = append(slices.Clone(ours), header["Vary"]...)
	}
	maps.Copy(dst, header)
}
