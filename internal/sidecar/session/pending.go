package session

import (
	"github.com/slipway-mcp/slipway/internal/rpc"
)

// The memory that the adapter holds besides the bytes of messages. Limits in bytes count it,
// too, because a server may send very many small messages.
const (
	// eventOverhead is for an event in a queue or in the replay buffer. It is four times the
	// size of an Event, because a queue may have four places for each event. It includes
	// what the allocator adds to the message, and the serverRequest of a request.
	eventOverhead = 256
	// streamOverhead is for a stream: 384 bytes, 112 bytes for its channel, and its places
	// in maps, which may be half empty.
	streamOverhead = 768
)

// cost returns how many bytes an event counts for in the limits of the session. An answer
// counts for its stream, too, which often lasts only until the client reads the answer.
func (e *Event) cost() int {
	cost := len(e.Message) + eventOverhead
	if e.kind == rpc.Response {
		cost += streamOverhead
	}
	return cost
}

// pending is the events that wait on a stream, or for a stream to open.
type pending struct {
	sure        queue[Event] // answers and requests, which the session does not drop
	notices     queue[Event]
	noticeBytes int    // cost of the notices
	arrived     uint64 // how many events have arrived so far
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

// waitLocked adds the cost of events that begin to wait. A negative cost is that of events
// that no longer wait.
func (s *Session) waitLocked(cost int) {
	s.waiting += cost
	s.account.Change(cost)
}

// addLocked adds an event to those that wait. If the notifications among them exceed
// PendingBytes, it drops the oldest.
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

// dropNoticesLocked drops the oldest notifications until the others cost at most that much.
func (s *Session) dropNoticesLocked(of *pending, most int) {
	for of.noticeBytes > most {
		event := of.nextNotice()
		s.waitLocked(-event.cost())
		s.metrics.DroppedNotifications.Inc()
	}
}

// trimLocked removes requests of the server from the front that no longer need an answer.
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

// clearLocked removes all events that wait.
func (s *Session) clearLocked(of *pending) {
	for of.len() > 0 {
		event := of.next()
		s.waitLocked(-event.cost())
	}
	s.room.Broadcast()
}

// moveLocked moves all events from one pending to the end of another.
func (s *Session) moveLocked(from, to *pending) {
	if to.len() == 0 { // nearly always; from may have very many
		*to, *from = *from, pending{}
		return
	}
	for from.len() > 0 {
		to.add(from.next())
	}
	s.dropNoticesLocked(to, s.limits.PendingBytes)
}
