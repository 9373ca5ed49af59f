package session

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

const progressMethod = "notifications/progress"

// Deliver takes a message of the server's and puts it on the stream it belongs to.
// The message is copied unless it is the session's to keep. Deliver blocks only while
// more waits for the client than the session may hold, which stops this server and no
// other.
func (s *Session) Deliver(message Message) {
	e := &message.Envelope
	if e.Kind == rpc.Request && string(e.Method) == "ping" {
		s.answerPing(message)
		return
	}
	event := Event{Message: message.Bytes, kind: e.Kind}
	if !message.Owned {
		event.Message = bytes.Clone(message.Bytes)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.awaitRoomLocked()
	if s.endedBy != nil {
		return
	}
	switch e.Kind {
	case rpc.Response:
		s.deliverAnswerLocked(message, event)
	case rpc.Request:
		s.deliverRequestLocked(message, event)
	case rpc.Notification:
		s.deliverNoticeLocked(message, event)
	}
}

// awaitRoomLocked waits until there is room for what the server has to say, or the
// session ends. What nobody may ever read makes room first: a client that went away is
// no reason to stop the server.
func (s *Session) awaitRoomLocked() {
	stalled := false
	for s.waiting > s.limits.TotalBytes && s.endedBy == nil {
		if s.abandonLocked() {
			continue
		}
		if !stalled {
			s.metrics.Stalls.Inc()
			stalled = true
		}
		s.room.Wait()
	}
}

func (s *Session) deliverNoticeLocked(message Message, event Event) {
	e := &message.Envelope
	if string(e.Method) == progressMethod {
		token := e.ProgressToken.Of(message.Bytes)
		if c := s.callByTokenLocked(token); c != nil {
			s.enqueueLocked(c.stream, event)
			return
		}
		if !slices.Contains(s.taskTokens, nameKey(token)) {
			s.metrics.UnmatchedProgress.Inc() // U-05: late, or of something that nobody asked for
			return
		}
	}
	if stream := s.streamForLocked(message); stream != nil {
		s.enqueueLocked(stream, event)
	} else {
		s.keepForLaterLocked(event)
	}
}

// answerPing answers in the client's place: a server that checks whether it is
// still connected is connected to us.
func (s *Session) answerPing(message Message) {
	b := append([]byte(`{"jsonrpc":"2.0","id":`), message.Envelope.ID.Of(message.Bytes)...)
	// If the server does not read, it has more to worry about than this answer.
	_ = s.server.Send(context.Background(), nil, append(b, `,"result":{}}`...))
}

func (s *Session) deliverAnswerLocked(message Message, event Event) {
	c := s.callLocked(message.Envelope.ID.Of(message.Bytes))
	if c == nil {
		// Late, after a cancellation or a time-out, or to a question nobody asked.
		s.metrics.UnmatchedAnswers.Inc()
		return
	}
	delete(s.calls, c.key)
	if message.Envelope.Result.Present() {
		s.noteTaskLocked(c)
	}
	c.failed = rpc.ErrorType(message.Bytes, &message.Envelope, c.tool)
	event.call = c
	s.enqueueLocked(c.stream, event)
	s.settledLocked(c.stream)
}

func (s *Session) deliverRequestLocked(message Message, event Event) {
	id := message.Envelope.ID.Of(message.Bytes)
	event.request = nameKey(id)
	if old, ok := s.serverRequests[event.request]; ok {
		old.settle()
	}
	request := &serverRequest{id: string(id), stream: s.streamForLocked(message)}
	s.serverRequests[event.request] = request
	s.placeRequestLocked(request, event)
}

// placeRequestLocked puts a request on its stream or, if it has none, has it wait
// for one for some time.
func (s *Session) placeRequestLocked(request *serverRequest, event Event) {
	if request.stream != nil {
		s.enqueueLocked(request.stream, event)
		return
	}
	s.keepForLaterLocked(event)
	request.expires = time.AfterFunc(s.limits.DeliveryTimeout, func() { s.refuse(event.request, request) })
}

// refuse answers a request of the server's that no client stream came for.
func (s *Session) refuse(key string, request *serverRequest) {
	s.mu.Lock()
	waiting := s.serverRequests[key] == request && request.stream == nil
	if waiting {
		delete(s.serverRequests, key)
		s.backlog = slices.DeleteFunc(s.backlog, func(event Event) bool {
			if event.request == key {
				s.waiting -= len(event.Message)
			}
			return event.request == key
		})
		s.room.Broadcast()
	}
	s.mu.Unlock()
	if waiting {
		_ = s.server.Send(context.Background(), nil, errorResponse(request.id, CodeInternal, "the client has no stream open that could take this request"))
	}
}

func (r *serverRequest) settle() {
	if r.expires != nil {
		r.expires.Stop()
	}
}

// streamForLocked decides where a message goes that answers nothing and is no progress of
// a call. It cannot be told to belong to a call, unless the server says so or there is
// just one; then come general streams, then the newest call.
func (s *Session) streamForLocked(message Message) *Stream {
	e := &message.Envelope
	if e.Kind == rpc.Notification && string(e.Method) == "notifications/cancelled" {
		if r := s.serverRequests[nameKey(e.RequestID.Of(message.Bytes))]; r != nil && r.stream != nil {
			return r.stream
		}
	}
	if c := s.callLocked(message.Call); c != nil && c.isLive() {
		return c.stream
	}
	newest, live := s.newestCallLocked()
	if live == 1 && message.Call == nil && !message.Unrelated {
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

// isLive says whether a call is not cancelled and its stream can still reach the client.
func (c *call) isLive() bool { return !c.cancelled && (c.stream.attached || c.stream.resumable) }

// newestCallLocked returns the newest call that is live, and how many are.
func (s *Session) newestCallLocked() (newest *call, live int) {
	for _, c := range s.calls {
		if !c.isLive() {
			continue
		}
		live++
		if newest == nil || c.order > newest.order {
			newest = c
		}
	}
	return newest, live
}

func (s *Session) newestGeneralLocked() (newest *Stream) {
	for _, stream := range s.streams {
		if stream.general && stream.attached && (newest == nil || stream.number > newest.number) {
			newest = stream
		}
	}
	return newest
}

// enqueueLocked puts an event on a stream. Answers and requests always get there;
// notifications that a slow reader lets pile up make room for newer ones.
func (s *Session) enqueueLocked(stream *Stream, event Event) {
	if event.kind == rpc.Notification {
		for stream.notices+len(event.Message) > s.limits.PendingBytes {
			if !s.dropOldestNoticeLocked(stream) {
				s.metrics.DroppedNotifications.Inc()
				return
			}
		}
		stream.notices += len(event.Message)
	}
	s.waiting += len(event.Message)
	stream.pending = append(stream.pending, event)
	stream.wake()
}

func (s *Session) dropOldestNoticeLocked(stream *Stream) bool {
	for i, event := range stream.pending {
		if event.kind == rpc.Notification {
			if i == 0 { // nearly always, and there may be very many behind it
				stream.pending[0] = Event{}
				stream.pending = stream.pending[1:]
			} else {
				stream.pending = slices.Delete(stream.pending, i, i+1)
			}
			stream.notices -= len(event.Message)
			s.waiting -= len(event.Message)
			s.metrics.DroppedNotifications.Inc()
			return true
		}
	}
	return false
}

// keepForLaterLocked keeps an event for the next general stream. Notifications make
// room for newer ones; requests stay until they are taken or refused.
func (s *Session) keepForLaterLocked(event Event) {
	notices := 0
	for _, kept := range s.backlog {
		if kept.kind == rpc.Notification {
			notices += len(kept.Message)
		}
	}
	if event.kind == rpc.Notification {
		s.backlog = slices.DeleteFunc(s.backlog, func(kept Event) bool {
			drop := kept.kind == rpc.Notification && notices+len(event.Message) > s.limits.PendingBytes
			if drop {
				notices -= len(kept.Message)
				s.waiting -= len(kept.Message)
				s.metrics.DroppedNotifications.Inc()
			}
			return drop
		})
	}
	s.waiting += len(event.Message)
	s.backlog = append(s.backlog, event)
}
