package sessionless

import (
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

// receive routes a message of the process. It never waits for a client.
func (p *process) receive(message session.Message) {
	switch message.Envelope.Kind {
	case rpc.Response:
		p.receiveAnswer(message)
	case rpc.Request:
		p.receiveRequest(message)
	case rpc.Notification:
		p.receiveNotification(message)
	}
}

func (p *process) receiveAnswer(message session.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, number, _ := p.FindLocked(message.Bytes, message.Envelope.ID)
	task := (c == nil || c.tasks) && isTask(message)
	if !task { // else the process works on
		p.working.End(number)
	}
	if c == nil {
		p.metrics.LateAnswers.Inc()
		return
	}
	c.answered = true
	p.forgetLocked(c)
	p.recordStartedLocked(c, message, task)
	edits := []rpc.Edit{{Span: message.Envelope.ID, With: c.id}}
	if c.listen {
		if at := subscriptionIn(message); at.Present() {
			edits = append(edits, rpc.Edit{Span: at, With: c.id})
		}
	}
	c.pushLocked(Event{
		Message: rpc.Edited(message.Bytes, edits...), Last: true,
		Code: rpc.ErrorCode(message.Bytes, &message.Envelope), Failed: rpc.ErrorType(message.Bytes, &message.Envelope, c.tool),
	})
	if c == p.subscriptions.upstream {
		p.upstreamEndedLocked()
	}
}

// subscriptionIn is where the answer to a subscription names it (N-03).
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

// receiveRequest drops a request, which a process of this revision must not make. The
// process gets no answer either (S-09).
func (p *process) receiveRequest(message session.Message) {
	p.metrics.RefusedRequests.Inc()
	p.requested.Do(func() {
		p.options.Log.Info("Server made a request, which the stateless revision does not have; it and others are dropped",
			"method", rpc.Clip(message.Envelope.Method))
	})
}

func (p *process) receiveNotification(message session.Message) {
	method := string(message.Envelope.Method)
	if method == subscription.MethodToolsChanged {
		p.tools.each((*toolList).Outdate)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch method {
	case "notifications/progress":
		p.receiveProgressLocked(message)
	case "notifications/message":
		p.receiveLogLocked(message)
	case rpc.MethodCancelled:
		p.receiveCancellationLocked(message)
	default:
		p.receiveChangeLocked(message)
	}
}

// receiveCancellationLocked ends a subscription: some servers end theirs this way (N-05, U-03).
func (p *process) receiveCancellationLocked(message session.Message) {
	c, _, _ := p.FindLocked(message.Bytes, message.Envelope.RequestID)
	if c == nil || !c.listen {
		p.metrics.UnroutedMessages.Inc()
		return
	}
	c.answered = true
	p.working.End(c.number)
	p.forgetLocked(c)
	c.completeLocked()
	if c == p.subscriptions.upstream {
		p.upstreamEndedLocked()
	}
}

func (p *process) receiveProgressLocked(message session.Message) {
	c, _, _ := p.FindLocked(message.Bytes, message.Envelope.ProgressToken)
	if c == nil || len(c.token) == 0 || c.listen { // N-04
		p.metrics.LateProgress.Inc()
		return
	}
	c.passLocked(message, rpc.Edit{Span: message.Envelope.ProgressToken, With: c.token})
}

// receiveLogLocked gives a log message to the call that it belongs to (U-07). A process does
// not say which that is, and may serve several clients, so there must be only one call that
// it can be, whether that call's client wants log messages or not. A connection that has a
// stream for each call names the call.
func (p *process) receiveLogLocked(message session.Message) {
	number := p.working.Only()
	if message.Call != nil {
		number = mux.NumberIn(message.Call, rpc.Span{End: len(message.Call)})
	}
	c := p.CallLocked(number)
	if c == nil || !c.logs {
		p.metrics.LogMessages.Inc()
		return
	}
	c.passLocked(message)
}

// receiveChangeLocked gives a notification to the subscription that it names (S-11).
func (p *process) receiveChangeLocked(message session.Message) {
	c, _, _ := p.FindLocked(message.Bytes, message.Envelope.SubscriptionID)
	if c == nil || !c.listen {
		p.metrics.UnroutedMessages.Inc()
		return
	}
	p.working.End(c.number) // the process has taken the subscription, and works on it no more
	switch {
	case c != p.subscriptions.upstream:
		c.passLocked(message, rpc.Edit{Span: message.Envelope.SubscriptionID, With: c.id})
		c.noteLocked(message.Bytes)
	case !p.subscriptions.notifyLocked(message):
		p.metrics.UnroutedMessages.Inc()
	}
}
