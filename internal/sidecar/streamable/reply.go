package streamable

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/frontend"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// reply writes the messages of a stream to the client. It decides late how: if the first
// message is the answer, it writes one JSON body, and otherwise an event stream.
type reply struct {
	handler  *Handler
	w        http.ResponseWriter
	r        *edge.Request
	stream   *session.Stream
	revision string
	batch    bool   // with one answer for each of its requests
	after    string // the event that the client has, if it resumes the stream

	control   *http.ResponseController
	resumable bool
	id        []byte // of the last event in the buffer
	buffer    []byte // what flush writes next
}

func (p *reply) run() {
	defer p.stream.Detach()
	if p.batch {
		p.streamEvents()
		return
	}
	for {
		switch event, ok, others, end := p.stream.TakeSole(); {
		case ok && event.Message == nil:
			frontend.StartEvents(p.w) // and write no event: the client has cancelled the call
			p.r.Record.Answered(edge.ErrorType(event.Failed()))
			return
		case ok:
			p.handler.writeJSON(p.stream, p.w, event.Message)
			p.r.Record.Answered(edge.ErrorType(event.Failed()))
			return
		case others:
			p.streamEvents()
			return
		case end:
			return
		}
		select {
		case <-p.r.Context().Done():
			return
		case <-p.stream.Ready():
		}
	}
}

// writeSize is how many bytes one write has, within one deadline.
const writeSize = 64 << 10

// saidLength is the size of a body up to which net/http itself sets Content-Length.
const saidLength = 2 << 10

// writeJSON writes an answer. The stream is nil while the session is not open yet.
func (h *Handler) writeJSON(stream *session.Stream, w http.ResponseWriter, body []byte) {
	header := w.Header()
	header["Content-Type"] = jsonType
	if len(body) > saidLength {
		header["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	if len(body) <= writeSize {
		_, _ = w.Write(body) // fits into buffers; the client has it, or is gone
		return
	}
	control := http.NewResponseController(w)
	if stream == nil {
		_ = frontend.WritePieces(w, control, body, h.WriteTimeout) // as above
	} else {
		_ = frontend.WriteInterruptible(stream, w, control, body, h.WriteTimeout) // as above
	}
}

// All answers share it, so that none allocates its own.
var jsonType = []string{frontend.TypeJSON}

// writeAll answers with one body or, if there is more than one event, a stream.
func (h *Handler) writeAll(w http.ResponseWriter, events []session.Event) {
	if len(events) == 1 {
		h.writeJSON(nil, w, events[0].Message)
		return
	}
	frontend.StartEvents(w)
	var buffer []byte
	for _, event := range events {
		buffer = rpc.AppendEvent(buffer, rpc.Event{Data: event.Message})
	}
	_, _ = w.Write(buffer) // the client has it, or is gone
}

// streamEvents answers by an event stream, until it ends or the client disconnects. It
// takes the first message only after MakeResumable, so that every event has an id.
func (p *reply) streamEvents() {
	timer := time.NewTimer(p.handler.KeepAlive)
	defer timer.Stop()
	p.control = http.NewResponseController(p.w)
	frontend.StartEvents(p.w)
	beginning, resumable := p.stream.MakeResumable()
	p.resumable = resumable
	if p.after != "" {
		beginning = p.after // a client that resumes once more gets no event twice
	}
	if resumable && p.revision == frontend.Revision20251125 {
		p.buffer = rpc.AppendPriming(p.buffer, beginning, int(p.handler.Retry.Milliseconds()))
	} else {
		// Proxies hold headers back until something follows them.
		p.buffer = append(p.buffer, rpc.KeepAlive...)
	}
	for p.flush() && p.wait(timer) {
	}
}

func (p *reply) append(event session.Event) {
	if event.Message != nil {
		if p.resumable {
			p.id = p.stream.AppendID(p.id[:0], event)
		}
		p.begin()
		p.buffer = rpc.AppendEvent(p.buffer, rpc.Event{ID: p.id, Data: event.Message})
	}
	if event.Failed() != "" { // one error makes a batch fail
		p.r.Record.Answered(edge.ErrorType(event.Failed()))
	}
}

// All streams share writeBuffers. A stream has one only while it has something to write.
var writeBuffers = sync.Pool{New: func() any { return new([]byte) }}

// begin takes a buffer, unless the stream has one.
func (p *reply) begin() {
	if p.buffer == nil {
		p.buffer = *writeBuffers.Get().(*[]byte) // the pool has no other type
	}
}

// flush writes the buffer. It treats a client that does not read in time as gone; the
// client can resume the stream. If it has resumed already, the other connection gets what
// is in the buffer.
func (p *reply) flush() bool {
	if p.stream.Replaced() {
		p.r.Record.Answered(edge.Cancelled) // as if the client had closed this connection
		return false
	}
	if len(p.buffer) == 0 {
		return true
	}
	if frontend.WriteInterruptible(p.stream, p.w, p.control, p.buffer, p.handler.WriteTimeout) != nil {
		return false
	}
	if cap(p.buffer) <= 4*writeSize { // a larger one, grown by a large event, is garbage
		written := p.buffer[:0]
		writeBuffers.Put(&written)
	}
	p.buffer = nil
	return p.control.Flush() == nil
}

// wait fills the buffer with the events that are there, or waits for one. It says whether
// the stream goes on.
func (p *reply) wait(timer *time.Timer) bool {
	for {
		event, ok, end := p.stream.Take()
		switch {
		case ok && event.Last:
			p.append(event)
			failed := event.Failed()
			event = session.Event{} // flush writes the copy in the buffer, and may take long
			if p.flush() {
				p.r.Record.Answered(edge.ErrorType(failed))
			}
			return false
		case ok:
			p.append(event)
			if len(p.buffer) >= writeSize {
				return true
			}
			continue
		case end:
			p.flush()
			return false
		case len(p.buffer) > 0:
			return true
		}
		timer.Reset(p.handler.KeepAlive)
		select {
		case <-p.r.Context().Done():
			return false
		case <-p.stream.Ready():
		case <-timer.C:
			p.buffer = append(p.buffer, rpc.KeepAlive...)
			return true
		}
	}
}
