package session

import (
	"cmp"
	"slices"
	"time"
)

// Resume continues the stream that an event id belongs to, after that event. The newest
// reader wins: a client that comes back has lost the old connection, whether we have
// noticed or not, and no other client knows the session.
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
	if len(stream.repeats) > 0 || stream.len() > 0 || stream.finished {
		stream.wake()
	}
	return reader, nil
}

// afterLocked is the stream with the number, and what was sent on it after an event.
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

// attachLocked gives a stream its reader.
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

// replaceLocked takes a stream from its reader, if it has one.
func (s *Session) replaceLocked(stream *stream) {
	old := stream.reader
	if old == nil {
		return
	}
	old.replaced = true
	old.signal()
	s.detachLocked(stream)
}

// detachLocked notes that no client reads a stream any more.
func (s *Session) detachLocked(stream *stream) {
	if stream.reader == nil {
		return
	}
	stream.reader = nil
	s.attached--
	s.touched = time.Now()
	// They are in the replay buffer still.
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

// Detach says that the reader goes. That cancels nothing: what still arrives is kept for a
// client that resumes.
func (st *Stream) Detach() {
	s := st.session
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handedOverLocked(st)
	if st.reader == st {
		s.detachLocked(st.stream)
		s.leaveLocked(st.stream)
	}
	s.room.Broadcast() // no client reads it, so it may make room
}

// leaveLocked decides what becomes of a stream that no client reads any more.
func (s *Session) leaveLocked(stream *stream) {
	switch {
	case s.endedBy != nil: // no client can come back
		s.dropLocked(stream)
	case stream.general && !stream.finished: // for the next one
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

// abandonStreamLocked gives up a stream of a call that no client reads. If the call has no
// answer yet, no client will get it.
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

// abandonLocked gives up what waits on the stream of a call that was left first, and says
// whether there was anything. Requests of the server's find another stream.
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

// dropLocked forgets a stream and what waits on it.
func (s *Session) dropLocked(stream *stream) {
	s.clearLocked(&stream.pending)
	s.deleteLocked(stream)
}

// retireLocked forgets a stream that is over and of which nothing is kept.
func (s *Session) retireLocked(stream *stream) {
	if !stream.finished || stream.reader != nil || stream.len() > 0 {
		return
	}
	s.detached = without(s.detached, stream)
	if stream.kept == 0 {
		s.deleteLocked(stream)
	}
}

// mostCancelled is how many cancelled calls a session remembers whose streams a client may try
// to resume. Clients do so at once.
const mostCancelled = 64

// deleteLocked forgets a stream.
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
