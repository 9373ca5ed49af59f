package rpc

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

// ErrEventTooLarge says that an event, or a line of one, is larger than the limit.
var ErrEventTooLarge = errors.New("an event is larger than the limit")

// EventReader reads an event stream as the HTML standard defines it: lines end in
// CR, LF or both, several data lines are one text, comments and unknown fields
// mean nothing, and an event that the stream breaks off in is none.
type EventReader struct {
	in      *bufio.Reader
	limit   int
	reserve func(bytes int) error // may be nil
	primes  bool                  // Next returns events that only say where to resume the stream, too

	begun     bool
	skipLF    bool // the last line ended in CR; a LF that follows belongs to it
	line      []byte
	eventType string
	data      []byte
	hasData   bool
	hasPlace  bool // the event has an id, or says when to resume

	id        []byte // of the event that is being read, or of an earlier one
	lastID    []byte // of the last whole event
	retryText []byte // how long to wait before the stream is opened again, as the server said it
}

const (
	eventBuffer = 32 << 10
	longestType = 64
	longestID   = 4096
)

// NewEventReader returns a reader of the stream. No event may have more bytes of data than
// the limit.
func NewEventReader(stream io.Reader, limit int) *EventReader {
	return &EventReader{in: bufio.NewReaderSize(stream, eventBuffer), limit: limit}
}

// Bound has the reader ask before an event takes more than 64 KiB. The function gets the size
// of the reader's buffers, may wait, and ends the reader by an error. With 0 it is told that
// they are given back, or are the caller's.
func (r *EventReader) Bound(reserve func(bytes int) error) { r.reserve = reserve }

// WithPriming has Next return events without data, too, if they say where or when to resume the stream.
func (r *EventReader) WithPriming() { r.primes = true }

// Next returns the next event that has data. Its ID and Data are valid until the next call,
// unless Data is Owned. At the end of the stream the error is io.EOF.
func (r *EventReader) Next() (Event, error) {
	event, err := r.next()
	r.giveBack() // the event is for the caller to count
	if cap(event.Data) > largeBuffer {
		event.Owned, r.data = true, nil
	}
	return event, err
}

func (r *EventReader) giveBack() {
	if r.reserve != nil {
		_ = r.reserve(0) // it is less than before
	}
}

// append appends to one of the two buffers, of which the other has so many bytes.
func (r *EventReader) append(to, more []byte, other int) ([]byte, error) {
	if need := len(to) + len(more); need > cap(to) && need > largeBuffer {
		size := min(max(need, 2*cap(to)), r.limit+longestType)
		if r.reserve != nil {
			if err := r.reserve(size + other); err != nil {
				return nil, fmt.Errorf("read an event of more than %d bytes: %w", len(to), err)
			}
		}
		to = append(make([]byte, 0, size), to...)
	}
	return append(to, more...), nil
}

func (r *EventReader) next() (Event, error) {
	r.reset()
	for {
		line, err := r.readLine()
		if err != nil {
			return Event{}, err
		}
		if len(line) > 0 {
			if err := r.field(line); err != nil {
				return Event{}, err
			}
			continue
		}
		r.lastID = append(r.lastID[:0], r.id...) // also of an event without data
		if len(r.data) > 0 || r.primes && r.hasPlace {
			return Event{Type: r.eventType, ID: r.lastID, Data: r.data}, nil
		}
		r.reset()
	}
}

func (r *EventReader) reset() {
	r.eventType, r.hasData, r.hasPlace = EventMessage, false, false
	r.data, r.line = r.data[:0], r.line[:0]
	if cap(r.data) > largeBuffer {
		r.data = nil
	}
	if cap(r.line) > largeBuffer {
		r.line = nil
	}
}

