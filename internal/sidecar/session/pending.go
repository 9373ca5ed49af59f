package session

import (
	"github.com/slipway-mcp/slipway/internal/rpc"
)

// What the adapter holds besides the bytes of messages. Limits in bytes count these, too:
// a server could make its messages as small as it likes.
const (
	// eventOverhead is for an event that waits or is kept. It is four times the size of an
	// Event, since a queue may have four places for each that is taken, and the rest is
	// for what the allocator adds to the message. For a request the queue is denser, and
	// the serverRequest takes the room.
	eventOverhead = 256
	// streamOverhead is for a stream: 384 bytes of its own, 112 of its channel, and its
	// places in maps that may be half empty.
	streamOverhead = 768
)

// cost is what an event takes of the session's limits. An answer has a stream that lasts
// only for its sake.
func (e *Event) cost() int {
	cost := len(e.Message) + eventOverhead
	if e.kind == rpc.Response {
		cost += streamOverhead
	}
	return cost
}

// pending is what waits on a stream, or for one.
type pending struct {
	sure        queue[Event] // answers and requests, which are never dropped
	notices     queue[Event]
	noticeBytes int    // what the notices cost
	arrived     uint64 // how many events have
}

func (p *pending) len() int { return p.sure.len() + p.notices.len() }

func (p *pending) add(event Event) {
	p.arrived++
	event.seq = p.arrived
	if event.kind == rpc.Notification {
		p.noticeBytes += event.cost()
		p.notices.push(event)
	} else {
		p.sure.push(event)
	}
}

// next removes the event that arrived first. There must be one.
func (p *pending) next() Event {
	if p.sure.len() > 0 && (p.notices.len() == 0 || p.sure.first().seq < p.notices.first().seq) {
		return p.sure.pop()
	}
	return p.nextNotice()
}

func (p *pending) nextNotice() Event {
	event := p.notices.pop()
	p.noticeBytes -= event.cost()
	return event
}

// waitLocked notes that events wait which cost so much, or no longer do if that is negative.
func (s *Session) waitLocked(cost int) {
	s.waiting += cost
	s.account.Change(cost)
}

// addLocked has an event wait. Answers and requests always may; notifications that a slow
// reader lets pile up make room for newer ones.
func (s *Session) addLocked(to *pending, event Event) {
	cost := event.cost()
	if event.kind == rpc.Notification {
		if cost > s.limits.PendingBytes {
			s.metrics.DroppedNotifications.Inc()
			return
		}
		s.dropNoticesLocked(to, s.limits.PendingBytes-cost)
	}
	s.trimLocked(to)
	s.waiting += cost
	s.account.Change(cost - s.paid)
	s.paid = 0
	to.add(event)
}

// dropNoticesLocked drops the oldest notifications until the others cost no more than that.
func (s *Session) dropNoticesLocked(of *pending, most int) {
	for of.noticeBytes > most {
		event := of.nextNotice()
		s.waitLocked(-event.cost())
		s.metrics.DroppedNotifications.Inc()
	}
}

// trimLocked removes requests of the server at the front that need no answer any more.
func (s *Session) trimLocked(of *pending) {
	for of.sure.len() > 0 {
		event := of.sure.first()
		if event.request == nil || !event.request.over {
			return
		}
		s.waitLocked(-event.cost())
		of.sure.pop()
		s.room.Broadcast()
	}
}

// clearLocked forgets all that waits.
func (s *Session) clearLocked(of *pending) {
	for of.len() > 0 {
		event := of.next()
		s.waitLocked(-event.cost())
	}
	s.room.Broadcast()
}

// moveLocked moves all events from one queue to the end of another.
func (s *Session) moveLocked(from, to *pending) {
	if to.len() == 0 { // nearly always, and there may be very many
		*to, *from = *from, pending{}
		return
	}
	for from.len() > 0 {
		to.add(from.next())
	}
	s.dropNoticesLocked(to, s.limits.PendingBytes)
}
