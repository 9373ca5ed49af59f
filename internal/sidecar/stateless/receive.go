package stateless

import (
	"net/http"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
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

// callLocked is the call that a value of the process's stands for.
func (r *run) callLocked(message []byte, at rpc.Span) *call {
	c, _, _ := r.FindLocked(message, at)
	return c
}

func (r *run) receiveAnswer(message session.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, number, _ := r.FindLocked(message.Bytes, message.Envelope.ID)
	task := (c == nil || c.tasks) && isTask(message)
	if !task { // else the process works on
		r.working.End(number)
	}
	if c == nil {
		r.metrics.LateAnswers.Inc()
		return
	}
	c.answered = true
	r.forgetLocked(c)
	r.noteAnswerLocked(c, message, task)
	edits := []rpc.Edit{{Span: message.Envelope.ID, With: c.id}}
	if c.listen {
		if at := subscriptionIn(message); at.Present() {
			edits = append(edits, rpc.Edit{Span: at, With: c.id})
		}
	}
	status := statusOf(rpc.ErrorCode(message.Bytes, &message.Envelope))
	c.pushLocked(event{message: rpc.Edited(message.Bytes, edits...), last: true, status: status, failed: rpc.ErrorType(message.Bytes, &message.Envelope, c.tool)})
	if c == r.hub.upstream {
		r.upstreamEndedLocked()
	}
}

// subscriptionIn is where the answer to a listen says whose it is (N-03).
func subscriptionIn(answer session.Message) rpc.Span {
	found, err := rpc.Find(answer.Bytes, answer.Envelope.Result, "_meta")
	if err != nil {
		return rpc.Span{}
	}
	if found, err = rpc.Find(answer.Bytes, found[0], rpc.MetaSubscriptionID); err != nil {
		return rpc.Span{}
	}
	return found[0]
}

// receiveRequest drops what a process of this revision must not send. It gets no
// answer either (S-09).
func (r *run) receiveRequest(message session.Message) {
	r.metrics.RefusedRequests.Inc()
	r.mu.Lock()
	r.requests++
	first := r.requests == 1
	r.mu.Unlock()
	if first {
		r.options.Log.Info("Server made a request, which the stateless revision does not have; it and others are dropped",
			"method", rpc.Clip(message.Envelope.Method))
	}
}

func (r *run) receiveNotification(message session.Message) {
	method := string(message.Envelope.Method)
	if method == subscription.MethodToolsChanged {
		r.tools.outdate()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch method {
	case "notifications/progress":
		r.receiveProgressLocked(message)
	case "notifications/message":
		r.receiveLogLocked(message)
	case rpc.MethodCancelled:
		// Some end a subscription this way (N-05, U-03).
		c := r.callLocked(message.Bytes, message.Envelope.RequestID)
		if c == nil || !c.listen {
			r.metrics.UnroutedMessages.Inc()
			return
		}
		c.answered = true
		r.working.End(c.number)
		r.forgetLocked(c)
		c.completeLocked()
		if c == r.hub.upstream {
			r.upstreamEndedLocked()
		}
	default:
		r.receiveNewsLocked(message)
	}
}

func (r *run) receiveProgressLocked(message session.Message) {
	c := r.callLocked(message.Bytes, message.Envelope.ProgressToken)
	if c == nil || len(c.token) == 0 || c.listen { // N-04
		r.metrics.LateProgress.Inc()
		return
	}
	c.tellLocked(message, rpc.Edit{Span: message.Envelope.ProgressToken, With: c.token})
}

// receiveLogLocked gives a log message to the call that it belongs to (U-07). Processes do
// not say which that is, and serve several principals, so there must be only one call that it
// can be, whether that call's client wants log messages or not. Connections that have a stream
// for each call know.
func (r *run) receiveLogLocked(message session.Message) {
	number := r.working.Only()
	if message.Call != nil {
		number = mux.NumberIn(message.Call, rpc.Span{End: len(message.Call)})
	}
	c := r.CallLocked(number)
	if c == nil || !c.logs {
		r.metrics.LogMessages.Inc()
		return
	}
	c.tellLocked(message)
}

// receiveNewsLocked gives a notification to the subscription that it names (S-11).
func (r *run) receiveNewsLocked(message session.Message) {
	c := r.callLocked(message.Bytes, message.Envelope.SubscriptionID)
	if c == nil || !c.listen {
		r.metrics.UnroutedMessages.Inc()
		return
	}
	r.working.End(c.number) // the process has taken the subscription, and works on it no more
	switch {
	case c != r.hub.upstream:
		c.tellLocked(message, rpc.Edit{Span: message.Envelope.SubscriptionID, With: c.id})
	case !r.hub.newsLocked(message):
		r.metrics.UnroutedMessages.Inc()
	}
}

func (c *call) tellLocked(message session.Message, edits ...rpc.Edit) {
	c.pushLocked(event{message: rpc.Edited(message.Bytes, edits...), status: http.StatusOK})
}
