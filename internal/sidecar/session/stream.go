package session

import (
	"strconv"
	"strings"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
)

// Event is a message for the client.
type Event struct {
	// Message is nil for the end of a call that the client has cancelled: the front end
	// writes nothing.
	Message []byte
	call    *call          // the call that the event answers; nil for other events
	request *serverRequest // nil if the event is no request
	seq     uint64         // while it waits, its place in the order of arrival; then the number in its event id, or 0
	kind    rpc.Kind
	Last    bool // no event follows on the stream
}

// Failed returns how the call failed that the event answers: a result of rpc.ErrorType, or
// FailedTimeout or FailedCancelled. It is empty for all other events.
func (e *Event) Failed() string {
	if e.call == nil {
		return ""
	}
	return e.call.failed
}

// Tag returns the Message.Tag of the call that the event answers, or nil.
func (e *Event) Tag() any {
	if e.call == nil {
		return nil
	}
	return e.call.tag
}

// How a call fails if the session answers it.
const (
	FailedTimeout   = "timeout"
	FailedCancelled = "cancelled"
)

// Stream is one reader of a stream. A stream has one reader at a time: a client that resumes
// it gets another Stream, and the old one is at its end. One goroutine at a time uses a Stream.
type Stream struct {
	*stream
	ready chan struct{}

	// Guarded by the session's mutex.
	inHand   int  // cost of the event that the reader took last and may still write
	replaced bool // another reader has taken its place

	// Most streams have one reader. The stream is part of it, which saves an allocation for
	// each call.
	own stream
}

// stream is the events of one HTTP response, or of several responses if the client resumes it.
// The session's mutex guards it.
type stream struct {
	session *Session
	number  uint64
	reader  *Stream // nil while no client reads the stream

	pending
	repeats   []Event // sent events that the reader gets before the pending ones, because its client missed them
	nextSeq   uint64
	evicted   uint64 // sequence number up to which the replay buffer has no events
	kept      int32  // events in the replay buffer
	awaits    int32  // calls without an answer
	resumable bool   // events have ids, so that the client can resume the stream
	finished  bool   // no event will be added
	cancelled bool   // the client has cancelled the last call of the stream
	general   bool   // carries messages that belong to no call
	late      bool   // a call has had no answer for CommitAfter

	// Most streams have one call and one event. They are part of the stream, which saves two
	// allocations for each call.
	first  call
	single [1]Event
}

func (s *Session) newStreamLocked() *Stream {
	s.lastStream++
	reader := &Stream{ready: make(chan struct{}, 1)}
	reader.stream = &reader.own
	reader.session, reader.number, reader.reader = s, s.lastStream, reader
	reader.sure.items = reader.single[:0]
	s.streams[s.lastStream] = reader.stream
	return reader
}

// isDead reports whether no client can ever read the stream again.
func (st *stream) isDead() bool { return st.reader == nil && !st.resumable && !st.general }

// takesMore reports whether events on the stream can reach a client. The stream may be nil.
func (st *stream) takesMore() bool { return st != nil && !st.finished && !st.isDead() }

// Open opens a general stream, for messages that belong to no call. It begins with the events
// that wait for such a stream. If the session has as many as it may, the oldest one ends: the
// client may have lost that connection, and the adapter may not have noticed.
func (s *Session) Open() (*Stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.endedBy != nil:
		return nil, ErrEnded
	case s.limits.Streams <= 0:
		return nil, ErrTooManyStreams
	}
	for len(s.generals) >= s.limits.Streams {
		s.replaceLocked(s.generals[0])
	}
	opened := s.newStreamLocked()
	opened.general = true
	s.attachLocked(opened)
	s.inheritLocked(opened.stream)
	return opened, nil
}

// inheritLocked moves the events of general streams without a reader to a new general stream,
// and finishes the old ones. Clients can then only resume them, for events that were sent.
func (s *Session) inheritLocked(heir *stream) {
	for _, old := range s.left { // T-21: without the repeats, which only the client of the old stream missed
		s.moveLocked(&old.pending, &heir.pending)
		old.finished = true
		s.retireLocked(old)
	}
	s.left = nil
	s.takeBacklogLocked(heir)
}

// takeBacklogLocked moves the events that wait for a general stream to one that has got a reader.
func (s *Session) takeBacklogLocked(heir *stream) {
	s.moveLocked(&s.backlog, &heir.pending)
	for _, event := range heir.sure.all() {
		if event.request != nil {
			event.request.stream = heir
		}
	}
	s.trimLocked(&heir.pending)
	if heir.len() > 0 {
		heir.wake()
	}
}

// Ready returns a channel that receives when Take may have an event.
func (st *Stream) Ready() <-chan struct{} { return st.ready }

// wake tells the reader, if there is one, that Take may have an event.
func (st *stream) wake() {
	if st.reader != nil {
		st.reader.signal()
	}
}

func (st *Stream) signal() {
	select {
	case st.ready <- struct{}{}:
	default:
	}
}

// Replaced reports whether another reader has replaced this one. The new reader gets the
// events that this one has taken, so this one must not write them.
func (st *Stream) Replaced() bool {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	return st.replaced
}

