package sidecar

import (
	"net/http"
	"strconv"

	"github.com/slipway-mcp/slipway/internal/sidecar/access"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

const metadataMethods = "GET, HEAD"

// publishMetadata adds the routes at which clients learn how to get a token (RFC 9728). A server that checks
// tokens itself has routes of its own there, which count as long as the adapter verifies none. Check answers
// everything else, because the Door reads no body before it: these callers need no token.
func (a *Adapter) publishMetadata(routes map[string]edge.Route) {
	for _, path := range []string{access.MetadataPath, access.MetadataPath + Path} {
		ofServer, has := routes[path]
		routes[path] = edge.Route{
			Methods: metadataMethods, Public: true,
			Check: func(w http.ResponseWriter, r *edge.Request) bool {
				switch document, ok := a.env.Access.Metadata(path, r.Host); {
				case ok:
					writeMetadata(w, r.Request, document)
				case !has || a.env.Access.Verifies():
					a.elsewhere(w, r.Request)
				case a.env.Access.Ready() != nil:
					front.RefusePlain(w, http.StatusServiceUnavailable, access.ErrNoDocument.Error())
				default:
					return ofServer.Check(w, r)
				}
				return false
			},
			Serve: ofServer.Serve,
		}
	}
}

// writeMetadata answers with the document. Every page may read it: it is public.
func writeMetadata(w http.ResponseWriter, r *http.Request, document []byte) {
	header := w.Header()
	header.Set("Access-Control-Allow-Origin", "*")
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodOptions:
		header.Set("Access-Control-Allow-Methods", metadataMethods)
		w.WriteHeader(http.StatusNoContent)
		return
	default:
		header.Set("Allow", metadataMethods)
		front.RefusePlain(w, http.StatusMethodNotAllowed, "metadata is read-only")
		return
	}
	header.Set("Content-Type", front.TypeJSON)
	header.Set("Cache-Control", "no-cache")
	header.Set("Content-Length", strconv.Itoa(len(document)))
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodGet {
		_ = front.NewWriter(w, front.WriteTimeout, nil).Write(document) // the client has it, or is gone
	}
}

// recheckSessions ends the sessions of callers that a new access document leaves without rights, and tells the others
// which lists have changed for them. Sessions that an HTTP server has itself are left out: only the server writes
// into their streams.
func (a *Adapter) recheckSessions() {
	for _, member := range a.env.Sessions.OfClients() {
		if !a.env.Access.Keeps(member.About().Owner.Identity()) {
			member.End(access.ErrRevoked)
		} else if own, ok := member.(*session.Session); ok {
			own.RulesChanged()
		}
	}
}
