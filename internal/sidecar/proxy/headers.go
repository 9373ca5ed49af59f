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

// forwarded are the headers that the server gets with a request.
func forwarded(r *edge.Request) http.Header {
	header := remote.ForwardedHeaders(r.Header)
	if r.Caller.Address != "" {
		header.Set("X-Forwarded-For", r.Caller.Address)
	}
	// Comments are put between events, which must not be compressed for that.
	header.Set("Accept-Encoding", "identity")
	if r.Method == http.MethodPost {
		// Without parameters: nobody shall read the body in another character set.
		header.Set("Content-Type", front.TypeJSON)
		// Servers look for both by name.
		if accept := header.Get("Accept"); accept == "" || strings.Contains(accept, "*/*") {
			header.Set("Accept", remote.AcceptBoth)
		}
	}
	if _, ok := header["User-Agent"]; !ok {
		header.Set("User-Agent", "") // else ours would stand there
	}
	return header
}

// answered are the headers that the client gets with an answer.
func answered(dst, header http.Header) {
	remote.RemoveHopByHop(header)
	header.Del(front.HeaderSession) // the server's own id is told to nobody
	front.DropCORS(header)
	if ours := dst["Vary"]; len(ours) > 0 {
		header["Vary"] = append(slices.Clone(ours), header["Vary"]...)
	}
	maps.Copy(dst, header)
}
