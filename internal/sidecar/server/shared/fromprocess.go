package shared

import (
	"errors"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// receive routes a message of the child process. It never waits for a client.
func (i *instance) receive(message session.Message) {
	switch message.Envelope.Kind {
	case rpc.Response:
		i.receiveAnswer(message)
	case rpc.Request:
		i.receiveRequest(message)
	case rpc.Notification:
		i.receiveNotification(message)
	}
}

func (i *instance) receiveAnswer(message session.Message) {
	i.mu.Lock()
	c, _, ok := i.TakeLocked(message)
	if ok {
		i.forgetLocked(c)
		if c.topic != nil {
			i.settleLocked(c, message)
		}
	}
	i.mu.Unlock()
	switch {
	case !ok:
		i.metrics.LateAnswers.Inc()
	case c.topic == nil:
		c.view.push(answerFor(message, c.id))
	}
}

var errUnreadAnswers = errors.New("the server sends requests without reading the answers")

// receiveRequest answers a request of the child process. The adapter initializes the process
// without capabilities of a client, and cannot tell which session a request is for.
func (i *instance) receiveRequest(message session.Message) {
	id := string(message.Envelope.ID.Of(message.Bytes))
	reply := success(id)
	if string(message.Envelope.Method) != "ping" { // U-01
		i.metrics.RefusedRequests.Inc()
		reply = refusal(id, rpc.CodeMethodNotFound, "this server is shared by clients, none of which can be asked")
	}
	i.mu.Lock()
	flooded := i.QueuedLocked() > 2*i.options.InputBytes
	if !flooded {
		i.PostLocked(reply.Bytes)
	}
	i.mu.Unlock()
	if flooded {
		i.fail(errUnreadAnswers)
	}
}

func (i *instance) receiveNotification(message session.Message) {
	switch method := string(message.Envelope.Method); {
	case method == progressMethod:
		i.receiveProgress(message)
	case method == "notifications/message":
		i.metrics.LogMessages.Inc()
	case method == subscription.MethodUpdated:
		i.receiveUpdate(message)
	case subscription.ListOf(method) >= 0:
		i.broadcast(message)
	default:
		// The message is about one session, and does not say which.
		i.metrics.UnroutedMessages.Inc()
	}
}

func (i *instance) receiveProgress(message session.Message) {
	i.mu.Lock()
	c, _, ok := i.FindLocked(message.Bytes, message.Envelope.ProgressToken)
	late := !ok || c.view == nil || c.view.closed || c.token == "" || c.cancelled
	i.mu.Unlock()
	if late {
		i.metrics.LateProgress.Inc()
		return
	}
	c.view.push(progressFor(message, c.token))
}

// broadcast sends a notification to every initialized session.
func (i *instance) broadcast(message session.Message) {
	message = mux.Keep(message)
	i.mu.Lock()
	defer i.mu.Unlock()
	for v := range i.views {
		if v.ready.Load() {
			v.push(message)
		}
	}
}
