// Package streamable serves the Streamable HTTP transport of protocol revisions
// 2025-03-26, 2025-06-18 and 2025-11-25 at one URL. Client and server may also agree on
// 2024-11-05 there, which had another transport. Revision 2026-07-28 has no sessions. Each of
// its messages names its protocol version, so that this package can hand it to Stateless.
package streamable

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Options configure a Handler.
type Options struct {
	Sessions *session.Registry

	// Open starts a server for a new session, or connects to one. Clients see its errors.
	// The session ends when its server ends.
	Open func(ctx context.Context, from *caller.Caller) (*session.Session, error)
	// MintID makes the id of a new session.
	MintID func() string
	// Stateless answers messages that name their protocol version. If it is nil, the Handler
	// refuses them with the list of revisions that it serves.
	Stateless func(w http.ResponseWriter, r *edge.Request)

	OpenTimeout  time.Duration // for a server to start and answer initialize
	WriteTimeout time.Duration // for a client to read what the adapter writes
	KeepAlive    time.Duration // between comments on a silent stream
	Retry        time.Duration // for a client to wait before it resumes a stream
}

// Retry is how long clients wait before they resume a lost stream. The adapter keeps the events
// that they miss. The wait spreads the clients of a proxy that restarts.
const Retry = time.Second

// Handler is the MCP endpoint.
type Handler struct{ Options }

// New returns a Handler.
func New(options Options) *Handler { return &Handler{options} }

// Route returns the route of the MCP endpoint.
func (h *Handler) Route() edge.Route {
	return edge.Route{Methods: front.Methods, Missing: h.missing, Check: h.Check, Serve: h.Serve}
}

func (h *Handler) missing(r *edge.Request) string {
	return h.Sessions.Missing(front.SessionOf(r.Header))
}

// Check refuses HTTP methods that the endpoint does not have, and messages that name an unknown
// session. It does so before the adapter reads the body, unless that may be an initialize.
func (h *Handler) Check(w http.ResponseWriter, r *edge.Request) bool {
	r.Record.Front = edge.Streamable
	if !front.TakesMethod(w, r.Request) {
		return false
	}
	if r.Method != http.MethodPost {
		return true
	}
	foreign, ok := h.knows(r)
	switch {
	case ok:
		return true
	case len(r.Header[front.HeaderSession]) > 1:
		return front.NamesOnce(w, r.Request, nil)
	case MayInitialize(r):
		return true
	}
	h.refuseSession(w, r, foreign)
	return false
}

// Serve answers a request that Check has let pass.
func (h *Handler) Serve(w http.ResponseWriter, r *edge.Request) {
	r.Record.Front = edge.Streamable
	switch r.Method {
	case http.MethodPost:
		h.post(w, r)
	case http.MethodGet:
		h.get(w, r)
	default:
		h.delete(w, r)
	}
}

// session returns the session that an HTTP request names. If it returns false it has answered
// the HTTP request. The id is that of the JSON-RPC request, or nil.
func (h *Handler) session(w http.ResponseWriter, r *edge.Request, id []byte) (*session.Session, bool) {
	if !front.NamesOnce(w, r.Request, id) {
		return nil, false
	}
	if revision := r.Head(front.HeaderRevision); revision != "" && !front.IsServed(revision) {
		front.RefuseRevision(w, id, revision)
		return nil, false
	}
	name := r.Head(front.HeaderSession)
	if name == "" {
		front.Refuse(w, http.StatusBadRequest, id, rpc.CodeInvalidRequest, "the "+front.HeaderSession+" header is missing: only initialize may come without it")
		return nil, false
	}
	found, ok := h.Sessions.Find(name).(*session.Session)
	if !ok || !owns(r, found) {
		h.refuseSession(w, r, found)
		return nil, false
	}
	r.Record.Session, r.Record.Revision = found.Number, edge.KnownRevision(found.Revision)
	return found, true
}

// refuseSession answers an HTTP request that names an unknown session. The answer names no
// JSON-RPC request: clients of the Go SDK would take the error for that request's answer and
// keep the session. foreign is the session if another caller has it, or else nil.
func (h *Handler) refuseSession(w http.ResponseWriter, r *edge.Request, foreign *session.Session) {
	if foreign != nil {
		r.NoteForeign()
	}
	text := h.Sessions.NoSuch(r.Head(front.HeaderSession), &r.Caller)
	front.Refuse(w, http.StatusNotFound, nil, rpc.CodeInvalidRequest, text)
}

// owns reports whether a session belongs to the caller. A server that checks tokens itself
// sees only the tokens of JSON-RPC requests. For other messages, and for GET and DELETE, the
// caller needs a token that the server has accepted before.
func owns(r *edge.Request, found *session.Session) bool {
	if onlyRequests(r) {
		return found.Owner.Is(&r.Caller)
	}
	return mayEnd(r, found)
}

// mayEnd reports whether a session belongs to the caller, whatever the request carries.
func mayEnd(r *edge.Request, found *session.Session) bool {
	if found.ServerChecks {
		return found.Owner.IsVerified(&r.Caller)
	}
	return found.Owner.Is(&r.Caller)
}

func onlyRequests(r *edge.Request) bool {
	for i := range r.Messages {
		if r.Messages[i].Envelope.Kind != rpc.Request {
			return false
		}
	}
	return len(r.Messages) > 0
}

// get opens the stream for messages that belong to no call, or resumes a broken stream.
func (h *Handler) get(w http.ResponseWriter, r *edge.Request) {
	if !front.Accepts(w, r.Request, nil, front.TypeEvents) {
		return
	}
	found, ok := h.session(w, r, nil)
	if !ok {
		return
	}
	after := r.Header.Get(front.HeaderLastEventID)
	stream, err := openStream(found, after)
	switch {
	case err == nil:
		defer stream.Detach()
		reply := reply{handler: h, w: w, r: r, stream: stream, revision: found.Revision, after: after}
		reply.streamEvents()
	case errors.Is(err, session.ErrUnknownEvent):
		// Not 404: the client would take that for the end of the session, and open
		// another one.
		front.Refuse(w, http.StatusBadRequest, nil, rpc.CodeInvalidRequest, err.Error())
	case errors.Is(err, session.ErrStreamOver):
		// 204 tells a client of event streams not to connect again. Clients of the
		// official SDKs try every second until they get an answer or 204.
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, session.ErrEnded):
		front.Refuse(w, http.StatusNotFound, nil, rpc.CodeInvalidRequest, err.Error())
	default:
		front.Unavailable(w, nil, err.Error())
	}
}

func openStream(in *session.Session, lastEventID string) (*session.Stream, error) {
	if lastEventID != "" {
		return in.Resume(lastEventID)
	}
	return in.Open()
}

func (h *Handler) delete(w http.ResponseWriter, r *edge.Request) {
	found, ok := h.session(w, r, nil)
	if !ok {
		return
	}
	found.End(session.ErrClient)
	w.WriteHeader(http.StatusNoContent)
}
