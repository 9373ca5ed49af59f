package session

import (
	"cmp"
	"slices"
	"time"
)

// Resume continues a stream after the event with the id. A general stream also takes what came while it had no reader. If
// the stream has a reader, the new one replaces it: the client that comes back has lost its connection, even if the adapter
// has not noticed yet, and no other client knows the session.
func (s *Session) Resume(lastEventID string) (*Stream, error) {
	number, seq, ok := parseEventID(lastEventID)
	if !ok {
		return nil, ErrUnknownEvent
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endedBy != nil {
		return nil, ErrEnded
	}
	stream, missed, err := s.afterLocked(number, seq)
	if err != nil {
		return nil, err
	}
	s.replaceLocked(stream)
	stream.repeats = missed
	for i := range missed {
		s.waitLocked(missed[i].cost())
	}
	reader := &Stream{stream: stream, ready: make(chan struct{}, 1)}
	s.attachLocked(reader)
	if stream.general && !stream.finished {
		s.takeBacklogLocked(stream)
	}
	if len(stream.repeats) > 0 || stream.len() > 0 || stream.finished {
		stream.wake()
	}
	return reader, nil
}

// afterLocked returns the stream with the number, and the events on it that the client missed
// after the event with the sequence number.
func (s *Session) afterLocked(number, seq uint64) (found *stream, missed []Event, err error) {
	found = s.streams[number]
	switch {
	case found == nil && slices.Contains(s.cancelled, number):
		return nil, nil, ErrStreamOver
	case found == nil || !found.resumable || seq >= found.nextSeq || seq < found.evicted:
		return nil, nil, ErrUnknownEvent
	}
	missed = s.replay.after(found, seq)
	if found.cancelled && len(missed) == 0 && found.len() == 0 {
		return nil, nil, ErrStreamOver
	}
	return found, missed, nil
}

// attachLocked gives a stream a reader.
func (s *Session) attachLocked(reader *Stream) {
	stream := reader.stream
	stream.reader = reader
	s.attached++
	s.touched = time.Now()
	s.detached = without(s.detached, stream)
	if stream.general {
		s.left = without(s.left, stream)
		s.generals = insert(s.generals, stream)
	}
}

// replaceLocked takes the stream away from its reader, if it has one.
func (s *Session) replaceLocked(stream *stream) {
	old := stream.reader
	if old == nil {
		return
	}
	old.replaced = true
	old.signal()
	s.detachLocked(stream)
}

// detachLocked records that no client reads the stream now.
func (s *Session) detachLocked(stream *stream) {
	if stream.reader == nil {
		return
	}
	stream.reader = nil
	s.attached--
	s.touched = time.Now()
	// The replay buffer still has the repeats.
	for i := range stream.repeats {
		s.waitLocked(-stream.repeats[i].cost())
	}
	stream.repeats = nil
	if stream.general {
		s.generals = without(s.generals, stream)
		if !stream.finished {
			s.left = insert(s.left, stream)
		}
	}
}

// insert adds a stream to a list that is sorted by number.
func insert(list []*stream, added *stream) []*stream {
	at, _ := slices.BinarySearchFunc(list, added, func(a, b *stream) int { return cmp.Compare(a.number, b.number) })
	return slices.Insert(list, at, added)
}

// without removes an item from the list, if the list has it.
func without[T comparable](list []T, item T) []T {
	if at := slices.Index(list, item); at >= 0 {
		return slices.Delete(list, at, at+1)
	}
	return list
}

// Detach ends the reading. It cancels no call: the session keeps later events for a client
// that resumes the stream.
func (st *Stream) Detach() {
	s := st.session
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handedOverLocked(st)
	if st.reader == st {
		s.detachLocked(st.stream)
		s.leaveLocked(st.stream)
	}
	s.room.Broadcast() // the session may now give up what waits on it
}

// leaveLocked keeps a stream that the client may resume, and gives up all others.
func (s *Session) leaveLocked(stream *stream) {
	switch {
	case s.endedBy != nil: // the client cannot resume it
		s.dropLocked(stream)
	case stream.general && !stream.finished: // the next general stream inherits its events
	case !stream.resumable:
		s.discardLocked(stream)
	case stream.general || stream.finished && stream.len() == 0:
		s.retireLocked(stream)
	default:
		s.detached = append(s.detached, stream)
		if most := s.limits.Detached; most > 0 && len(s.detached) > most {
			s.metrics.AbandonedStreams.Inc()
			s.abandonStreamLocked(s.detached[0])
		}
	}
}

// abandonStreamLocked gives up the stream of a call: the client can no longer resume it, nor
// get the answer of the call.
func (s *Session) abandonStreamLocked(stream *stream) {
	stream.resumable = false
	s.detached = without(s.detached, stream)
	if stream.finished {
		s.metrics.AbandonedAnswers.Inc()
	}
	s.discardLocked(stream)
}

// discardLocked gives up what waits on a stream of a call that no client can read again.
// Requests of the server get another stream. The stream stays until its call has an answer.
func (s *Session) discardLocked(stream *stream) {
	s.rerouteRequestsLocked(stream)
	s.clearLocked(&stream.pending)
	if stream.finished {
		s.deleteLocked(stream)
	}
}

// abandonLocked gives up events on the first of the streams that clients have left, and
// reports whether it found any. It moves requests of the server to another stream.
func (s *Session) abandonLocked() bool {
	for _, stream := range s.detached {
		switch {
		case stream.finished && stream.len() > 0:
			s.abandonStreamLocked(stream)
			return true
		case stream.notices.len() > 0:
			s.dropNoticesLocked(&stream.pending, 0)
			return true
		}
	}
	return false
}

// dropLocked deletes a stream and the events that wait on it.
func (s *Session) dropLocked(stream *stream) {
	s.clearLocked(&stream.pending)
	s.deleteLocked(stream)
}

// retireLocked deletes a finished stream without a reader once no event of it is left.
func (s *Session) retireLocked(stream *stream) {
	if !stream.finished || stream.reader != nil || stream.len() > 0 {
		return
	}
	s.detached = without(s.detached, stream)
	if stream.kept == 0 {
		s.deleteLocked(stream)
	}
}

// mostCancelled is how many streams of cancelled calls a session remembers. Clients that try
// to resume one do so at once.
const mostCancelled = 64

// deleteLocked deletes a stream.
func (s *Session) deleteLocked(stream *stream) {
	if s.streams[stream.number] != stream {
		return
	}
	delete(s.streams, stream.number)
	s.detached = without(s.detached, stream)
	if stream.cancelled && stream.resumable {
		s.cancelled = appendLast(s.cancelled, stream.number, mostCancelled)
	}
}
