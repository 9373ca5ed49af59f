package proxy

import (
	"net/http"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
)

// gone answers that there is no such session. It names no request: clients of the Go
// SDK would take the error for that request's answer and keep the session.
func (p *Proxy) gone(w http.ResponseWriter, r *edge.Request) {
	text := p.Sessions.Ended.Text(r.Header.Get(front.HeaderSession), &r.Caller)
	front.Refuse(w, http.StatusNotFound, nil, rpc.CodeInvalidRequest, text)
}
