package streamable

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/wire"
)

func (h *Handler) post(w http.ResponseWriter, r *http.Request) {
	body, ok := h.readBody(w, r)
	if !ok {
		return
	}
	if wire.IsBatch(body) {
		h.batch(w, r, body)
		return
	}
	message, ok := scan(w, body)
	if !ok {
		return
	}
	switch {
	case !admit(w, r, message):
	case message.Envelope.Kind == wire.Request && string(message.Envelope.Method) == "initialize":
		h.initialize(w, r, message)
	default:
		if found, ok := h.session(w, r); ok {
			h.pass(w, r, found, false, message)
		}
	}
}

// admit says whether a message may be passed on, alone or in a batch. If not it has
// answered.
func admit(w http.ResponseWriter, r *http.Request, message session.Message) bool {
	id := message.Envelope.ID.Of(message.Bytes)
	switch {
	case message.Envelope.ProtocolVersion != nil:
		refuseRevision(w, id, message.Envelope.ProtocolVersion)
		return false
	case message.Envelope.Kind == wire.Request && !accepts(r, typeJSON, typeEvents):
		failRequest(w, http.StatusNotAcceptable, id, wire.CodeInvalidRequest, nil, "the Accept header must allow "+typeJSON+" and "+typeEvents)
		return false
	}
	return true
}

