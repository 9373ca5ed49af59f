package streamable

import (
	"errors"
	"net/http"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/wire"
)

// get opens a stream for what belongs to no call, or resumes one that broke off.
func (h *Handler) get(w http.ResponseWriter, r *http.Request) {
	if !accepts(r, typeEvents) {
		fail(w, http.StatusNotAcceptable, wire.CodeInvalidRequest, "the Accept header must allow "+typeEvents)
		return
	}
	found, ok := h.session(w, r)
	if !ok {
		return
	}
	stream, err := openStream(found, r.Header.Get(headerLastEventID))
	switch {
	case err == nil:
	case errors.Is(err, session.ErrUnknownEvent):
		// Not 404, which would say that the session is gone (T-24).
		fail(w, http.StatusBadRequest, wire.CodeInvalidRequest, err.Error())
		return
	case errors.Is(err, session.ErrEnded):
		fail(w, http.StatusNotFound, wire.CodeInvalidRequest, err.Error())
		return
	default:
		fail(w, http.StatusConflict, wire.CodeInvalidRequest, err.Error())
		return
	}
	defer stream.Detach()
	timer := time.NewTimer(h.KeepAlive)
	defer timer.Stop()
	reply := reply{handler: h, w: w, r: r, stream: stream, revision: found.Revision}
	reply.streamEvents(timer)
}

func openStream(in *session.Session, lastEventID string) (*session.Stream, error) {
	if lastEventID != "" {
		return in.Resume(lastEventID)
	}
	return in.Open()
}
