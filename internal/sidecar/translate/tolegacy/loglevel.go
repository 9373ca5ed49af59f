package tolegacy

import (
	"slices"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// setLevel has every request from now on ask for log messages of a level (U-06).
func (s *Server) setLevel(request session.Message) error {
	id := request.Envelope.ID.Of(request.Bytes)
	level := string(rpc.Text(request.Bytes, rpc.Lookup(request.Bytes, request.Envelope.Params, "level")))
	if !slices.Contains(rpc.LogLevels, level) {
		return s.refuse(id, rpc.CodeInvalidParams, "unknown log level")
	}
	s.mu.Lock()
	s.meta = metaMember(append(slices.Clip(s.client.identity), `,"`+rpc.MetaLogLevel+`":"`+level+`"`...))
	s.mu.Unlock()
	return s.reply(id)
}