// Take returns the next event. If there is none, end reports whether the stream is at its end;
// otherwise the reader waits for Ready. An event counts as waiting until the next Take or
// Detach, because the reader holds it until the client has read it.
func (st *Stream) Take() (event Event, ok, end bool) {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	return st.takeLocked()
}

func (st *Stream) takeLocked() (event Event, ok, end bool) {
	s := st.session
	s.handedOverLocked(st)
	if st.reader != st {
		return Event{}, false, true
	}
	s.trimLocked(&st.pending)
	repeat := len(st.repeats) > 0
	switch {
	case repeat:
		event = st.repeats[0]
		st.repeats[0] = Event{}
		st.repeats = st.repeats[1:]
	case st.len() > 0:
		event = st.next()
		s.trimLocked(&st.pending)
	default:
		return Event{}, false, st.finished
	}
	st.inHand = event.cost()
	s.takes++
	if len(st.repeats) > 0 || st.len() > 0 {
		st.wake()
	} else {
		event.Last = st.finished
	}
	if !repeat {
		s.nameLocked(st.stream, &event)
	}
	if event.Last && !st.resumable {
		s.deleteLocked(st.stream)
	}
	return event, true, false
}

// nameLocked gives an event on a resumable stream its number, and keeps it in the replay buffer.
func (s *Session) nameLocked(on *stream, event *Event) {
	if !on.resumable || event.Message == nil {
		event.seq = 0
		return
	}
	event.seq = on.nextSeq
	on.nextSeq++
	if s.endedBy != nil {
		return // the client cannot resume the stream
	}
	s.replay.keep(on, *event)
	for s.replay.bytes > s.limits.ReplayBytes || !s.account.Fits(0) && s.replay.bytes > 0 {
		s.evictLocked()
	}
}

// evictLocked removes the oldest event from the replay buffer.
func (s *Session) evictLocked() { s.retireLocked(s.replay.evict()) }

// handedOverLocked records that the reader has written the event that it took last.
func (s *Session) handedOverLocked(reader *Stream) {
	if reader.inHand > 0 {
		s.waitLocked(-reader.inHand)
		reader.inHand = 0
		s.room.Broadcast()
	}
}

// Interruptible records that the reader begins to write a large event. The session calls
// interrupt if it ends because its client does not read. nil records that the reader has
// written the event. interrupt must not call the session.
func (st *Stream) Interruptible(interrupt func()) {
	s := st.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if interrupt == nil {
		delete(s.writing, st)
		return
	}
	if s.writing == nil {
		s.writing = map[*Stream]func(){}
	}
	s.writing[st] = interrupt
}

// Wrote records that the client has read a piece of a large event.
func (st *Stream) Wrote() {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	st.session.takes++
}

// MakeRoom takes so many bytes for the session. If the budget has no room, the session gives up
// events that the client may come back for, and presses other sessions to give way. If that is
// not enough, MakeRoom still takes the bytes, unless the client is slow: then it returns
// false.
func (s *Session) MakeRoom(bytes int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.account.Take(bytes) {
		if s.giveUpLocked() {
			continue
		}
		s.account.Press()
		if s.waiting > budget.SlowBytes {
			return false
		}
		s.account.Change(bytes)
		break
	}
	return true
}

// Finished reports whether no more events will arrive on the stream.
func (st *Stream) Finished() bool {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	return st.finished || st.reader != st
}

// TakeSole takes the event if it is the only one that the stream will ever have. Otherwise it
// reports whether the stream has, or may have, several events, or is at its end.
func (st *Stream) TakeSole() (event Event, ok, others, end bool) {
	s := st.session
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trimLocked(&st.pending)
	switch {
	case st.finished && st.len() == 1:
		event, ok, _ = st.takeLocked()
	case st.len() > 0 || st.late:
		others = true
	default:
		end = st.finished
	}
	return event, ok, others, end
}

// MakeResumable gives the events from now on ids, and returns an id for the beginning of the
// stream. It returns false if the session has no replay buffer.
func (st *Stream) MakeResumable() (beginning string, ok bool) {
	s := st.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limits.ReplayBytes <= 0 {
		return "", false
	}
	st.resumable = true
	st.nextSeq = max(st.nextSeq, 1) // 0 is the beginning itself
	return string(st.appendID(nil, 0)), true
}

// AppendID appends the id of the event, if the client can resume the stream after it.
func (st *Stream) AppendID(to []byte, event Event) []byte {
	if event.seq == 0 {
		return to
	}
	return st.appendID(to, event.seq)
}

func (st *stream) appendID(to []byte, seq uint64) []byte {
	to = strconv.AppendUint(to, st.number, 10)
	to = append(to, '_')
	return strconv.AppendUint(to, seq, 10)
}

func parseEventID(id string) (stream, seq uint64, ok bool) {
	number, after, _ := strings.Cut(id, "_")
	stream, errNumber := strconv.ParseUint(number, 10, 64)
	seq, errAfter := strconv.ParseUint(after, 10, 64)
	return stream, seq, errNumber == nil && errAfter == nil && len(id) <= 40
}
