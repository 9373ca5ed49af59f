package mcpprobe

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// eventFilter reads a stream of events and is read as one, with the messages as the
// guard lets them through.
type eventFilter struct {
	guard    *guard
	note     *note
	source   io.ReadCloser
	limit    int    // of an event, and of all of them if bounded
	bounded  bool   // the stream ends with the answer to a request
	answerTo string // the id of that request; empty on a stream that is the server's own

	lines    *bufio.Reader
	total    int
	out      bytes.Buffer
	event    event
	sawID    bool // so the stream can be resumed
	finished bool // the answer was there
	closed   error
}

// event is one that is being read.
type event struct {
	kept []byte // the fields that are passed on
	name string
	data []byte
	size int
	has  bool // data
}

// Read implements io.Reader.
func (f *eventFilter) Read(p []byte) (int, error) {
	if f.lines == nil {
		f.lines = bufio.NewReader(f.source)
	}
	for f.out.Len() == 0 {
		switch {
		case f.closed != nil:
			return 0, f.closed
		case f.finished:
			f.closed = io.EOF // whatever else may follow
		default:
			f.closed = f.next()
		}
	}
	return f.out.Read(p)
}

// Close closes the stream.
func (f *eventFilter) Close() error { return f.source.Close() }

// next reads a line and, if it ends an event, puts the event out.
func (f *eventFilter) next() error {
	line, err := f.line()
	if err != nil {
		return f.ended(err)
	}
	if len(line) > 0 {
		f.event.field(line)
		if bytes.HasPrefix(line, []byte("id:")) {
			f.sawID = true
		}
		return nil
	}
	finished := f.event
	f.event = event{}
	if err := f.put(finished); err != nil {
		return f.ended(err)
	}
	return nil
}

// line returns the next line without its ending, and counts.
func (f *eventFilter) line() ([]byte, error) {
	var line []byte
	for {
		part, err := f.lines.ReadSlice('\n')
		f.event.size += len(part)
		f.total += len(part)
		if f.event.size > f.limit || f.bounded && f.total > f.limit {
			return nil, tooLarge(LimitReplyBytes, f.limit)
		}
		if err == nil && line == nil {
			return bytes.TrimRight(part, "\r\n"), nil
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return bytes.TrimRight(line, "\r\n"), nil
		case errors.Is(err, bufio.ErrBufferFull):
		default:
			return nil, err // what is left does not end an event
		}
	}
}

func (e *event) field(line []byte) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "data":
		if e.has {
			e.data = append(e.data, '\n')
		}
		e.has = true
		e.data = append(e.data, value...)
	case "event":
		e.name = string(value)
		e.kept = append(append(e.kept, line...), '\n')
	case "id", "retry":
		e.kept = append(append(e.kept, line...), '\n')
	}
}

// put passes an event on. Messages go through the guard; what else a server sends
// loses its data, but for the address that the oldest transport begins with.
func (f *eventFilter) put(e event) error {
	var visible []byte
	switch {
	case !e.has:
	case e.name == "endpoint":
		visible = e.data
	case len(e.data) > 0 && (e.name == "" || e.name == "message"):
		var err error
		if visible, err = f.message(e.data); err != nil {
			return err
		}
	}
	if len(visible) == 0 && !bytes.Contains(e.kept, []byte("id:")) && !bytes.Contains(e.kept, []byte("retry:")) {
		return nil
	}
	f.out.Write(e.kept)
	if len(visible) > 0 {
		f.out.WriteString("data: ")
		f.out.Write(visible)
		f.out.WriteByte('\n')
	}
	f.out.WriteByte('\n')
	return nil
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

// ended notes why a stream ended, if it should not have.
func (f *eventFilter) ended(err error) error {
	switch e, ours := errors.AsType[*Error](err); {
	case ours:
		f.note.set(e)
		f.guard.fail(e)
	case f.bounded && !f.sawID:
		f.note.set(bodyError(err))
	}
	return err
}
