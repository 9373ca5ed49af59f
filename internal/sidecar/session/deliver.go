package session

import (
	"bytes"
	"slices"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

const progressMethod = "notifications/progress"

// Deliver puts a message of the server on the stream that it belongs to. It copies the
// message unless the message is Owned. Deliver blocks while more waits for the client than
// the session may hold. That stops only the server of this session.
func (s *Session) Deliver(message Message) {
	e := &message.Envelope
	s.mu.Lock()
	defer s.mu.Unlock()
	var answered *call
	switch {
	case e.Kind == rpc.Request && string(e.Method) == "ping":
		// A server that checks its connection asks about the connection to the adapter.
		if s.endedBy == nil {
			s.replyLocked(string(e.ID.Of(message.Bytes)), pong)
		}
		message.GiveRoom()
		return
	case e.Kind == rpc.Response:
		// A call that the client makes while the answer waits cannot be the one that it answers.
		if answered = s.answeredLocked(&message); answered == nil {
			return
		}
	}
	if !s.hearsOfLocked(e) || !s.admitLocked(&message, answered) {
		message.GiveRoom()
		return
	}
	defer s.unpaidLocked()
	event := Event{Message: message.Bytes, kind: e.Kind}
	if !message.Owned {
		event.Message = bytes.Clone(message.Bytes)
	}
	switch e.Kind {
	case rpc.Response:
		s.deliverAnswerLocked(answered, message, event)
	case rpc.Request:
		s.deliverRequestLocked(message, event)
	case rpc.Notification:
		s.deliverNoticeLocked(message, event)
	}
}

// answeredLocked returns the call that a message answers, or nil if the answer comes after a time-out, or the
// client sent no such request.
func (s *Session) answeredLocked(message *Message) *call {
	c := s.callLocked(message.Envelope.ID.Of(message.Bytes))
	if c == nil {
		s.metrics.UnmatchedAnswers.Inc()
		message.GiveRoom()
	}
	return c
}

// admitLocked takes room for a message of the server, with what the client may see of it. The call is the one that
// the message answers, or nil. It returns false if the session ends.
func (s *Session) admitLocked(message *Message, answered *call) bool {
	for {
		filter := s.filterLocked(message, answered)
		event := Event{Message: message.Bytes, kind: message.Envelope.Kind}
		if !s.takeRoomLocked(event.cost(), message) {
			return false
		}
		if !filter.isOutdated() {
			return true
		}
		s.unpaidLocked() // the rules have changed while the message waited
	}
}

// takeRoomLocked takes room for an event of the server. It waits until there is room, and
// returns false if the session ends. Before it waits, it gives up events that the client may
// never read: a client that went away must not stop the server.
func (s *Session) takeRoomLocked(cost int, message *Message) bool {
	stalled := false
	for s.endedBy == nil {
		fits := message.Charged || s.account.Fits(cost)
		if fits && s.waiting <= s.limits.TotalBytes {
			if s.payLocked(cost, message) {
				return true
			}
			continue // another holder was faster
		}
		if s.makeRoomLocked(fits) {
			continue
		}
		if !stalled {
			s.metrics.Stalls.Inc()
			stalled = true
		}
		if !fits {
			s.account.Press()
		}
		s.room.Wait()
	}
	return false
}

// makeRoomLocked gives up one thing that the session holds, or has the session look again when
// the budget has room. It reports whether takeRoomLocked should try again. fits says that only
// the limit of this session is exceeded.
func (s *Session) makeRoomLocked(fits bool) bool {
	switch {
	case fits:
		return s.abandonLocked()
	case s.giveUpLocked():
	case !s.listening:
		s.listenLocked()
	default:
		return false
	}
	return true
}

// giveUpLocked gives up one thing that a client may come back for: a sent event, or else what
// abandonLocked finds. It returns false if there is none.
func (s *Session) giveUpLocked() bool {
	if s.replay.bytes > 0 {
		s.evictLocked()
		return true
	}
	return s.abandonLocked()
}

// payLocked charges the account for the event that addLocked adds next. It returns false if
// another holder has taken the room.
func (s *Session) payLocked(cost int, message *Message) bool {
	if message.Charged {
		s.account.TakeOver(cost, message.Room, len(message.Bytes))
	} else if !s.account.Take(cost) {
		return false
	}
	s.paid = cost
	return true
}

// unpaidLocked gives back the room of an event that addLocked did not add.
func (s *Session) unpaidLocked() {
	s.account.Change(-s.paid)
	s.paid = 0
}

// listenLocked wakes takeRoomLocked once the budget that all sessions share has more room.
func (s *Session) listenLocked() {
	s.listening = true
	freed := s.limits.Memory.Freed()
	go func() {
		s.limits.Memory.Await(freed, s.ended)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.listening = false
		s.room.Broadcast()
	}()
}

func (s *Session) deliverNoticeLocked(message Message, event Event) {
	e := &message.Envelope
	if string(e.Method) == progressMethod {
		token := e.ProgressToken.Of(message.Bytes)
		if c := s.callByTokenLocked(token); c != nil && !c.over {
			s.enqueueLocked(c.stream, event)
			return
		}
		if !slices.Contains(s.taskTokens, string(rpc.IDKey(token))) {
			s.metrics.UnmatchedProgress.Inc() // U-05: it comes late, or the client asked for none
			return
		}
	}
	if stream := s.streamForLocked(message); stream != nil {
		s.enqueueLocked(stream, event)
	} else {
		s.addLocked(&s.backlog, event)
	}
	if request := s.cancelledRequestLocked(message); request != nil {
		s.forgetRequestLocked(request) // the client need not answer it
	}
}

// cancelledRequestLocked returns the request of the server that the server cancels with the
// message, or nil.
func (s *Session) cancelledRequestLocked(message Message) *serverRequest {
	e := &message.Envelope
	if e.Kind != rpc.Notification || string(e.Method) != rpc.MethodCancelled {
		return nil
	}
	return s.serverRequests[string(rpc.IDKey(e.RequestID.Of(message.Bytes)))]
}

func (s *Session) deliverAnswerLocked(c *call, message Message, event Event) {
	if s.calls[c.key] != c { // the call has timed out while the answer waited
		s.metrics.UnmatchedAnswers.Inc()
		return
	}
	s.removeLocked(c)
	if c.over {
		return // the client has cancelled the call
	}
	if message.Envelope.Result.Present() {
		s.noteTaskLocked(c)
	}
	if c.opens {
		s.noteInitializeLocked(event.Message)
	}
	c.failed = rpc.ErrorType(message.Bytes, &message.Envelope, c.tool)
	event.call = c
	s.enqueueLocked(c.stream, event)
	s.settledLocked(c.stream)
}

// streamForLocked returns the stream for a message of the server that is neither an answer nor
// progress of a call, or nil. It prefers the stream of the call that the server names, then
// that of the only call in flight, then a general stream, and then that of the newest call.
func (s *Session) streamForLocked(message Message) *stream {
	if r := s.cancelledRequestLocked(message); r != nil && r.stream.takesMore() {
		return r.stream
	}
	if c := s.callLocked(message.Call); c != nil && c.isLive() {
		return c.stream
	}
	newest, only := s.newestCallLocked()
	if only && message.Call == nil && !message.Unrelated {
		return newest.stream
	}
	if general := s.newestGeneralLocked(); general != nil {
		return general
	}
	if newest != nil {
		return newest.stream
	}
	return nil
}

// newestGeneralLocked returns the newest general stream that a client reads, or nil.
func (s *Session) newestGeneralLocked() *stream {
	if len(s.generals) == 0 {
		return nil
	}
	return s.generals[len(s.generals)-1]
}

// enqueueLocked puts an event on a stream, unless no client can read the stream again.
func (s *Session) enqueueLocked(on *stream, event Event) {
	if on.isDead() {
		if event.kind == rpc.Notification {
			s.metrics.DroppedNotifications.Inc()
		}
		return
	}
	s.addLocked(&on.pending, event)
	on.wake()
}
