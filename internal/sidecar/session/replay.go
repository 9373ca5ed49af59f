package session

import "github.com/slipway-mcp/slipway/internal/sidecar/budget"

// replay keeps sent events, oldest first, for clients that lose their connection and come back.
type replay struct {
	account *budget.Account // holds the bytes
	bytes   int             // cost of the events, and of the streams that they keep
	sent    queue[sentEvent]
}

type sentEvent struct {
	stream *stream
	event  Event
}

// keep adds an event.
func (r *replay) keep(on *stream, event Event) {
	r.change(len(event.Message) + eventOverhead)
	if on.kept == 0 {
		r.change(streamOverhead)
	}
	on.kept++
	r.sent.push(sentEvent{on, event})
}

// evict removes the oldest event, and returns its stream.
func (r *replay) evict() *stream {
	oldest := r.sent.pop()
	r.change(-len(oldest.event.Message) - eventOverhead)
	oldest.stream.kept--
	if oldest.stream.kept == 0 {
		r.change(-streamOverhead)
	}
	oldest.stream.evicted = oldest.event.seq
	return oldest.stream
}

func (r *replay) change(by int) {
	r.bytes += by
	r.account.Change(by)
}

// after returns the events of a stream that follow one.
func (r *replay) after(on *stream, seq uint64) (events []Event) {
	for _, sent := range r.sent.all() {
		if sent.stream == on && sent.event.seq > seq {
			events = append(events, sent.event)
		}
	}
	return events
}
