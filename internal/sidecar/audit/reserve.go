package audit

import "errors"

// Share is how many bytes Reserve promises to one caller at a time: a quarter of what it promises to all. A call may
// take minutes, and its room is promised for as long. No caller can take the room of all others.
const Share = (BufferBytes/2 - maxLine) / 4

// One line always fits into a share, so that only batches can be too large.
const _ = uint(Share - maxLine - maxOutcome)

// Why Reserve promises no room.
var (
	ErrFull     = errors.New("too many audited calls are in flight, or the adapter cannot write their lines as fast as they end")
	ErrShare    = errors.New("too many audited calls of this caller are in flight")
	ErrTooLarge = errors.New("the lines of the request never fit into the share of one caller")
)

// Size returns how much room the line of an event needs that is not complete yet.
func (l *Log) Size(e *Event) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(appendEvent(l.free(), l.id, e)) + maxOutcome
}

// Reserve promises room for all lines of a request, or for none. The room counts for the share of the caller that of
// names. AddReserved and Release must give it back.
func (l *Log) Reserve(of string, room int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch share := l.shares[of]; {
	case room > Share:
		return ErrTooLarge
	case share+room > Share:
		return ErrShare
	case l.full() || l.room()-room < maxLine:
		return ErrFull
	default:
		l.reserved += room
		l.shares[of] = share + room
		return nil
	}
}

// Release gives room back that no line needs.
func (l *Log) Release(of string, room int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.releaseLocked(of, room)
}

func (l *Log) releaseLocked(of string, room int) {
	if room == 0 {
		return
	}
	l.reserved -= room
	if l.shares[of] -= room; l.shares[of] == 0 {
		delete(l.shares, of)
	}
}

// AddReserved adds an event, and gives the room back that Reserve has promised for it. Without any, which is for
// events that no request can be refused for, it uses the room that Reserve and Add leave.
func (l *Log) AddReserved(e *Event, of string, room int) bool { return l.add(e, of, room, true) }
