package upstream

import (
	"net/http"
	"strconv"

	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/wire"
)

const (
	headerSession  = "Mcp-Session-Id"
	headerRevision = "Mcp-Protocol-Version"

	typeJSON   = "application/json"
	typeEvents = "text/event-stream"
)

// refuse answers with an HTTP error and a JSON-RPC error. The id is that of the
// request, if there is one.
func refuse(w http.ResponseWriter, status int, id []byte, code int, text string) {
	b := appendError(nil, id, code, text)
	header := w.Header()
	header.Set("Content-Type", typeJSON)
	header.Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	_, _ = w.Write(b) // the client is told, or gone
}

// unavailable answers that another try may succeed.
func unavailable(w http.ResponseWriter, id []byte, text string) {
	w.Header().Set("Retry-After", "1")
	refuse(w, http.StatusServiceUnavailable, id, session.CodeInternal, text)
}

// gone answers that there is no such session. It names no request: clients of the Go
// SDK would take the error for that request's answer and keep the session.
func gone(w http.ResponseWriter) {
	refuse(w, http.StatusNotFound, nil, wire.CodeInvalidRequest, "no such session: it has ended or never was; begin again with initialize")
}

func appendError(dst, id []byte, code int, text string) []byte {
	dst = append(dst, `{"jsonrpc":"2.0"`...)
	if len(id) > 0 {
		dst = append(append(dst, `,"id":`...), id...)
	}
	dst = append(dst, `,"error":{"code":`...)
	dst = strconv.AppendInt(dst, int64(code), 10)
	dst = append(dst, `,"message":`...)
	dst = wire.AppendString(dst, text)
	return append(dst, "}}"...)
}

// clip keeps what others sent short when it is repeated.
func clip(text string) string {
	const most = 64
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}
