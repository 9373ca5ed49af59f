package streamable

import (
	"errors"
	"net/http"

	"github.com/slipway-mcp/slipway/internal/sidecar/frontend"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/wire"
)

func (h *Handler) post(w http.ResponseWriter, r *http.Request) {
	body, refused := frontend.ReadBody(w, r, frontend.BodyLimits{BodyBytes: h.BodyBytes, ReadTimeout: h.ReadTimeout})
	if refused != nil {
		refused.Refuse(w)
		return
	}
	if wire.IsBatch(body) {
		h.batch(w, r, body)
		return
	}
	message, err := frontend.Scan(body)
	if err != nil {
		frontend.RefuseScan(w, err)
		return
	}
	switch {
	case !admit(w, r, message):
	case message.Envelope.Kind == wire.Request && string(message.Envelope.Method) == "initialize":
		h.initialize(w, r, message)
	default:
		if found, ok := h.session(w, r, idOf(message)); ok {
			h.pass(w, r, found, false, []session.Message{message})
		}
	}
}

// admit says whether a message may be passed on, alone or in a batch. If not it has
// answered.
func admit(w http.ResponseWriter, r *http.Request, message session.Message) bool {
	id := idOf(message)
	switch {
	case message.Envelope.ProtocolVersion != nil:
		frontend.RefuseRevision(w, id, string(message.Envelope.ProtocolVersion))
		return false
	case message.Envelope.Kind == wire.Request && !frontend.Accepts(r, frontend.TypeJSON, frontend.TypeEvents):
		frontend.Refuse(w, http.StatusNotAcceptable, id, wire.CodeInvalidRequest, "the Accept header must allow "+frontend.TypeJSON+" and "+frontend.TypeEvents)
		return false
	}
	return true
}

// idOf is the id of a request; nobody waits for an answer to anything else.
func idOf(message session.Message) []byte {
	if message.Envelope.Kind != wire.Request {
		return nil
	}
	return message.Envelope.ID.Of(message.Bytes)
}

// pass hands messages to their session, and answers when there is a request.
func (h *Handler) pass(w http.ResponseWriter, r *http.Request, found *session.Session, batch bool, messages []session.Message) {
	requests := messages[:0]
	for _, message := range messages {
		if message.Envelope.Kind == wire.Request {
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
	h.call(w, r, found, batch, requests)
}

func (h *Handler) call(w http.ResponseWriter, r *http.Request, to *session.Session, batch bool, requests []session.Message) {
	stream, err := to.Call(r.Context(), requests...)
	if err != nil {
		h.failSend(w, requests[0].Envelope.ID.Of(requests[0].Bytes), err)
		return
	}
	reply := reply{handler: h, w: w, r: r, stream: stream, revision: to.Revision, batch: batch}
	reply.run()
}

// failSend answers a message that did not reach its server.
func (h *Handler) failSend(w http.ResponseWriter, id []byte, err error) {
	switch {
	case errors.Is(err, session.ErrDuplicateID):
		frontend.Refuse(w, http.StatusBadRequest, id, wire.CodeInvalidRequest, err.Error())
	case errors.Is(err, session.ErrTooManyCalls):
		frontend.Unavailable(w, id, err.Error())
	case errors.Is(err, session.ErrEnded):
		frontend.Refuse(w, http.StatusNotFound, nil, wire.CodeInvalidRequest, "the session has just ended; begin again with initialize")
	default:
		frontend.Unavailable(w, id, "the server does not take messages now: "+err.Error())
	}
}

// batch takes an array of messages, which only revision 2025-03-26 has.
func (h *Handler) batch(w http.ResponseWriter, r *http.Request, body []byte) {
	messages, err := frontend.ScanBatch(body)
	if err != nil {
		frontend.RefuseScan(w, err)
		return
	}
	for _, message := range messages {
		if !admit(w, r, message) {
			return
		}
	}
	found, ok := h.session(w, r, nil)
	if !ok {
		return
	}
	if found.Revision != frontend.Revision20250326 {
		frontend.Refuse(w, http.StatusBadRequest, nil, wire.CodeInvalidRequest, "batches are part of protocol revision 2025-03-26 only; this session has "+found.Revision)
		return
	}
	h.pass(w, r, found, true, messages)
}
