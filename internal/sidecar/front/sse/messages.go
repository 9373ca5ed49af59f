package sse

import (
	"context"
	"errors"
	"net/http"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// serveMessages hands the messages of a client to the server of its connection, and
// acknowledges them. The client gets answers on its event stream.
func (t *Transport) serveMessages(w http.ResponseWriter, r *edge.Request) {
	c, ok := t.find(w, r)
	if !ok {
		return
	}
	// Client and server may agree on 2025-03-26 over this transport, which has batches.
	// Before they agree on a revision, the client may send batches, too (J-10).
	if agreed := c.revision(); r.Batch && agreed >= firstWithoutBatches {
		front.Refuse(w, http.StatusBadRequest, nil, rpc.CodeInvalidRequest, "batches are part of protocol revision 2025-03-26 only; this connection has "+agreed)
		return
	}
	if err := c.take(r); err != nil {
		refuse(w, err)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

// firstWithoutBatches is the first revision after the one with batches.
const firstWithoutBatches = "2025-06-18"

// errStateless refuses notifications of 2026-07-28, which this transport does not serve. The
// adapter answers requests of that revision on the event stream.
var errStateless = errors.New("messages of the stateless protocol are not taken here; begin with initialize")

// refuse answers the POST of a message that did not reach the server.
func refuse(w http.ResponseWriter, err error) {
	if errors.Is(err, errStateless) {
		front.Refuse(w, http.StatusBadRequest, nil, rpc.CodeInvalidRequest, err.Error())
		return
	}
	front.RefuseMessage(w, nil, err, noConnection)
}

// take hands messages to the server, notifications and responses first. The adapter answers
// requests that the server must not see.
func (c *connection) take(r *edge.Request) error {
	ctx := r.Context()
	if len(r.Messages) == 1 {
		switch answer, code, err := c.answerTo(r.Messages[0]); {
		case err != nil:
			return err
		case answer != nil:
			r.Record.Answered(edge.ErrorType(rpc.ErrorTypeOf(code)))
			return c.answer(ctx, answer)
		}
	}
	requests, err := c.session.TellAll(ctx, &r.Caller, r.Messages)
	switch {
	case err != nil || len(requests) == 0:
		return err
	case r.Batch:
		return c.session.CallOn(ctx, c.stream, requests...)
	}
	return c.call(r, requests)
}

// call hands a request to the server. Gather closes the record of the request when it writes
// the answer.
func (c *connection) call(r *edge.Request, request []session.Message) error {
	record := r.HandOver()
	request[0].Tag = record
	c.records.add(record)
	err := c.session.CallOn(r.Context(), c.stream, request...)
	if err != nil {
		c.records.take(record) // the edge closes it when the adapter refuses the request
	}
	return err
}

// answerTo returns the adapter's answer to a request that the server must not see, and the
// error code in it. For a notification or response that the server must not see it returns an
// error. For all other messages it returns nil.
func (c *connection) answerTo(message session.Message) (answer []byte, code int, err error) {
	e := &message.Envelope
	id := e.ID.Of(message.Bytes)
	switch {
	case e.ProtocolVersion != nil && e.Kind == rpc.Request:
		return front.UnsupportedRevision(id, string(e.ProtocolVersion)), rpc.CodeUnsupportedRevision, nil
	case e.ProtocolVersion != nil:
		return nil, 0, errStateless
	case e.Kind == rpc.Request && string(e.Method) == rpc.MethodInitialize && !c.begin(id):
		// Servers differ in how they treat a second initialize.
		text := "this connection has been initialized; connect again for another session"
		return rpc.AppendError(nil, id, rpc.CodeInvalidRequest, text, nil), rpc.CodeInvalidRequest, nil
	}
	return nil, 0, nil
}

// answer puts an answer of the adapter on the event stream.
func (c *connection) answer(ctx context.Context, message []byte) error {
	select {
	case c.answers <- message:
		return nil
	case <-c.session.Done():
		return session.ErrEnded
	case <-ctx.Done():
		return ctx.Err()
	}
}
