package legacysse

import (
	"context"
	"errors"
	"net/http"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/frontend"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// serveMessages takes what a client has to say to the server of its connection. It
// only ever acknowledges: answers arrive on the connection (E-04).
func (t *Transport) serveMessages(w http.ResponseWriter, r *edge.Request) {
	c, ok := t.find(w, r)
	if !ok {
		return
	}
	// The transport's own revision has no arrays, but 2025-03-26, which may be agreed on
	// all the same, does (J-10). Later ones do not.
	if agreed := c.revision(); r.Batch && agreed >= firstWithoutBatches {
		frontend.Refuse(w, http.StatusBadRequest, nil, rpc.CodeInvalidRequest, "batches are part of protocol revision 2025-03-26 only; this connection has "+agreed)
		return
	}
	if err := c.take(r); err != nil {
		failTake(w, err)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

// firstWithoutBatches is the revision since which there are none.
const firstWithoutBatches = "2025-06-18"

func isInitialize(message session.Message) bool {
	return message.Envelope.Kind == rpc.Request && string(message.Envelope.Method) == "initialize"
}

// errStateless refuses what is not a request of the stateless protocol, which is
// not served here. A request is answered.
var errStateless = errors.New("messages of the stateless protocol are not taken here; begin with initialize")

// failTake answers a message that did not reach its server.
func failTake(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, session.ErrEnded):
		failEnded(w)
	case errors.Is(err, session.ErrDuplicateID), errors.Is(err, errStateless):
		frontend.Refuse(w, http.StatusBadRequest, nil, rpc.CodeInvalidRequest, err.Error())
	case errors.Is(err, session.ErrTooManyCalls):
		frontend.Unavailable(w, nil, err.Error())
	default:
		frontend.Unavailable(w, nil, "the server does not take messages now: "+err.Error())
	}
}

// take hands messages to the server, those that want no answer first, unless they
// are for us to answer.
func (c *connection) take(r *edge.Request) error {
	ctx := r.Context()
	if len(r.Messages) == 1 {
		switch answer, err := c.refuse(r.Messages[0]); {
		case err != nil:
			return err
		case answer != nil:
			r.Record.Answered(errorTypeOf(answer))
			return c.answer(ctx, answer)
		}
	}
	requests := r.Messages[:0]
	for i := range r.Messages {
		message := r.Messages[i]
		message.From = &r.Caller
		if message.Envelope.Kind == rpc.Request {
			requests = append(requests, message)
		} else if err := c.session.Tell(ctx, message); err != nil {
			return err
		}
	}
	if len(requests) == 0 {
		return nil
	}
	if !r.Batch {
		return c.call(r, requests)
	}
	return c.session.CallOn(ctx, c.stream, requests...)
}

// call hands a request to the server. Its record is closed when its answer is written.
func (c *connection) call(r *edge.Request, request []session.Message) error {
	record := r.HandOver()
	request[0].Tag = record
	c.records.add(record)
	err := c.session.CallOn(r.Context(), c.stream, request...)
	if err != nil {
		c.records.take(record) // the edge closes it with what the client is answered
	}
	return err
}

// errorTypeOf is how a request failed that we answer ourselves.
func errorTypeOf(answer []byte) edge.ErrorType {
	envelope, err := rpc.Scan(answer)
	if err != nil {
		return edge.Succeeded // we made it, so this does not happen
	}
	return edge.ErrorType(rpc.ErrorType(answer, &envelope, false))
}

// refuse returns the answer to a request that the server must not see, if it must
// not, or an error if it is none that could be answered.
func (c *connection) refuse(message session.Message) (answer []byte, err error) {
	e := &message.Envelope
	id := e.ID.Of(message.Bytes)
	switch {
	case e.ProtocolVersion != nil && e.Kind == rpc.Request:
		return frontend.UnsupportedRevision(id, string(e.ProtocolVersion)), nil // E-07
	case e.ProtocolVersion != nil:
		return nil, errStateless
	case isInitialize(message) && !c.begin(id):
		// Servers differ in what they make of a second one.
		return rpc.AppendError(nil, id, rpc.CodeInvalidRequest, "this connection has been initialized; connect again for another session", nil), nil
	}
	return nil, nil
}

// answer sends the client an answer of our own.
func (c *connection) answer(ctx context.Context, message []byte) error {
	select {
	case c.answers <- message:
		return nil
	case <-c.gone:
		return session.ErrEnded
	case <-ctx.Done():
		return ctx.Err()
	}
}
