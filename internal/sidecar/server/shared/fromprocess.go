package shared

import (
	"bytes"
	"errors"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// receive routes a message of the process's. It never waits for anybody.
func (r *run) receive(message session.Message) {
	switch message.Envelope.Kind {
	case rpc.Response:
		r.receiveAnswer(message)
	case rpc.Request:
		r.receiveRequest(message)
	case rpc.Notification:
		r.receiveNotification(message)
	}
}

func (r *run) receiveAnswer(message session.Message) {
	r.mu.Lock()
	c, _, ok := r.TakeLocked(message)
	if !ok {
		r.mu.Unlock()
		r.metrics.LateAnswers.Inc()
		return
	}
	r.forgetLocked(c)
	var slow []*view
	if c.topic != nil {
		slow = r.settleLocked(c, message)
	}
	r.mu.Unlock()
	endSlow(slow)
	if c.topic == nil {
		c.view.deliver(answerFor(message, c.id))
	}
}

func endSlow(views []*view) {
	for _, v := range views {
		v.endSlow()
	}
}

var errUnreadAnswers = errors.New("the server sends requests without reading the answers")

// receiveRequest answers the process: it was told that its client can do nothing,
// and there is no telling which session the request is for.
func (r *run) receiveRequest(message session.Message) {
	id := string(message.Envelope.ID.Of(message.Bytes))
	reply := success(id)
	if string(message.Envelope.Method) != "ping" { // U-01
		r.metrics.RefusedRequests.Inc()
		reply = refusal(id, rpc.CodeMethodNotFound, "this server is shared by clients, none of which can be asked")
	}
	r.mu.Lock()
	flooded := r.QueuedLocked() > 2*r.options.InputBytes
	if !flooded {
		r.PostLocked(reply.Bytes)
	}
	r.mu.Unlock()
	if flooded {
		r.fail(errUnreadAnswers)
	}
}

func (r *run) receiveNotification(message session.Message) {
	switch string(message.Envelope.Method) {
	case progressMethod:
		r.receiveProgress(message)
	case "notifications/message":
		r.metrics.LogMessages.Inc()
	case subscription.MethodUpdated:
		r.receiveUpdate(message)
	default:
		if subscription.ListOf(string(message.Envelope.Method)) >= 0 {
			r.broadcast(message)
			return
		}
		// The message is about a request that the adapter refused, or about one session,
		// and does not say which.
		r.metrics.UnroutedMessages.Inc()
	}
}

func (r *run) receiveProgress(message session.Message) {
	r.mu.Lock()
	c, _, ok := r.FindLocked(message.Bytes, message.Envelope.ProgressToken)
	lost := !ok || c.view == nil || c.view.closed || c.token == "" || c.cancelled
	r.mu.Unlock()
	if lost {
		r.metrics.LateProgress.Inc()
		return
	}
	c.view.deliver(progressFor(message, c.token))
}

// kept is a notification that outlives the process's buffer.
func kept(message session.Message) session.Message {
	return session.Message{
		Bytes:    bytes.Clone(message.Bytes),
		Envelope: rpc.Envelope{Kind: rpc.Notification, Method: bytes.Clone(message.Envelope.Method)},
	}
}

// broadcast tells every session that is initialized.
func (r *run) broadcast(message session.Message) {
	message = kept(message)
	var slow []*view
	r.mu.Lock()
	for v := range r.views {
		if v.ready && v.push(message) {
			slow = append(slow, v)
		}
	}
	r.mu.Unlock()
	endSlow(slow)
}
