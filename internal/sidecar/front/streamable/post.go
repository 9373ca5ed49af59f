package streamable

import (
	"net/http"
	"strings"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

func (h *Handler) post(w http.ResponseWriter, r *edge.Request) {
	// Check lets small bodies of unknown sessions pass, for initialize.
	if foreign, ok := h.knows(r); !ok && !initializes(r) {
		h.refuseSession(w, r, foreign)
		return
	}
	if r.Batch {
		h.batch(w, r)
		return
	}
	message := &r.Messages[0]
	revision := r.Head(front.HeaderRevision)
	// The version in the message has precedence over the one in the header: clients may send
	// no header, and a proxy may add one (B-01).
	switch {
	case !admit(w, r, message):
	case message.Envelope.ProtocolVersion != nil:
		h.stateless(w, r)
	case revision != "" && !front.IsServed(revision):
		h.unserved(w, message, revision)
	case initializes(r):
		h.initialize(w, r)
	default:
		if found, ok := h.session(w, r, idOf(message)); ok {
			h.pass(w, r, found)
		}
	}
}

func (h *Handler) stateless(w http.ResponseWriter, r *edge.Request) {
	if h.Stateless == nil {
		message := &r.Messages[0]
		front.RefuseRevision(w, idOf(message), string(message.Envelope.ProtocolVersion))
		return
	}
	h.Stateless(w, r)
}

// unserved answers a message that names no protocol version, in an HTTP request whose header
// names a revision without sessions. Only clients of 2026-07-28, or of a later revision, send
// such a header. Their requests must name the version in the message, too.
func (h *Handler) unserved(w http.ResponseWriter, message *session.Message, revision string) {
	switch {
	case message.Envelope.Kind == rpc.Request:
		text := "a request of protocol revision " + front.Revision20260728 + " must name it in params._meta, as " + rpc.MetaProtocolVersion +
			"; revisions with sessions are " + strings.Join(front.Revisions(), ", ")
		if revision != front.Revision20260728 {
			text = "protocol revision " + rpc.Clip(revision) + " is not served; " + text
		}
		front.Refuse(w, http.StatusBadRequest, idOf(message), rpc.CodeInvalidParams, text)
	case revision != front.Revision20260728:
		front.RefuseRevision(w, nil, revision)
	case message.Envelope.Kind == rpc.Response:
		front.Refuse(w, http.StatusBadRequest, nil, rpc.CodeInvalidRequest, "protocol revision "+revision+" has no requests of servers, and so no answers to them")
	default:
		w.WriteHeader(http.StatusAccepted) // the revision has no notifications for servers, so the adapter drops it
	}
}

// admit reports whether the client accepts the content types of the answer to a message. If it
// returns false it has answered the HTTP request.
func admit(w http.ResponseWriter, r *edge.Request, message *session.Message) bool {
	return message.Envelope.Kind != rpc.Request || front.Accepts(w, r.Request, idOf(message), front.TypeJSON, front.TypeEvents)
}

// idOf returns the id of a request. It returns nil for other messages, which get no answer.
func idOf(message *session.Message) []byte {
	if message.Envelope.Kind != rpc.Request {
		return nil
	}
	return message.Envelope.ID.Of(message.Bytes)
}

// pass hands messages to their session, and writes the answers to requests.
func (h *Handler) pass(w http.ResponseWriter, r *edge.Request, found *session.Session) {
	const ended = "the session has just ended; begin again with initialize"
	requests, err := found.TellAll(r.Context(), &r.Caller, r.Messages)
	if err != nil {
		front.RefuseMessage(w, nil, err, ended)
		return
	}
	if len(requests) == 0 {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	stream, err := found.Call(r.Context(), requests...)
	if err != nil {
		front.RefuseMessage(w, idOf(&requests[0]), err, ended)
		return
	}
	r.Drop()
	reply := reply{handler: h, w: w, r: r, stream: stream, revision: found.Revision}
	reply.run()
}

// batch serves an array of messages, which only revision 2025-03-26 has.
func (h *Handler) batch(w http.ResponseWriter, r *edge.Request) {
	if revision := r.Head(front.HeaderRevision); revision == front.Revision20260728 {
		front.Refuse(w, http.StatusBadRequest, nil, rpc.CodeInvalidRequest, "protocol revision "+revision+" has no batches")
		return
	}
	for i := range r.Messages {
		if !admit(w, r, &r.Messages[i]) {
			return
		}
	}
	found, ok := h.session(w, r, nil)
	if !ok {
		return
	}
	if found.Revision != front.Revision20250326 {
		front.Refuse(w, http.StatusBadRequest, nil, rpc.CodeInvalidRequest, "batches are part of protocol revision 2025-03-26 only; this session has "+found.Revision)
		return
	}
	h.pass(w, r, found)
}
