package formodern

import (
	"strconv"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// receive routes a message of the process's. It never waits for anybody.
func (w *worker) receive(m session.Message) {
	w.server.mu.Lock()
	w.heardLocked()
	w.server.mu.Unlock()
	switch m.Envelope.Kind {
	case rpc.Response:
		w.receiveAnswer(m)
	case rpc.Request:
		w.receiveRequest(m)
	case rpc.Notification:
		w.receiveNotification(m)
	}
}

// numberIn is the number of ours that stands in a message, or 0, which none has.
func numberIn(message []byte, at rpc.Span) uint64 {
	number, err := strconv.ParseUint(string(at.Of(message)), 10, 64)
	if err != nil {
		return 0
	}
	return number
}

func (w *worker) receiveAnswer(m session.Message) {
	s := w.server
	number := numberIn(m.Bytes, m.Envelope.ID)
	s.mu.Lock()
	p := w.pending[number]
	delete(w.pending, number)
	switch {
	case p == nil:
		s.mu.Unlock()
		s.metrics.LateAnswers.Inc()
		return
	case p.own != nil:
		p.late.Stop()
		p.own <- keep(m)
		s.mu.Unlock()
		return
	case p.call.task != nil && !w.taskAnswerLocked(p.call, number, m):
		s.mu.Unlock()
		return
	}
	c := p.call
	s.doneLocked(c)
	id := s.takeLocked(c)
	if id == nil && c.park != nil && !c.cancelled {
		s.holdLocked(c, m)
		s.mu.Unlock()
		return
	}
	if c.park != nil {
		s.forgetParkLocked(c.park)
	}
	s.mu.Unlock()
	if id == nil {
		s.metrics.LateAnswers.Inc()
		return
	}
	s.answer(c, id, m)
}

func (w *worker) receiveNotification(m session.Message) {
	switch method := string(m.Envelope.Method); method {
	case "notifications/progress":
		w.receiveProgress(m)
	case "notifications/message":
		w.receiveLog(m)
	case methodCancelled:
		w.withdraw(m)
	default:
		w.receiveNews(method, m)
	}
}

func (w *worker) receiveProgress(m session.Message) {
	s := w.server
	s.mu.Lock()
	c := w.progress[numberIn(m.Bytes, m.Envelope.ProgressToken)]
	var token []byte
	if c != nil {
		token = c.token
	}
	s.mu.Unlock()
	if token == nil { // parked, or gone
		s.metrics.LateProgress.Inc()
		return
	}
	s.emit(rpc.Edited(m.Bytes, rpc.Edit{Span: m.Envelope.ProgressToken, With: token}))
}
