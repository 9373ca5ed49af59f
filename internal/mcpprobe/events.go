package mcpprobe

import (
	"bytes"
	"errors"
	"io"
	"net/http"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// eventFilter reads a stream of events and is read as one, with the messages as the
// guard lets them through.
type eventFilter struct {
	guard    *guard
	note     *note
	source   io.Closer
	events   *rpc.EventReader
	limit    int    // of an event, and of the whole stream if bounded
	bounded  bool   // the stream ends with the answer to a request
	answerTo string // the id of that request; empty on a stream that is the server's own

	out       []byte // the SDK is yet to read
	addressed bool   // the server has named its address for messages
	finished  bool   // the answer was there
	closed    error
}

// filter returns a filter of a stream that the server answers a message with.
func (r *roundTripper) filter(note *note, message sent, stream io.ReadCloser) *eventFilter {
	f := &eventFilter{guard: r.guard, note: note, source: stream, limit: r.guard.limits.ReplyBytes}
	if message.kind == rpc.Request {
		f.answerTo = message.id
		f.bounded = message.method != methodListen
	}
	if f.bounded {
		stream = http.MaxBytesReader(nil, stream, int64(f.limit))
	}
	f.events = rpc.NewEventReader(stream, f.limit)
	return f
}

// Read implements io.Reader.
func (f *eventFilter) Read(p []byte) (int, error) {
	for len(f.out) == 0 {
		switch {
		case f.closed != nil:
			return 0, f.closed
		case f.finished:
			f.closed = io.EOF // whatever else may follow
		default:
			f.closed = f.next()
		}
	}
	n := copy(p, f.out)
	f.out = f.out[n:]
	return n, nil
}

// Close closes the stream.
func (f *eventFilter) Close() error { return f.source.Close() }

// next reads an event and puts out what the SDK is to see of it.
func (f *eventFilter) next() error {
	event, err := f.events.Next()
	if err == nil {
		err = f.put(event)
	}
	if err != nil {
		return f.ended(err)
	}
	return nil
}

// put passes an event on. Messages go through the guard. What else a server sends is
// dropped, but for the address that the oldest transport begins with: the SDK takes what
// follows it there for messages, whatever the type.
func (f *eventFilter) put(event rpc.Event) (err error) {
	switch {
	case event.Type == rpc.EventMessage:
		event.Data, err = f.message(event.Data)
	case event.Type != "endpoint" || f.addressed:
		return nil
	case bytes.IndexByte(event.Data, '\n') >= 0:
		return protocolError("the address for messages has several lines")
	default:
		f.addressed = true
	}
	if err == nil && len(event.Data) > 0 {
		f.out = rpc.AppendEvent(nil, rpc.Event{Type: event.Type, Data: event.Data})
	}
	return err
}

func (f *eventFilter) message(data []byte) ([]byte, error) {
	f.finished = f.answerTo != "" && f.isAnswer(data)
	visible, err := f.guard.incoming(data)
	if _, notAMessage := errors.AsType[*rpc.Error](err); !notAMessage {
		return visible, err
	}
	if f.bounded {
		return nil, protocolError("an event is not a message: " + err.Error())
	}
	f.guard.nonsense.Add(1)
	return nil, nil
}

func (f *eventFilter) isAnswer(data []byte) bool {
	envelope, err := rpc.ScanLenient(data)
	return err == nil && envelope.Kind == rpc.Response && string(envelope.ID.Of(data)) == f.answerTo
}

// ended notes why a stream ended, if it should not have. The SDK needs to know where the
// stream can be resumed, and when, only now.
func (f *eventFilter) ended(err error) error {
	if _, whole := errors.AsType[*http.MaxBytesError](err); whole || errors.Is(err, rpc.ErrEventTooLarge) {
		err = tooLarge(LimitReplyBytes, f.limit)
	}
	id, retry := f.events.LastID(), f.events.Retry()
	switch e, ours := errors.AsType[*Error](err); {
	case ours:
		f.note.set(e)
		f.guard.fail(e)
		return err
	case f.bounded && id == "":
		f.note.set(bodyError(err))
	}
	if id != "" || retry > 0 {
		f.out = rpc.AppendPriming(nil, id, int(retry.Milliseconds()))
	}
	return err
}
