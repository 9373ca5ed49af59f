package session

import (
	"slices"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// callLocked is the call in flight that has the id.
func (s *Session) callLocked(id []byte) *call {
	return s.calls[string(rpc.IDKey(id))] // which makes no string
}

// idAndKey returns an id as its sender spells it, and its key. Mostly they are one string.
func idAndKey(raw []byte) (id, key string) {
	id = string(raw)
	if k := rpc.IDKey(raw); string(k) != id {
		return id, string(k)
	}
	return id, id
}

// isLive says whether a call is not cancelled and its stream can still reach the client. A
// call that is not live never is again.
func (c *call) isLive() bool { return !c.cancelled && !c.stream.isDead() }

// newestCallLocked returns the newest live call, and whether it is the only one. It removes
// the calls from s.live that it finds no longer live.
func (s *Session) newestCallLocked() (newest *call, only bool) {
	for i, c := range slices.Backward(s.live) {
		switch {
		case !c.isLive():
			s.live = slices.Delete(s.live, i, i+1)
		case newest != nil:
			return newest, false
		default:
			newest = c
		}
	}
	return newest, newest != nil
}

// removeLocked forgets a call.
func (s *Session) removeLocked(c *call) {
	delete(s.calls, c.key)
	s.live = without(s.live, c)
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
	s.live = without(s.live, c)
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
