package tomodern

import (
	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/server/sessionless"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// receive routes a message of the process's. It never waits for anybody.
func (w *worker) receive(m session.Message) {
	switch m.Envelope.Kind {
	case rpc.Response:
		w.receiveAnswer(m)
	case rpc.Request:
		w.receiveRequest(m)
	case rpc.Notification:
		w.receiveNotification(m)
	}
}

func (w *worker) receiveAnswer(m session.Message) {
	s := w.server
	s.mu.Lock()
	c, number, ok := w.TakeLocked(m)
	switch {
	case !ok:
		if _, begun := readTask(m, true); !begun { // else the process works on
			w.working.End(number)
		}
		s.mu.Unlock()
		s.metrics.LateAnswers.Inc()
		return
	case c.task != nil && !w.taskAnswerLocked(c, number, m):
		s.mu.Unlock()
		return
	}
	w.working.End(c.first)
	s.doneLocked(c)
	to := s.takeLocked(c)
	if to == nil && c.park != nil && !c.cancelled {
		s.holdLocked(c, m)
		s.mu.Unlock()
		return
	}
	if c.park != nil {
		s.forgetParkLocked(c.park)
	}
	s.mu.Unlock()
	if to == nil {
		s.metrics.LateAnswers.Inc()
		return
	}
	s.answer(c, to, m)
}

func (w *worker) receiveNotification(m session.Message) {
	switch method := string(m.Envelope.Method); method {
	case "notifications/progress":
		w.receiveProgress(m)
	case "notifications/message":
		w.receiveLog(m)
	case rpc.MethodCancelled:
		w.withdraw(m)
	default:
		w.receiveNews(method, m)
	}
}

func (w *worker) receiveProgress(m session.Message) {
	s := w.server
	s.mu.Lock()
	c := w.progress[mux.NumberIn(m.Bytes, m.Envelope.ProgressToken)]
	var to sessionless.Recipient
	if c != nil {
		to = c.to
	}
	s.mu.Unlock()
	if to == nil || len(to.Token()) == 0 { // parked, or gone
		s.metrics.LateProgress.Inc()
		return
	}
	to.Notify(rpc.Edited(m.Bytes, rpc.Edit{Span: m.Envelope.ProgressToken, With: to.Token()}))
}
