package session

import (
	"errors"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
)

// Done returns a channel that is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.ended }

// End ends the session and its server. The adapter answers calls in flight with the reason.
// A stream ends once its client has read all of it.
func (s *Session) End(reason error) {
	s.endIf(reason, func() bool { return true })
}

// Yield ends the session for a new one. It returns false and does nothing if the client has
// used the session since the given time, or uses it now.
func (s *Session) Yield(since time.Time) bool {
	return s.endIf(ErrYielded, func() bool { return s.idleLocked() && s.touched.Equal(since) })
}

// ErrSlow ends a session whose client does not read, while other sessions need the memory.
var ErrSlow = errors.New("the client does not read what it is sent, and the adapter needs the memory for others")

// giveWay frees memory for other sessions. First it gives up events that the client may come
// back for, and notifications that wait for a stream. Then it ends a session whose client does
// not read. If the session has ended already, readers stop writing large events.
func (s *Session) giveWay() {
	s.mu.Lock()
	s.dropNoticesLocked(&s.backlog, 0)
	for more := true; more; {
		more = s.giveUpLocked()
	}
	s.room.Broadcast()
	s.mu.Unlock()
	if s.endIf(ErrSlow, s.slowLocked) {
		s.metrics.SlowClients.Inc()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endedBy == nil || !errors.Is(s.endedBy, ErrSlow) && !s.slowLocked() {
		return
	}
	for _, stream := range s.streams {
		s.dropNoticesLocked(&stream.pending, 0)
		stream.sure.deleteFunc(func(event Event) bool {
			large := len(event.Message) > budget.SlowBytes // small events tell the client why the session ended
			if large {
				s.waitLocked(-event.cost())
			}
			return large
		})
		stream.wake()
	}
	for _, interrupt := range s.writing {
		interrupt()
	}
}

func (s *Session) slowLocked() bool { return s.pressed.Slow(s.waiting, s.takes) }

// endIf ends the session if the condition holds, and reports whether it did. It checks the
// condition with the session's lock held.
func (s *Session) endIf(reason error, holds func() bool) bool {
	s.mu.Lock()
	if s.endedBy != nil || !holds() {
		s.mu.Unlock()
		return false
	}
	s.endedBy = reason
	for _, c := range s.calls {
		if !c.over {
			s.answerLocked(c, rpc.CodeInternal, reason.Error(), rpc.ErrorTypeOf(rpc.CodeInternal))
		}
	}
	clear(s.serverRequests)
	s.account.Change(-s.requestBytes)
	s.requestBytes = 0
	s.clearLocked(&s.backlog)
	for s.replay.bytes > 0 { // the client cannot resume a stream
		s.evictLocked()
	}
	for _, stream := range s.streams {
		stream.finished = true
		if stream.reader == nil {
			s.clearLocked(&stream.pending)
		}
		stream.wake()
	}
	if s.timer != nil {
		s.timer.Stop()
	}
	close(s.ended)
	s.room.Broadcast()
	hooks := s.onEnd
	s.mu.Unlock()
	s.server.Close()
	for _, hook := range hooks {
		hook()
	}
	return true
}