// field takes in one line of an event.
func (r *EventReader) field(line []byte) error {
	name, value, _ := bytes.Cut(line, []byte{':'})
	value = bytes.TrimPrefix(value, []byte{' '})
	switch string(name) {
	case "data":
		return r.addData(value)
	case "event":
		if len(value) > longestType {
			value = value[:longestType] // no type that we know is nearly as long
		}
		r.eventType = cmp.Or(string(value), EventMessage)
	case "id":
		r.hasPlace = true
		r.id = r.id[:0]
		if isEventID(value) { // else there is no place that the stream could go on from
			r.id = append(r.id, value...)
		}
	case "retry":
		r.hasPlace = true
		if len(value) <= longestType {
			r.retryText = append(r.retryText[:0], value...)
		}
	}
	return nil
}

// addData takes in one line of an event's data.
func (r *EventReader) addData(value []byte) (err error) {
	if r.hasData {
		r.data = append(r.data, '\n')
	}
	if len(r.data)+len(value) > r.limit {
		return r.tooLarge()
	}
	if !r.hasData && len(value) > largeBuffer { // most events have one line, which need not be copied
		r.data, r.line, r.hasData = value, nil, true
		return nil
	}
	r.hasData = true
	r.data, err = r.append(r.data, value, cap(r.line))
	return err
}

// isEventID says whether an id may stand in a header.
func isEventID(id []byte) bool {
	return len(id) <= longestID && !bytes.ContainsFunc(id, func(c rune) bool { return c < ' ' || c == 0x7f })
}

// LastID is the id of the last event that was whole, by which a server knows where to go
// on with the stream, or empty.
func (r *EventReader) LastID() string { return string(r.lastID) }

// Retry is how long the server wants to be left alone before the stream is opened again,
// or 0 if it has not said.
func (r *EventReader) Retry() time.Duration {
	milliseconds, err := strconv.ParseUint(string(r.retryText), 10, 31)
	if err != nil {
		return 0
	}
	return time.Duration(milliseconds) * time.Millisecond
}

func (r *EventReader) tooLarge() error {
	return fmt.Errorf("%w of %d bytes", ErrEventTooLarge, r.limit)
}

// readLine returns a line without its end. Nothing is awaited after a CR, so that
// an event is there as soon as its last byte is.
func (r *EventReader) readLine() ([]byte, error) {
	if cap(r.line) > largeBuffer { // of a comment, say
		r.line = nil
		if cap(r.data) <= largeBuffer {
			r.giveBack()
		}
	}
	r.line = r.line[:0]
	for {
		chunk, err := r.peek()
		if err != nil {
			return nil, err
		}
		end := LineEnd(chunk)
		// A line has a name and a colon besides what the limit is about.
		if len(r.line)+end > r.limit+longestType {
			return nil, r.tooLarge()
		}
		if r.line, err = r.append(r.line, chunk[:end], cap(r.data)); err != nil {
			return nil, err
		}
		if end == len(chunk) {
			r.discard(end)
			continue
		}
		r.skipLF = chunk[end] == '\r'
		r.discard(end + 1)
		return r.line, nil
	}
}

// LineEnd returns the index of the CR or LF that ends the first line of a chunk of an event stream, or the
// chunk's length.
func LineEnd(chunk []byte) int {
	end := bytes.IndexByte(chunk, '\n')
	if end < 0 {
		end = len(chunk)
	}
	if carriage := bytes.IndexByte(chunk[:end], '\r'); carriage >= 0 {
		end = carriage
	}
	return end
}

// peek returns what has arrived, at least one byte, without the rest of an earlier
// line's end and without a byte order mark at the beginning.
func (r *EventReader) peek() ([]byte, error) {
	if !r.begun {
		r.begun = true
		if mark, err := r.in.Peek(1); err == nil && mark[0] == byteOrderMark[0] {
			if mark, err := r.in.Peek(len(byteOrderMark)); err == nil && bytes.Equal(mark, byteOrderMark) {
				r.discard(len(mark))
			}
		}
	}
	for {
		if _, err := r.in.Peek(1); err != nil {
			return nil, err
		}
		chunk, _ := r.in.Peek(r.in.Buffered()) // all of it is there
		if !r.skipLF {
			return chunk, nil
		}
		r.skipLF = false
		if chunk[0] != '\n' {
			return chunk, nil
		}
		r.discard(1)
	}
}

func (r *EventReader) discard(n int) { _, _ = r.in.Discard(n) } // it is buffered