// pass hands messages to their session, and answers when there is a request.
func (h *Handler) pass(w http.ResponseWriter, r *http.Request, found *session.Session, batch bool, messages ...session.Message) {
	var requests []session.Message
	for _, message := range messages {
		if message.Envelope.Kind == wire.Request {
			requests = append(requests, message)
			continue
		}
		if err := h.tell(r, found, message); err != nil {
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

func (h *Handler) tell(r *http.Request, to *session.Session, message session.Message) error {
	ctx, cancel := context.WithTimeout(r.Context(), h.SendTimeout)
	defer cancel()
	return to.Tell(ctx, message)
}

func (h *Handler) call(w http.ResponseWriter, r *http.Request, to *session.Session, batch bool, requests []session.Message) {
	ctx, cancel := context.WithTimeout(r.Context(), h.SendTimeout)
	stream, err := to.Call(ctx, requests...)
	cancel()
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
		failRequest(w, http.StatusBadRequest, id, wire.CodeInvalidRequest, nil, err.Error())
	case errors.Is(err, session.ErrTooManyCalls):
		unavailable(w, id, err.Error())
	case errors.Is(err, session.ErrEnded):
		fail(w, http.StatusNotFound, wire.CodeInvalidRequest, "the session has just ended; begin again with initialize")
	default:
		unavailable(w, id, "the server does not take messages now: "+err.Error())
	}
}

// readBody reads a body that may be a message. If it is not it has answered.
func (h *Handler) readBody(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	if !isJSON(r.Header.Get("Content-Type")) {
		fail(w, http.StatusUnsupportedMediaType, wire.CodeInvalidRequest, "the Content-Type must be "+typeJSON)
		return nil, false
	}
	if r.ContentLength > h.BodyBytes {
		h.failTooLarge(w)
		return nil, false
	}
	body, err := h.readAll(w, r)
	switch {
	case err != nil:
		fail(w, http.StatusBadRequest, wire.CodeParse, "the body could not be read")
		return nil, false
	case int64(len(body)) > h.BodyBytes:
		h.failTooLarge(w)
		return nil, false
	}
	return body, true
}

func isJSON(contentType string) bool {
	if contentType == typeJSON { // nearly always
		return true
	}
	mediaType, _, err := mime.ParseMediaType(contentType)
	return err == nil && mediaType == typeJSON
}

// firstRead is how much is set aside for a body before any of it has come: what a
// client announces costs it nothing.
const firstRead = 64 << 10

// readAll reads a body, and one byte more than it may have to tell that it is too
// large. A client that stops sending is not waited for.
func (h *Handler) readAll(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	control := http.NewResponseController(w)
	most := h.BodyBytes + 1
	body := make([]byte, 0, min(max(r.ContentLength, 512), firstRead, most))
	for {
		if len(body) == cap(body) {
			body = slices.Grow(body, cap(body))
		}
		if h.ReadTimeout > 0 {
			// Where there is no connection to set it on, there is nobody to wait for.
			_ = control.SetReadDeadline(time.Now().Add(h.ReadTimeout))
		}
		n, err := r.Body.Read(body[len(body):min(int64(cap(body)), most)])
		body = body[:len(body)+n]
		switch {
		case errors.Is(err, io.EOF) || int64(len(body)) == most:
			_ = control.SetReadDeadline(time.Time{})
			return body, nil
		case err != nil:
			return nil, err
		}
	}
}

func (h *Handler) failTooLarge(w http.ResponseWriter) {
	// What is left of the body is not worth reading.
	w.Header().Set("Connection", "close")
	fail(w, http.StatusRequestEntityTooLarge, wire.CodeInvalidRequest,
		"the body is larger than "+strconv.FormatInt(h.BodyBytes, 10)+" bytes, the limit of this server")
}

// scan reads the envelope of a message. If there is none it has answered.
func scan(w http.ResponseWriter, body []byte) (session.Message, bool) {
	envelope, err := wire.Scan(body)
	if err != nil {
		failScan(w, err)
		return session.Message{}, false
	}
	return session.Message{Bytes: body, Envelope: envelope}, true
}

func failScan(w http.ResponseWriter, err error) {
	code := wire.CodeParse
	if refused, ok := errors.AsType[*wire.Error](err); ok {
		code = refused.Code
	}
	fail(w, http.StatusBadRequest, code, err.Error())
}

// batch takes an array of messages, which only revision 2025-03-26 has.
func (h *Handler) batch(w http.ResponseWriter, r *http.Request, body []byte) {
	var messages []session.Message
	err := wire.Batch(body, func(element []byte) error {
		envelope, err := wire.Scan(element)
		if err != nil {
			return err
		}
		messages = append(messages, session.Message{Bytes: element, Envelope: envelope})
		return nil
	})
	if err != nil {
		failScan(w, err)
		return
	}
	for _, message := range messages {
		if !admit(w, r, message) {
			return
		}
	}
	found, ok := h.session(w, r)
	if !ok {
		return
	}
	if found.Revision != revision20250326 {
		fail(w, http.StatusBadRequest, wire.CodeInvalidRequest, "batches are part of protocol revision 2025-03-26 only; this session has "+found.Revision)
		return
	}
	for _, message := range messages {
		if string(message.Envelope.Method) == "initialize" {
			fail(w, http.StatusBadRequest, wire.CodeInvalidRequest, "initialize must not be part of a batch")
			return
		}
	}
	h.pass(w, r, found, true, messages...)
}

// refuseRevision answers a request of the stateless protocol, which is not served
// here, so that its client falls back to one that is (L-22).
func refuseRevision(w http.ResponseWriter, id, requested []byte) {
	const codeUnsupportedRevision = -32022
	data := []byte(`{"supported":["` + strings.Join(revisions, `","`) + `"],"requested":`)
	data = append(wire.AppendString(data, string(requested)), '}')
	failRequest(w, http.StatusBadRequest, id, codeUnsupportedRevision, data, "unsupported protocol version")
}

// accepts says whether the Accept headers allow every one of the types. A client
// that sends none takes anything.
func accepts(r *http.Request, types ...string) bool {
	values := r.Header.Values("Accept")
	if len(values) == 0 {
		return true
	}
	for _, want := range types {
		if !acceptsOne(values, want) {
			return false
		}
	}
	return true
}

func acceptsOne(values []string, want string) bool {
	group, _, _ := strings.Cut(want, "/")
	for _, value := range values {
		for part := range strings.SplitSeq(value, ",") {
			mediaType, _, _ := strings.Cut(part, ";")
			switch mediaType = strings.TrimSpace(mediaType); {
			case mediaType == "*/*", strings.EqualFold(mediaType, want), strings.EqualFold(mediaType, group+"/*"):
				return true
			}
		}
	}
	return false
}
