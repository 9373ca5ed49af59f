package streamable

import (
	"errors"
	"net/http"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// get opens the stream for messages that belong to no call, or resumes a broken stream.
func (h *Handler) get(w http.ResponseWriter, r *edge.Request) {
	if !front.Accepts(r.Request, front.TypeEvents) {
		front.Refuse(w, http.StatusNotAcceptable, nil, rpc.CodeInvalidRequest, "the Accept header must allow "+front.TypeEvents)
		return
	}
	found, ok := h.session(w, r, nil)
	if !ok {
		return
	}
	after := r.Header.Get(front.HeaderLastEventID)
	stream, err := openStream(found, after)
	switch {
	case err == nil:
	case errors.Is(err, session.ErrUnknownEvent):
		// Not 404: the client would take that for the end of the session, and open
		// another.
		front.Refuse(w, http.StatusBadRequest, nil, rpc.CodeInvalidRequest, err.Error())
		return
	case errors.Is(err, session.ErrStreamOver):
		// Clients of event streams take 204 for "do not connect again". Clients of the
		// official SDKs try every second, until they see an answer or 204.
		w.WriteHeader(http.StatusNoContent)
		return
	case errors.Is(err, session.ErrEnded):
		front.Refuse(w, http.StatusNotFound, nil, rpc.CodeInvalidRequest, err.Error())
		return
	default:
		front.Unavailable(w, nil, err.Error())
		return
	}
	defer stream.Detach()
	reply := reply{handler: h, w: w, r: r, stream: stream, revision: found.Revision, after: after}
	reply.streamEvents()
}

func openStream(in *session.Session, lastEventID string) (*session.Stream, error) {
	if lastEventID != "" {
		return in.Resume(lastEventID)
	}
	return in.Open()
}
