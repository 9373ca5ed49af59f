package streamable

import (
	"net/http"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Some clients send the id of a session that is over with every later request, also with
// initialize. The adapter opens a new session for them: they would never recover otherwise. It
// mints the id of the new session, so a client cannot choose one for another client.

// initializeBytes bounds the body that the adapter reads of a request with an unknown session.
// An initialize is far smaller.
const initializeBytes = 64 << 10

// MayInitialize reports whether a request with an unknown session can be an initialize, before
// the adapter reads its body.
func MayInitialize(r *edge.Request) bool {
	return r.Method == http.MethodPost && 0 < r.ContentLength && r.ContentLength <= initializeBytes
}

// RefuseInitialize answers an initialize that names an open session of its caller. The id is that
// of the JSON-RPC request.
func RefuseInitialize(w http.ResponseWriter, id []byte) {
	front.Refuse(w, http.StatusBadRequest, id, rpc.CodeInvalidRequest,
		"initialize opens a new session, and the one that the "+front.HeaderSession+" header names is open: leave the header out, or end that session first")
}

// initializes reports whether a POST is a single initialize of a revision with sessions.
func initializes(r *edge.Request) bool {
	if r.Batch {
		return false
	}
	e := &r.Messages[0].Envelope
	return e.Kind == rpc.Request && e.ProtocolVersion == nil && string(e.Method) == rpc.MethodInitialize
}

// knows reports whether a POST names no session, or one that the caller may use. Messages of
// revision 2026-07-28 belong to no session, whatever they name. If knows returns false, foreign
// is the session of another caller, or nil.
func (h *Handler) knows(r *edge.Request) (foreign *session.Session, ok bool) {
	name := r.Head(front.HeaderSession)
	if name == "" || r.Head(front.HeaderRevision) == front.Revision20260728 {
		return nil, true
	}
	found, ok := h.Sessions.Find(name).(*session.Session)
	if ok && found.Owner.Is(&r.Caller) {
		return nil, true
	}
	return found, false
}

// hasOpen reports whether a request names an open session that its caller can end. A session that
// has just ended can still be in the registry.
func (h *Handler) hasOpen(r *edge.Request) bool {
	found, ok := h.Sessions.Find(r.Head(front.HeaderSession)).(*session.Session)
	return ok && found.EndedBy() == nil && mayEnd(r, found)
}
