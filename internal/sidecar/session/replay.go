package session

// replay keeps events that were sent, oldest first, within a number of bytes, for
// clients that lost their connection and come back.
type replay struct {
	limit int
	bytes int // what the events cost, and the streams that they keep
	sent  queue[sentEvent]
}

type sentEvent struct {
	stream *stream
	event  Event
}

// keep adds an event. Older ones may have to make room for it.
func (r *replay) keep(on *stream, event Event) {
	if on.kept == 0 {
		r.bytes += streamOverhead
	}
	on.kept++
	r.sent.push(sentEvent{on, event})
	r.bytes += len(event.Message) + eventOverhead
}

// isFull says whether there is more than may be kept.
func (r *replay) isFull() bool { return r.bytes > r.limit }

// evict forgets the oldest event, and returns its stream.
func (r *replay) evict() *stream {
	oldest := r.sent.pop()
	r.bytes -= len(oldest.event.Message) + eventOverhead
	oldest.stream.kept--
	if oldest.stream.kept == 0 {
		r.bytes -= streamOverhead
	}
	oldest.stream.evicted = oldest.event.seq
	return oldest.stream
}

// after returns the events of a stream that follow one, and whether these are all.
func (r *replay) after(on *stream, seq uint64) (events []Event, complete bool) {
	if seq < on.evicted {
		return nil, false
	}
	for _, sent := range r.sent.all() {
		if sent.stream == on && sent.event.seq > seq {
			events = append(events, sent.event)
		}
	}
	return events, true
}
