// Package streamable serves the Streamable HTTP transport of protocol revisions
// 2025-03-26, 2025-06-18 and 2025-11-25 at one URL.
package streamable

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-mcp/slipway/internal/probekey"
	"github.com/slipway-mcp/slipway/internal/sidecar/origin"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/wire"
)

// The protocol revisions that are served here, oldest first. 2024-11-05 is one that
// a server may settle on, whatever its client speaks.
const (
	revision20241105 = "2024-11-05"
	revision20250326 = "2025-03-26"
	revision20250618 = "2025-06-18"
	revision20251125 = "2025-11-25"
)

var revisions = []string{revision20241105, revision20250326, revision20250618, revision20251125}

func isServed(revision string) bool {
	switch revision {
	case revision20241105, revision20250326, revision20250618, revision20251125:
		return true
	}
	return false
}

const (
	headerSession     = "Mcp-Session-Id"
	headerRevision    = "Mcp-Protocol-Version"
	headerLastEventID = "Last-Event-Id"

	typeJSON   = "application/json"
	typeEvents = "text/event-stream"
)

// Options are what a Handler needs and how it behaves.
type Options struct {
	Sessions *session.Registry
	Origins  origin.Policy

	// Open starts a server for a new session. The session is ended by whoever
	// notices first that the server has.
	Open func(ctx context.Context) (*session.Session, error)
	// MintID makes the id of a session that was opened.
	MintID func() string
	// Probes knows the manager's requests, which have a slot of their own.
	Probes probekey.Verifier

	BodyBytes    int64         // largest body taken
	OpenTimeout  time.Duration // for a server to start and answer initialize
	SendTimeout  time.Duration // for a server to read what it is sent
	ReadTimeout  time.Duration // for a client to send the next part of its body; 0 waits for ever
	WriteTimeout time.Duration // for a client to read what it is sent
	CommitAfter  time.Duration // silence after which a call is answered by a stream
	KeepAlive    time.Duration // between comments on a silent stream
	Retry        time.Duration // for clients to wait before they connect again
}

// Handler is the MCP endpoint.
type Handler struct{ Options }

// New returns a Handler.
func New(options Options) *Handler { return &Handler{options} }

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := h.Origins.Check(r); err != nil {
		fail(w, http.StatusForbidden, wire.CodeInvalidRequest, err.Error())
		return
	}
	switch r.Method {
	case http.MethodPost:
		h.post(w, r)
	case http.MethodGet:
		h.get(w, r)
	case http.MethodDelete:
		h.delete(w, r)
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		fail(w, http.StatusMethodNotAllowed, wire.CodeInvalidRequest, "the MCP endpoint takes POST, GET and DELETE")
	}
}

// session finds the session that a request names. If there is none it has
// answered the request.
func (h *Handler) session(w http.ResponseWriter, r *http.Request) (*session.Session, bool) {
	if revision := r.Header.Get(headerRevision); revision != "" && !isServed(revision) {
		fail(w, http.StatusBadRequest, wire.CodeInvalidRequest,
			"the protocol revision "+strconv.Quote(clip(revision))+" is not served; served are "+strings.Join(revisions, ", "))
		return nil, false
	}
	id := r.Header.Get(headerSession)
	if id == "" {
		fail(w, http.StatusBadRequest, wire.CodeInvalidRequest, "the "+headerSession+" header is missing: only initialize may come without it")
		return nil, false
	}
	found, ok := h.Sessions.Find(id)
	if !ok {
		fail(w, http.StatusNotFound, wire.CodeInvalidRequest, "no such session: it has ended or never was; begin again with initialize")
		return nil, false
	}
	return found, true
}

// clip keeps what a client sent short when it is repeated to it.
func clip(text string) string {
	const most = 64
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}

var errDeleted = errors.New("the client ended the session")

func (h *Handler) delete(w http.ResponseWriter, r *http.Request) {
	found, ok := h.session(w, r)
	if !ok {
		return
	}
	found.End(errDeleted)
	w.WriteHeader(http.StatusNoContent)
}

// fail answers with an HTTP error and a JSON-RPC error that names no request.
func fail(w http.ResponseWriter, status, code int, text string) {
	failRequest(w, status, nil, code, nil, text)
}

// failRequest is fail for a request that has an id, with data if there is any.
func failRequest(w http.ResponseWriter, status int, id []byte, code int, data []byte, text string) {
	b := []byte(`{"jsonrpc":"2.0"`)
	if len(id) > 0 {
		b = append(append(b, `,"id":`...), id...)
	}
	b = append(b, `,"error":{"code":`...)
	b = strconv.AppendInt(b, int64(code), 10)
	b = append(b, `,"message":`...)
	b = wire.AppendString(b, text)
	if data != nil {
		b = append(append(b, `,"data":`...), data...)
	}
	b = append(b, "}}"...)
	header := w.Header()
	header.Set("Content-Type", typeJSON)
	header.Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	_, _ = w.Write(b) // the client is told, or gone
}

// unavailable answers that another try may succeed.
func unavailable(w http.ResponseWriter, id []byte, text string) {
	w.Header().Set("Retry-After", "1")
	failRequest(w, http.StatusServiceUnavailable, id, session.CodeInternal, nil, text)
}
