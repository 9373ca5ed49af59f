package tomodern

import (
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// receive routes a message of the process. It never waits for a client or a process.
func (p *process) receive(m session.Message) {
	switch m.Envelope.Kind {
	case rpc.Response:
		p.receiveAnswer(m)
	case rpc.Request:
		p.receiveRequest(m)
	case rpc.Notification:
		p.receiveNotification(m)
	}
}

func (p *process) receiveAnswer(m session.Message) {
	if c, to := p.answered(m); to != nil {
		p.server.answer(c, to, m)
	}
}

// answered ends the call that a message answers. It returns the recipient that waits for the
// answer, or nil.
func (p *process) answered(m session.Message) (*call, sessionless.Recipient) {
	s := p.server
	s.mu.Lock()
	defer s.mu.Unlock()
	c, number, ok := p.TakeLocked(m)
	switch {
	case !ok:
		if _, begun := readTask(m, true); !begun { // or else the process still works on it
			p.working.End(number)
		}
		s.metrics.LateAnswers.Inc()
		return nil, nil
	case c.task != nil && !p.taskAnswerLocked(c, number, m):
		return nil, nil
	}
	p.working.End(c.first)
	s.doneLocked(c)
	to := s.takeLocked(c)
	switch {
	case to == nil && c.parked != nil && !c.cancelled:
		s.keepLocked(c, m)
		return nil, nil
	case c.parked != nil:
		s.forgetLocked(c.parked)
	}
	if to == nil {
		s.metrics.LateAnswers.Inc()
	}
	return c, to
}

func (p *process) receiveNotification(m session.Message) {
	switch method := string(m.Envelope.Method); method {
	case "notifications/progress":
		p.receiveProgress(m)
	case "notifications/message":
		p.receiveLog(m)
	case rpc.MethodCancelled:
		p.receiveCancelled(m)
	default:
		p.receiveChange(method, m)
	}
}

func (p *process) receiveProgress(m session.Message) {
	s := p.server
	s.mu.Lock()
	c := p.calls[mux.NumberIn(m.Bytes, m.Envelope.ProgressToken)]
	var to sessionless.Recipient
	if c != nil {
		to = c.to
	}
	s.mu.Unlock()
	if to == nil || len(to.Token()) == 0 { // no client waits, or it wants no progress
		s.metrics.LateProgress.Inc()
		return
	}
	to.Notify(rpc.Edited(m.Bytes, rpc.Edit{Span: m.Envelope.ProgressToken, With: to.Token()}))
}
