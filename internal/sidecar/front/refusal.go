// Package front has what the HTTP front ends of all transports share: names of headers,
// protocol revisions, and how the adapter answers or refuses a request.
package front

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/slipway-mcp/slipway/internal/paramheader"
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/places"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Headers and content types.
const (
	HeaderSession     = "Mcp-Session-Id"
	HeaderRevision    = "Mcp-Protocol-Version"
	HeaderLastEventID = "Last-Event-Id"
	HeaderMethod      = paramheader.HeaderMethod // repeats the method of a request
	HeaderName        = paramheader.HeaderName   // repeats the name of the tool, resource or task

	TypeJSON   = "application/json"
	TypeEvents = "text/event-stream"
)

// Refuse answers with an HTTP status and a JSON-RPC error. The id is that of the JSON-RPC
// request that the error answers, or nil.
func Refuse(w http.ResponseWriter, status int, id []byte, code int, text string) {
	RefuseWith(w, status, id, code, text, nil)
}

// RefuseWith is Refuse with the data of the JSON-RPC error.
func RefuseWith(w http.ResponseWriter, status int, id []byte, code int, text string, data []byte) {
	note(w, status, code, text)
	WriteJSON(w, status, rpc.AppendError(nil, id, code, text, data), WriteTimeout, nil)
}

// Unavailable answers 503: the client may try again after a second.
func Unavailable(w http.ResponseWriter, id []byte, text string) {
	w.Header().Set("Retry-After", "1")
	Refuse(w, http.StatusServiceUnavailable, id, rpc.CodeInternal, text)
}

// Failed is Unavailable for a request that cannot be served because the server fails, and not because
// a limit is reached. The manager's probe learns of the difference.
func Failed(w http.ResponseWriter, id []byte, text string) {
	NoteFailure(w)
	Unavailable(w, id, text)
}

// NoteFailure has the edge tell the manager's probe that the server fails.
func NoteFailure(w http.ResponseWriter) {
	if edge, ok := w.(interface{ ServerFailed() }); ok {
		edge.ServerFailed()
	}
}

// RefuseSession answers a client that gets no session now. It does nothing if the client has
// gone.
func RefuseSession(w http.ResponseWriter, r *http.Request, id []byte, err error) {
	if r.Context().Err() != nil {
		return
	}
	after := time.Second
	if full, ok := errors.AsType[*places.FullError](err); ok {
		after = full.RetryAfter
	}
	w.Header().Set("Retry-After", strconv.Itoa(int(after/time.Second)))
	Refuse(w, http.StatusServiceUnavailable, id, rpc.CodeInternal, err.Error())
}

// RefuseMessage answers a client whose session did not take a message. ended is the text if the
// session has ended. That answer names no request: clients of the Go SDK would take the error
// for the request's answer, and keep the session.
func RefuseMessage(w http.ResponseWriter, id []byte, err error, ended string) {
	switch {
	case errors.Is(err, session.ErrEnded):
		Refuse(w, http.StatusNotFound, nil, rpc.CodeInvalidRequest, ended)
	case errors.Is(err, session.ErrDuplicateID):
		Refuse(w, http.StatusBadRequest, id, rpc.CodeInvalidRequest, err.Error())
	case errors.Is(err, session.ErrLongName):
		Refuse(w, http.StatusBadRequest, nil, rpc.CodeInvalidRequest, err.Error())
	case errors.Is(err, session.ErrTooManyCalls):
		Unavailable(w, id, err.Error())
	default:
		Unavailable(w, id, "the server does not take messages now: "+err.Error())
	}
}

// RefusePlain answers an HTTP request that carries no message with a status and a text.
func RefusePlain(w http.ResponseWriter, status int, text string) {
	note(w, status, 0, text)
	http.Error(w, text, status)
}

// note tells the edge, which records the request, why it fails. The code is 0 for an answer
// without a JSON-RPC error.
func note(w http.ResponseWriter, status, code int, text string) {
	if record, ok := w.(interface {
		Refused(status, code int, text string)
	}); ok {
		record.Refused(status, code, text)
	}
}
