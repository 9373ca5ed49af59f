package rpc

import (
	"slices"
	"strconv"
)

// Event is one event of a stream that carries messages.
type Event struct {
	ID      []byte // what a client names to resume after this event; may be empty
	Message []byte // one line; empty in an event that only carries an ID
}

// eventFrame is how long an event is without its id and message.
const eventFrame = len("event: message\nid: \ndata: \n\n")

// AppendEvent appends the event as it goes over the wire. Every event names its
// type: some clients take an event without one for no message.
func AppendEvent(dst []byte, event Event) []byte {
	// In one step: what append adds for growth is much for a large message, and counted
	// nowhere.
	dst = slices.Grow(dst, len(event.ID)+len(event.Message)+eventFrame)
	dst = append(dst, "event: message\n"...)
	if len(event.ID) > 0 {
		dst = append(dst, "id: "...)
		dst = append(dst, event.ID...)
		dst = append(dst, '\n')
	}
	dst = append(dst, "data: "...)
	dst = append(dst, event.Message...)
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
