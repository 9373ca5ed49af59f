package session

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// Event is a message on its way to the client.
type Event struct {
	Message []byte
	Last    bool // nothing follows on this stream

	call    *call // that this is the answer to
	kind    rpc.Kind
	request string // the id, if it is a request of the server's
	seq     uint64
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

// Stream is what one HTTP response, or a chain of them by resumption, carries.
// One goroutine at a time reads it.
type Stream struct {
	session *Session
	number  uint64
	ready   chan struct{}

	// Guarded by the session's mutex.
	pending   []Event
	notices   int // bytes of pending notifications
	inHand    int // bytes of the event that was taken last, which still waits for the client
	nextSeq   uint64
	evicted   uint64 // events up to this one are no longer kept
	kept      int    // events in the replay buffer
	awaits    int    // calls whose answers will arrive here
	attached  bool   // somebody reads it
	resumable bool   // the client has been given event ids
	finished  bool   // nothing more will be added
	general   bool   // takes what belongs to no call
	late      bool   // a call of it has had no answer for some time

	// Most streams have one call and one event. With room for them here, and not
	// elsewhere, a call takes two allocations less.
	first  call
	single [1]Event
}

func (s *Session) newStreamLocked() *Stream {
	s.lastStream++
	stream := &Stream{session: s, number: s.lastStream, ready: make(chan struct{}, 1)}
	stream.pending = stream.single[:0]
	s.streams[stream.number] = stream
	return stream
}

// Open opens a stream for what belongs to no call. It starts with what has been
// waiting for such a stream.
func (s *Session) Open() (*Stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endedBy != nil {
		return nil, ErrEnded
	}
	open := 0
	for _, stream := range s.streams {
		if stream.general && stream.attached {
			open++
		}
	}
	if open >= s.limits.Streams {
		return nil, ErrTooManyStreams
	}
	stream := s.newStreamLocked()
	stream.general = true
	s.attachLocked(stream)
	s.inheritLocked(stream)
	return stream, nil
}

// inheritLocked gives a new general stream what older ones were left with. Those
// are over then, and live on only for what can be replayed of them.
func (s *Session) inheritLocked(heir *Stream) {
	var left []*Stream
	for _, stream := range s.streams {
		if stream.general && !stream.attached {
			left = append(left, stream)
		}
	}
	slices.SortFunc(left, func(a, b *Stream) int { return cmp.Compare(a.number, b.number) })
	var inherited []Event
	for _, stream := range left {
		s.forgetRepeatsLocked(stream) // T-21: that was for this stream only
		inherited = append(inherited, stream.pending...)
		stream.pending, stream.notices, stream.finished = nil, 0, true
		s.retireLocked(stream)
	}
	inherited = append(inherited, s.backlog...)
	s.backlog = nil
	for _, event := range inherited {
		s.waiting -= len(event.Message)
		s.enqueueLocked(heir, event)
	}
	for _, request := range s.serverRequests {
		if request.stream == nil {
			request.settle()
			request.stream = heir
		}
	}
}

// Resume continues the stream that an event id belongs to, after that event.
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
	stream := s.streams[number]
	switch {
	case stream == nil || !stream.resumable || seq >= stream.nextSeq:
		return nil, ErrUnknownEvent
	case stream.attached:
		return nil, ErrStreamInUse
	}
	missed, complete := s.replay.after(stream, seq)
	if !complete {
		return nil, ErrUnknownEvent
	}
	s.forgetRepeatsLocked(stream)
	stream.pending = append(missed, stream.pending...)
	for _, event := range missed {
		s.waiting += len(event.Message)
		if event.kind == rpc.Notification {
			stream.notices += len(event.Message)
		}
	}
	s.attachLocked(stream)
	if len(stream.pending) > 0 || stream.finished {
		stream.wake()
	}
	return stream, nil
}

// forgetRepeatsLocked takes back what was to be repeated to a client that went away
// again. It is in the replay buffer still.
func (s *Session) forgetRepeatsLocked(stream *Stream) {
	stream.pending = slices.DeleteFunc(stream.pending, func(event Event) bool {
		if event.seq == 0 {
			return false
		}
		s.waiting -= len(event.Message)
		if event.kind == rpc.Notification {
			stream.notices -= len(event.Message)
		}
		return true
	})
}

func (s *Session) attachLocked(stream *Stream) {
	stream.attached = true
	s.attached++
	s.touched = time.Now()
}

// Detach says that nobody reads the stream any more. That cancels nothing: what
// still arrives is kept for a client that resumes.
func (st *Stream) Detach() {
	s := st.session
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handedOverLocked(st)
	s.detachLocked(st)
	switch {
	case st.resumable:
	case st.finished:
		s.rerouteRequestsLocked(st)
		s.dropLocked(st)
	case !st.general:
		s.rerouteRequestsLocked(st)
	}
	s.retireLocked(st)
	s.room.Broadcast() // nobody reads it, so it may make room
}

