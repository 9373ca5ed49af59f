package streamable

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

var errNotOpened = errors.New("the session was not opened")

// initialize opens a session: it finds a slot, starts a server, and sends it the request.
// The client gets the id of the session together with the server's result. So an initialize
// that fails leaves no session behind.
func (h *Handler) initialize(w http.ResponseWriter, r *edge.Request) {
	message := r.Messages[0]
	message.From = &r.Caller
	id := message.Envelope.ID.Of(message.Bytes)
	if len(r.Header[front.HeaderSession]) > 1 {
		front.NamesOnce(w, r.Request, id)
		return
	}
	if h.hasOpen(r) {
		RefuseInitialize(w, id)
		return
	}
	slot, err := r.Place(w, h.Sessions)
	if err != nil {
		front.RefuseSession(w, r.Request, id, err)
		return
	}
	if slot == nil {
		return // another instance has the session
	}
	defer slot.Release()

	ctx, cancel := context.WithTimeout(r.Context(), h.OpenTimeout)
	defer cancel()
	opened, err := h.Open(ctx, &r.Caller)
	if err != nil {
		if !fault.IsLimit(err) {
			front.NoteFailure(w)
		}
		front.Unavailable(w, id, err.Error())
		return
	}
	stream, err := opened.Call(ctx, message)
	if err != nil {
		err = whyEnded(ctx, opened, err)
		opened.End(errNotOpened)
		// Not 404, as for other messages: the client has no session that could have ended.
		front.Failed(w, id, "the server did not take initialize: "+err.Error())
		return
	}
	events, err := collect(ctx, stream)
	if err != nil {
		opened.End(errNotOpened)
		if r.Context().Err() == nil { // otherwise the client has gone
			front.Refuse(w, http.StatusOK, id, rpc.CodeInternal, "the server did not answer initialize within "+h.OpenTimeout.String())
		}
		return
	}
	answer := events[len(events)-1]
	revision, agreed, _ := rpc.Agreement(answer.Message)
	if agreed && r.Context().Err() == nil { // a client that has gone does not get the id
		opened.Revision = revision
		opened.Owner = caller.NewOwner(&r.Caller)
		r.Record.Session, r.Record.Revision = opened.Number, edge.KnownRevision(revision)
		sessionID := h.MintID()
		w.Header().Set(front.HeaderSession, sessionID)
		slot.Fill(r.Context(), sessionID, opened)
	} else {
		opened.End(errNotOpened)
	}
	h.writeAll(w, events)
	r.Record.Answered(edge.ErrorType(answer.Failed()))
}

// endGrace is for a process that does not take a message to end. Its pipes often end a moment before.
const endGrace = 2 * time.Second

// whyEnded returns why a session did not take a message: the end of its server's process, which explains
// more than the error, if that comes soon.
func whyEnded(ctx context.Context, opened *session.Session, err error) error {
	timer := time.NewTimer(endGrace)
	defer timer.Stop()
	select {
	case <-opened.Done():
	case <-ctx.Done():
	case <-timer.C:
	}
	return cmp.Or(opened.EndedBy(), err)
}

// collect waits for all events of a stream. The answer to initialize is the last one.
func collect(ctx context.Context, stream *session.Stream) (events []session.Event, err error) {
	defer stream.Detach()
	// Until then the events stay in the session, whose limits bound them.
	for !stream.Finished() {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-stream.Ready():
		}
	}
	for {
		event, ok, _ := stream.Take()
		if !ok {
			return events, nil
		}
		events = append(events, event)
	}
}
