package session

// replay keeps events that were sent, oldest first, within a number of bytes, for
// clients that lost their connection and come back.
type replay struct {
	limit int
	bytes int
	sent  []sentEvent
}

type sentEvent struct {
	stream *Stream
	event  Event
}

// keep adds an event. Older ones may have to make room for it.
func (r *replay) keep(stream *Stream, event Event) {
	stream.kept++
	r.sent = append(r.sent, sentEvent{stream, event})
	r.bytes += len(event.Message)
}

// isFull says whether there is more than may be kept.
func (r *replay) isFull() bool { return r.bytes > r.limit }

// evict forgets the oldest event, and returns its stream.
func (r *replay) evict() *Stream {
	oldest := r.sent[0]
	r.sent[0] = sentEvent{}
	r.sent = r.sent[1:]
	r.bytes -= len(oldest.event.Message)
	oldest.stream.kept--
	oldest.stream.evicted = oldest.event.seq
	return oldest.stream
}

// after returns the events of a stream that follow one, and whether these are all.
func (r *replay) after(stream *Stream, seq uint64) (events []Event, complete bool) {
	if seq < stream.evicted {
		return nil, false
	}
	for _, sent := range r.sent {
		if sent.stream == stream && sent.event.seq > seq {
			events = append(events, sent.event)
		}
	}
	return events, true
}
