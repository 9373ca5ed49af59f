package upstream

import (
	"net/http"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/frontend"
)

// gone answers that there is no such session. It names no request: clients of the Go
// SDK would take the error for that request's answer and keep the session.
func gone(w http.ResponseWriter) {
	frontend.Refuse(w, http.StatusNotFound, nil, rpc.CodeInvalidRequest, "no such session: it has ended or never was; begin again with initialize")
}
