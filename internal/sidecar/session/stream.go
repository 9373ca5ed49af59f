package session

import (
	"strconv"
	"strings"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
)

// Event is a message on its way to the client.
type Event struct {
	// Message is nil at the end of a call that its client has cancelled: there is nothing
	// to write.
	Message []byte
	call    *call          // that this is the answer to
	request *serverRequest // that this is, if it is one
	seq     uint64         // while it waits, when it arrived; then what it is named by, 0 if it is not
	kind    rpc.Kind
	Last    bool // nothing follows on this stream
}

// Failed is how the call failed that this is the answer to: a code, as rpc.ErrorType says
// it, or one of those below. It is empty for everything else.
func (e *Event) Failed() string {
	if e.call == nil {
		return ""
	}
	return e.call.failed
}

// Tag is that of the call that this is the answer to.
func (e *Event) Tag() any {
	if e.call == nil {
		return nil
	}
	return e.call.tag
}

// How calls fail that the session answers itself.
const (
	FailedTimeout   = "timeout"
	FailedCancelled = "cancelled"
)

// Stream is a stream as one reader of it sees it. There is one reader at a time: for one
// that resumes the stream there is another Stream, and this one is at its end then.
// One goroutine at a time reads it.
type Stream struct {
	*stream
	ready chan struct{}

	// Guarded by the session's mutex.
	inHand   int  // what the event costs that was taken last, which still waits for the client
	replaced bool // another reader has taken its place

	// Most streams have one reader. With room for what all readers share here, and not
	// elsewhere, a call takes one allocation less.
	own stream
}

// stream is what one HTTP response, or a chain of them by resumption, carries. The
// session's mutex guards it.
type stream struct {
	session *Session
	number  uint64
	reader  *Stream // nil while no client reads it

	pending
	repeats   []Event // what the reader gets before these, since its client asked for it again
	nextSeq   uint64
	evicted   uint64 // events up to this one are no longer kept
	kept      int32  // events in the replay buffer
	awaits    int32  // calls whose answers will arrive here
	resumable bool   // the client has been given event ids
	finished  bool   // nothing more will be added
	cancelled bool   // the client has cancelled the last call of it
	general   bool   // takes what belongs to no call
	late      bool   // a call of it has had no answer for some time

	// Most streams have one call and one event. With room for them here, and not
	// elsewhere, a call takes two allocations less.
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

// isDead says whether no client can ever read the stream again. Then it stays so.
func (st *stream) isDead() bool { return st.reader == nil && !st.resumable && !st.general }

// takesMore says whether there is such a stream, and what is put on it can reach a client.
func (st *stream) takesMore() bool { return st != nil && !st.finished && !st.isDead() }

// Open opens a stream for what belongs to no call. It starts with what has been
// waiting for such a stream. If there are as many as there may be, the reader of the
// oldest is replaced: its client may have lost it without our knowing.
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

// inheritLocked gives a new general stream what older ones were left with. Those
// are over then, and live on only for what can be replayed of them.
func (s *Session) inheritLocked(heir *stream) {
	for _, old := range s.left { // T-21: what was repeated to one was for that one only
		s.moveLocked(&old.pending, &heir.pending)
		old.finished = true
		s.retireLocked(old)
	}
	s.left = nil
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

// Ready receives when there may be something to take.
func (st *Stream) Ready() <-chan struct{} { return st.ready }

// wake tells the reader, if there is one, that there may be something to take.
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

// Replaced says whether another reader has taken the place of this one. What this one has
// taken and not written yet is for that one to write.
func (st *Stream) Replaced() bool {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	return st.replaced
}

// Take returns the next event. Without one it says whether the stream is at its
// end, or else to wait until it is Ready. An event counts as waiting until the next
// one is taken or the stream is detached: its reader holds it for as long as the
// client does not read.
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

// nameLocked gives an event what it is resumed by, if it can be, and keeps it for that.
func (s *Session) nameLocked(on *stream, event *Event) {
	if !on.resumable || event.Message == nil {
		event.seq = 0
		return
	}
	event.seq = on.nextSeq
	on.nextSeq++
	if s.endedBy != nil {
		return // no client can come back
	}
	s.replay.keep(on, *event)
	for s.replay.bytes > s.limits.ReplayBytes || !s.account.Fits(0) && s.replay.bytes > 0 {
		s.evictLocked()
	}
}

// evictLocked removes the oldest event from the replay buffer.
func (s *Session) evictLocked() { s.retireLocked(s.replay.evict()) }

// handedOverLocked notes that the reader is done with the event it took last.
func (s *Session) handedOverLocked(reader *Stream) {
	if reader.inHand > 0 {
		s.waitLocked(-reader.inHand)
		reader.inHand = 0
		s.room.Broadcast()
	}
}

// Interruptible has the session call a function if it ends because its client does not read,
// while the reader writes something large. nil says that the reader is done with it. The
// function must not call the session.
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

// Wrote notes that the client has read a piece of something large.
func (st *Stream) Wrote() {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	st.session.takes++
}

// MakeRoom has the session forget what clients may come back for, and others give way, until
// it can take so many bytes more. It takes them also if there is no room, unless much waits for
// the client: then it returns false.
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

// Finished says whether all that the stream will ever have has arrived.
func (st *Stream) Finished() bool {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	return st.finished || st.reader != st
}

// TakeSole takes the event if it is the only one that the stream will ever have. Without
// one it says whether others are to be expected, or the stream is at its end.
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

// MakeResumable says that the client will be given event ids, and returns one that
// stands for the beginning. Without a replay buffer there is none.
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

// AppendID appends what a client names to resume after the event, if it can.
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
