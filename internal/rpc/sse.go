package rpc

import (
	"cmp"
	"slices"
	"strconv"
)

// EventMessage is the type of events that carry messages.
const EventMessage = "message"

// Event is one event of a stream.
type Event struct {
	Type  string // EventMessage if the event does not name it
	ID    []byte // what a client names to resume after this event; may be empty
	Data  []byte // one line, to be written
	Owned bool   // of an event that was read: the code that takes it may keep Data
}

// eventFrame is how long an event is without its type, id and data.
const eventFrame = len("event: \nid: \ndata: \n\n")

// AppendEvent appends the event as it goes over the wire. Every event names its
// type: some clients take an event without one for no message.
func AppendEvent(dst []byte, event Event) []byte {
	// In one step: what append adds for growth is much for a large message, and counted
	// nowhere.
	kind := cmp.Or(event.Type, EventMessage)
	dst = slices.Grow(dst, len(kind)+len(event.ID)+len(event.Data)+eventFrame)
	dst = append(dst, "event: "...)
	dst = append(dst, kind...)
	dst = append(dst, '\n')
	if len(event.ID) > 0 {
		dst = append(dst, "id: "...)
		dst = append(dst, event.ID...)
		dst = append(dst, '\n')
	}
	dst = append(dst, "data: "...)
	dst = append(dst, event.Data...)
	return append(dst, "\n\n"...)
}

// AppendPriming appends an event that carries nothing but an ID, and how long a
// client should wait before it connects again.
func AppendPriming(dst []byte, id string, retryMillis int) []byte {
	dst = append(dst, "id: "...)
	dst = append(dst, id...)
	dst = append(dst, "\nretry: "...)
	dst = strconv.AppendInt(dst, int64(retryMillis), 10)
	return append(dst, "\ndata: \n\n"...)
}

// KeepAlive is a comment: it keeps the connection alive and means nothing.
const KeepAlive = ": keep-alive\n\n"
