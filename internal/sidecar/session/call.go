package session

import (
	"slices"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// call is a request of the client that the server has not answered yet.
type call struct {
	id        string // as the client spelled it
	key       string // of the id
	token     string // key of its progress token
	tag       any    // Message.Tag
	failed    string // how it failed, once it has an answer
	stream    *stream
	filter    *filter   // of the answer; nil if the client may see all of it
	since     time.Time // when the client sent it, or cancelled it
	task      bool      // it asks for a task
	tool      bool      // it calls a tool
	opens     bool      // it is initialize
	cancelled bool
	over      bool // the client expects nothing more; the id is kept for a late answer
}

// callLocked returns the call in flight with the id, or nil.
func (s *Session) callLocked(id []byte) *call {
	return s.calls[string(rpc.IDKey(id))] // this conversion does not allocate
}

// idAndKey returns an id as its sender spells it, and its key. Mostly they are one string.
func idAndKey(raw []byte) (id, key string) {
	id = string(raw)
	if k := rpc.IDKey(raw); string(k) != id {
		return id, string(k)
	}
	return id, id
}

// isLive reports whether the client has not cancelled the call, and can still read its stream.
// A call that is no longer live never becomes live again.
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

// removeLocked removes a call: an answer to it no longer finds it.
func (s *Session) removeLocked(c *call) {
	delete(s.calls, c.key)
	s.live = without(s.live, c)
}

// answerLocked has the adapter answer a call with an error, in place of the server. failed is
// the result of Event.Failed.
func (s *Session) answerLocked(c *call, code int, text, failed string) {
	s.removeLocked(c)
	c.failed = failed
	s.enqueueLocked(c.stream, Event{Message: rpc.AppendError(nil, []byte(c.id), code, text, nil), call: c, kind: rpc.Response})
	s.settledLocked(c.stream)
}

// cancelLocked records that the client has cancelled a call. The server may never answer it,
// so it no longer receives messages that name no call. The client expects nothing more, so
// the stream of the call ends without an answer. The call keeps its id for some time, so that
// a late answer does not go to a newer call with the same id.
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

// settledLocked records that one more call of the stream has ended. The last one ends the
// stream.
func (s *Session) settledLocked(stream *stream) {
	if stream.reader == nil { // no client reads it, so the idle time of the session begins now
		s.touched = time.Now()
	}
	if stream.awaits--; stream.awaits <= 0 && !stream.general {
		stream.finished = true
		stream.wake()
		if stream.isDead() {
			s.dropLocked(stream) // the client has gone and cannot resume the stream
		}
	}
}
