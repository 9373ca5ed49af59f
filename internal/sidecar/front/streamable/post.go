package streamable

import (
	"errors"
	"net/http"
	"strings"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

func (h *Handler) post(w http.ResponseWriter, r *edge.Request) {
	if r.Batch {
		h.batch(w, r)
		return
	}
	message := &r.Messages[0]
	revision := r.Head(front.HeaderRevision)
	// The version in the message counts before the one in the header: older clients send
	// no header, or a proxy has added one (B-01).
	switch {
	case !admit(w, r, message):
	case message.Envelope.ProtocolVersion != nil:
		h.stateless(w, r)
	case revision != "" && !front.IsServed(revision):
		h.unserved(w, message, revision)
	case message.Envelope.Kind == rpc.Request && string(message.Envelope.Method) == "initialize":
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

// unserved answers a message without a protocol version of its own, whose header has a
// version without sessions. Only clients of 2026-07-28, or of a later revision, send such
// a header, and their requests must have the version in the message, too.
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
		front.Refuse(w, http.StatusBadRequest, nil, rpc.CodeInvalidRequest, noAnswers)
	default:
		w.WriteHeader(http.StatusAccepted) // and no more: the revision has no notification for servers
	}
}

const (
	noAnswers = "protocol revision " + front.Revision20260728 + " has no requests of servers, and so no answers to them"
	noBatches = "protocol revision " + front.Revision20260728 + " has no batches"
)

// admit says whether the client accepts the answer to a message, alone or in a batch. If
// it returns false it has answered the HTTP request.
func admit(w http.ResponseWriter, r *edge.Request, message *session.Message) bool {
	if message.Envelope.Kind == rpc.Request && !front.Accepts(r.Request, front.TypeJSON, front.TypeEvents) {
		front.Refuse(w, http.StatusNotAcceptable, idOf(message), rpc.CodeInvalidRequest, "the Accept header must allow "+front.TypeJSON+" and "+front.TypeEvents)
		return false
	}
	return true
}

// idOf returns the id of a request, and nil for other messages, which get no answer.
func idOf(message *session.Message) []byte {
	if message.Envelope.Kind != rpc.Request {
		return nil
	}
	return message.Envelope.ID.Of(message.Bytes)
}

// pass hands messages to their session, and waits for the answers to requests.
func (h *Handler) pass(w http.ResponseWriter, r *edge.Request, found *session.Session) {
	requests := r.Messages[:0]
	for i := range r.Messages {
		message := r.Messages[i]
		message.From = &r.Caller
		if message.Envelope.Kind == rpc.Request {
			requests = append(requests, message)
			continue
		}
		if err := found.Tell(r.Context(), message); err != nil {
			h.failSend(w, nil, err)
			return
		}
	}
	if len(requests) == 0 {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	h.call(w, r, found, requests)
}

func (h *Handler) call(w http.ResponseWriter, r *edge.Request, to *session.Session, requests []session.Message) {
	stream, err := to.Call(r.Context(), requests...)
	if err != nil {
		h.failSend(w, requests[0].Envelope.ID.Of(requests[0].Bytes), err)
		return
	}
	r.Drop()
	reply := reply{handler: h, w: w, r: r, stream: stream, revision: to.Revision, batch: r.Batch}
	reply.run()
}

// failSend refuses a message that did not reach its server.
func (h *Handler) failSend(w http.ResponseWriter, id []byte, err error) {
	switch {
	case errors.Is(err, session.ErrDuplicateID):
		front.Refuse(w, http.StatusBadRequest, id, rpc.CodeInvalidRequest, err.Error())
	case errors.Is(err, session.ErrTooManyCalls):
		front.Unavailable(w, id, err.Error())
	case errors.Is(err, session.ErrEnded):
		front.Refuse(w, http.StatusNotFound, nil, rpc.CodeInvalidRequest, "the session has just ended; begin again with initialize")
	default:
		front.Unavailable(w, id, "the server does not take messages now: "+err.Error())
	}
}

// batch takes an array of messages, which only revision 2025-03-26 has.
func (h *Handler) batch(w http.ResponseWriter, r *edge.Request) {
	if r.Head(front.HeaderRevision) == front.Revision20260728 {
		front.Refuse(w, http.StatusBadRequest, nil, rpc.CodeInvalidRequest, noBatches)
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
