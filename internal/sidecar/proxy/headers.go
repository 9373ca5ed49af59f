package proxy

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/remote"
)

// forwarded are the headers that the server gets with a request. remote/headers.go lists those that
// it does not get.
func forwarded(r *edge.Request) http.Header {
	header := remote.ForwardedHeaders(r.Header)
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

// passHeaders sets the headers that the client gets with an answer of the server.
func passHeaders(dst, header http.Header) {
	remote.RemoveHopByHop(header)
	header.Del(front.HeaderSession) // no client learns the server's id of a session
	// The edge has answered for other origins; the server did not learn which one asks.
	maps.DeleteFunc(header, func(name string, _ []string) bool { return strings.HasPrefix(name, "Access-Control-") })
	if ours := dst["Vary"]; len(ours) > 0 {
		header["Vary"] = append(slices.Clone(ours), header["Vary"]...)
	}
	maps.Copy(dst, header)
}