// abandonLocked gives up what waits on the oldest stream of a call that nobody reads,
// and says whether there was anything. Requests of the server's find another stream.
func (s *Session) abandonLocked() bool {
	var oldest *Stream
	for _, stream := range s.streams {
		if !stream.attached && !stream.general && (stream.finished && len(stream.pending) > 0 || stream.notices > 0) &&
			(oldest == nil || stream.number < oldest.number) {
			oldest = stream
		}
	}
	switch {
	case oldest == nil:
		return false
	case oldest.finished:
		s.metrics.AbandonedAnswers.Inc()
		s.rerouteRequestsLocked(oldest)
		s.dropLocked(oldest)
	default:
		for s.dropOldestNoticeLocked(oldest) {
		}
	}
	return true
}

// rerouteRequestsLocked finds another stream for the server's requests on one that
// nobody will read any more.
func (s *Session) rerouteRequestsLocked(stream *Stream) {
	left := stream.pending
	stream.pending = nil
	for _, event := range left {
		if event.kind != rpc.Request {
			stream.pending = append(stream.pending, event)
			continue
		}
		s.waiting -= len(event.Message)
		if request := s.serverRequests[event.request]; request != nil {
			request.stream = s.newestGeneralLocked()
			s.placeRequestLocked(request, event)
		}
	}
}

func (s *Session) detachLocked(stream *Stream) {
	if stream.attached {
		stream.attached = false
		s.attached--
		s.touched = time.Now()
	}
}

// dropLocked forgets a stream and what waits on it.
func (s *Session) dropLocked(stream *Stream) {
	for _, event := range stream.pending {
		s.waiting -= len(event.Message)
	}
	stream.pending, stream.notices = nil, 0
	delete(s.streams, stream.number)
	s.room.Broadcast()
}

// Ready receives when there may be something to take.
func (st *Stream) Ready() <-chan struct{} { return st.ready }

func (st *Stream) wake() {
	select {
	case st.ready <- struct{}{}:
	default:
	}
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
	if len(st.pending) == 0 {
		return Event{}, false, st.finished
	}
	event = st.pending[0]
	st.pending[0] = Event{}
	st.pending = st.pending[1:]
	if event.kind == rpc.Notification {
		st.notices -= len(event.Message)
	}
	st.inHand = len(event.Message)
	if len(st.pending) > 0 {
		st.wake()
	}
	event.Last = st.finished && len(st.pending) == 0
	switch {
	case st.resumable && event.seq == 0: // not one that is being repeated
		event.seq = st.nextSeq
		st.nextSeq++
		for s.replay.keep(st, event); s.replay.isFull(); {
			s.retireLocked(s.replay.evict())
		}
	case event.Last && !st.resumable:
		delete(s.streams, st.number)
	}
	return event, true, false
}

// handedOverLocked notes that the reader is done with the event it took last.
func (s *Session) handedOverLocked(stream *Stream) {
	if stream.inHand > 0 {
		s.waiting -= stream.inHand
		stream.inHand = 0
		s.room.Broadcast()
	}
}

// retireLocked forgets a stream that is over and of which nothing is kept.
func (s *Session) retireLocked(stream *Stream) {
	if stream.finished && !stream.attached && stream.kept == 0 && len(stream.pending) == 0 {
		delete(s.streams, stream.number)
	}
}

// Finished says whether all that the stream will ever have has arrived.
func (st *Stream) Finished() bool {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	return st.finished
}

// TakeSole takes the event if it is the only one that the stream will ever have. Without
// one it says whether others are to be expected, or the stream is at its end.
func (st *Stream) TakeSole() (event Event, ok, others, end bool) {
	s := st.session
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case st.finished && len(st.pending) == 1:
		event, ok, _ = st.takeLocked()
	case len(st.pending) > 0 || st.late:
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

func (st *Stream) appendID(to []byte, seq uint64) []byte {
	to = strconv.AppendUint(to, st.number, 10)
	to = append(to, '_')
	return strconv.AppendUint(to, seq, 10)
}

func parseEventID(id string) (stream, seq uint64, ok bool) {
	left, right, found := strings.Cut(id, "_")
	if !found || len(id) > 40 {
		return 0, 0, false
	}
	stream, err := strconv.ParseUint(left, 10, 64)
	if err != nil {
		return 0, 0, false
	}
	seq, err = strconv.ParseUint(right, 10, 64)
	return stream, seq, err == nil
}
