package session

import (
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// callLocked is the call in flight that has the id.
func (s *Session) callLocked(id []byte) *call {
	return s.calls[string(rpc.IDKey(id))] // which makes no string
}

// isLive says whether a call is not cancelled and its stream can still reach the client. A
// call that is not live never is again.
func (c *call) isLive() bool { return !c.cancelled && !c.stream.isDead() }

func (s *Session) linkLocked(c *call) {
	c.older = s.newest
	if c.older != nil {
		c.older.newer = c
	}
	s.newest = c
}

func (s *Session) unlinkLocked(c *call) {
	switch {
	case c.newer != nil:
		c.newer.older = c.older
	case s.newest == c:
		s.newest = c.older
	default:
		return // it is not linked
	}
	if c.older != nil {
		c.older.newer = c.newer
	}
	c.older, c.newer = nil, nil
}

// newestCallLocked returns the newest call that is live, and whether it is the only one.
// Calls that it finds are not live are not looked at again.
func (s *Session) newestCallLocked() (newest *call, only bool) {
	for c := s.newest; c != nil; {
		older := c.older
		switch {
		case !c.isLive():
			s.unlinkLocked(c)
		case newest != nil:
			return newest, false
		default:
			newest = c
		}
		c = older
	}
	return newest, newest != nil
}

// removeLocked forgets a call.
func (s *Session) removeLocked(c *call) {
	delete(s.calls, c.key)
	s.unlinkLocked(c)
}

// answerLocked answers a call in the server's place.
func (s *Session) answerLocked(c *call, code int, text, failed string) {
	s.removeLocked(c)
	c.failed = failed
	s.enqueueLocked(c.stream, Event{Message: rpc.AppendError(nil, []byte(c.id), code, text, nil), call: c, kind: rpc.Response})
	s.settledLocked(c.stream)
}

// cancelLocked notes that the client has cancelled a call. A cancelled call is rightly
// never answered, so it must not go on attracting what cannot be told to belong elsewhere.
// Its client expects nothing more of it, so its stream ends without an answer. The call
// stays for some time, so that a late answer finds it and not another call with its id.
func (s *Session) cancelLocked(c *call) {
	c.cancelled, c.since = true, time.Now()
	if s.AnswerCancelled {
		return
	}
	stream := c.stream
	c.over, c.failed = true, FailedCancelled
	s.unlinkLocked(c)
	if !stream.general && stream.awaits == 1 { // nothing follows
		stream.cancelled = true
		s.rerouteRequestsLocked(stream)
		for stream.notices.len() > 0 {
			event := stream.nextNotice()
			s.waitLocked(-event.cost())
		}
		s.room.Broadcast()
	}
	if stream.reader != nil && (c.tag != nil || !stream.general) {
		s.enqueueLocked(stream, Event{call: c, kind: rpc.Response})
	}
	s.settledLocked(stream)
	s.retireLocked(stream)
}

// dueLocked is when a call has had its time.
func (s *Session) dueLocked(c *call) time.Time {
	if c.cancelled {
		return c.since.Add(s.limits.CancelGrace)
	}
	return c.since.Add(s.limits.CallTimeout)
}

// settledLocked notes that one more call of the stream is over.
func (s *Session) settledLocked(stream *stream) {
	if stream.reader == nil { // a client may come back for it, from now on
		s.touched = time.Now()
	}
	if stream.awaits--; stream.awaits <= 0 && !stream.general {
		stream.finished = true
		stream.wake()
		if stream.isDead() {
			s.dropLocked(stream) // the reader went away and cannot come back for it
		}
	}
}
