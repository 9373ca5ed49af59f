// Package front is what the HTTP front ends of all transports have in common: headers,
// revisions, and how a request is answered or refused.
package front

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/places"
)

// Headers and content types.
const (
	HeaderSession     = "Mcp-Session-Id"
	HeaderRevision    = "Mcp-Protocol-Version"
	HeaderLastEventID = "Last-Event-Id"
	HeaderMethod      = "Mcp-Method" // repeats the method of a request
	HeaderName        = "Mcp-Name"   // repeats the name of the tool, resource or task

	TypeJSON   = "application/json"
	TypeEvents = "text/event-stream"
)

// Refuse answers with an HTTP error and a JSON-RPC error. The id is that of the
// request, if there is one that the error is to be the answer to.
func Refuse(w http.ResponseWriter, status int, id []byte, code int, text string) {
	RefuseWith(w, status, id, code, text, nil)
}

// RefuseWith is Refuse with data.
func RefuseWith(w http.ResponseWriter, status int, id []byte, code int, text string, data []byte) {
	note(w, status, code, text)
	WriteJSON(w, status, rpc.AppendError(nil, id, code, text, data), WriteTimeout, nil)
}

// Unavailable answers that another try may succeed.
func Unavailable(w http.ResponseWriter, id []byte, text string) {
	w.Header().Set("Retry-After", "1")
	Refuse(w, http.StatusServiceUnavailable, id, rpc.CodeInternal, text)
}

// RefuseSession answers a client that no session is opened for now, if it is still there.
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

// RefusePlain answers with an HTTP error and a text, to requests that are no messages.
func RefusePlain(w http.ResponseWriter, status int, text string) {
	note(w, status, 0, text)
	http.Error(w, text, status)
}

// note tells the edge, which keeps a record of the request, why it fails. The code is 0 for
// an answer that is no message.
func note(w http.ResponseWriter, status, code int, text string) {
	if record, ok := w.(interface {
		Refused(status, code int, text string)
	}); ok {
		record.Refused(status, code, text)
	}
}
