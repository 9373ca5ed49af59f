package session

import (
	"context"
	"fmt"
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

// Call sends requests to the server. It returns the stream for their answers, and for other
// messages that belong to them. Several requests are a batch.
func (s *Session) Call(ctx context.Context, requests ...Message) (*Stream, error) {
	return s.call(ctx, nil, requests)
}

// CallOn is Call for clients with one stream for all messages. The answers arrive on that
// stream, in the order in which the server sends them.
func (s *Session) CallOn(ctx context.Context, general *Stream, requests ...Message) error {
	_, err := s.call(ctx, general, requests)
	return err
}

func (s *Session) call(ctx context.Context, on *Stream, requests []Message) (*Stream, error) {
	stream, err := s.register(on, requests)
	if err != nil {
		return nil, err
	}
	for i := range requests {
		if err := s.send(ctx, &requests[i]); err != nil {
			return s.notSent(stream, requests, i, err)
		}
	}
	return stream, nil
}

// notSent handles an error of sending a batch, after the server got so many of its requests.
// If the server got none, the client gets the error and may send the batch again. Otherwise
// the client gets the answers to those requests, and errors in place of the others.
func (s *Session) notSent(stream *Stream, requests []Message, sent int, err error) (*Stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.callLocked(requests[sent].Envelope.ID.Of(requests[sent].Bytes)); c != nil && c.stream == stream.stream {
		s.strayLocked(c) // the server may have got it
	}
	if sent == 0 {
		s.forgetLocked(stream.stream, requests)
		return nil, fmt.Errorf("send request to server: %w", err)
	}
	for _, request := range requests[sent:] {
		if c := s.callLocked(request.Envelope.ID.Of(request.Bytes)); c != nil && c.stream == stream.stream {
			s.answerLocked(c, rpc.CodeInternal, "the request did not reach the server: "+err.Error(), rpc.ErrorTypeOf(rpc.CodeInternal))
		}
	}
	return stream, nil
}

func (s *Session) register(on *Stream, requests []Message) (*Stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endedBy != nil {
		return nil, ErrEnded
	}
	if len(s.calls)+len(requests) > s.limits.Calls {
		return nil, ErrTooManyCalls
	}
	stream := on
	if stream == nil {
		stream = s.newStreamLocked()
		s.attached++
	}
	s.touched = time.Now()
	for i := range requests {
		request := &requests[i]
		id := request.Envelope.ID.Of(request.Bytes)
		if err := s.checkNamesLocked(request, id); err != nil {
			s.forgetLocked(stream.stream, requests[:i])
			return nil, err
		}
		c := &stream.first
		if c.stream != nil { // taken
			c = new(call)
		}
		c.id, c.key = idAndKey(id)
		c.token, c.task, c.stream, c.since = tokenKey(request), asksForTask(request), stream.stream, s.touched
		c.tag, c.tool = request.Tag, string(request.Envelope.Method) == rpc.MethodCallTool
		c.opens = string(request.Envelope.Method) == rpc.MethodInitialize
		s.fromLocked(request)
		c.filter = newFilter(request.From, request.Envelope.Method)
		s.useLocked(request.Envelope.Method)
		s.calls[c.key] = c
		s.live = append(s.live, c)
		stream.awaits++
	}
	s.requests += uint64(len(requests))
	if s.limits.CommitAfter > 0 {
		s.lookAtLocked(s.touched.Add(s.limits.CommitAfter))
	}
	return stream, nil
}

// nameBytes bounds what a session keeps of a call: its id, and its progress token, which a
// session keeps for as long as it lasts if the call becomes a task.
const nameBytes = 8 << 10

// checkNamesLocked says why a request cannot be in flight with this id and its progress token.
func (s *Session) checkNamesLocked(request *Message, id []byte) error {
	switch {
	case len(id) > nameBytes || len(request.Envelope.ProgressToken.Of(request.Bytes)) > nameBytes:
		return ErrLongName
	case s.callLocked(id) != nil:
		return ErrDuplicateID
	default:
		return nil
	}
}

// forgetLocked removes calls that the server did not get, and their stream unless it is a
// general stream.
func (s *Session) forgetLocked(stream *stream, requests []Message) {
	for _, request := range requests {
		if c := s.callLocked(request.Envelope.ID.Of(request.Bytes)); c != nil && c.stream == stream {
			s.removeLocked(c)
			stream.awaits--
		}
	}
	if !stream.general {
		s.detachLocked(stream)
		s.rerouteRequestsLocked(stream)
		s.dropLocked(stream)
	}
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
