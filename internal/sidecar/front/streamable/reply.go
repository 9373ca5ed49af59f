package streamable

import (
	"context"
	"net/http"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
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
	after    string // the event that the client has, if it resumes the stream
}

func (p *reply) run() {
	defer p.stream.Detach()
	if p.r.Batch { // with one answer for each of its requests
		p.streamEvents()
		return
	}
	for {
		switch event, ok, others, end := p.stream.TakeSole(); {
		case ok:
			if event.Message != nil {
				front.WriteJSON(p.w, http.StatusOK, event.Message, p.handler.WriteTimeout, p.stream)
			} else { // the client has cancelled the call, and gets an empty event stream
				front.StartEvents(p.w, http.StatusOK, p.handler.WriteTimeout, p.stream)
			}
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

// writeAll answers with one body or, if there is more than one event, a stream.
func (h *Handler) writeAll(w http.ResponseWriter, all []session.Event) {
	if len(all) == 1 {
		front.WriteJSON(w, http.StatusOK, all[0].Message, h.WriteTimeout, nil)
		return
	}
	events := front.StartEvents(w, http.StatusOK, h.WriteTimeout, nil)
	for _, event := range all {
		events.Append(rpc.Event{Data: event.Message})
	}
	_ = events.Flush() // the client has it, or is gone
}

// streamEvents answers by an event stream, until it ends or the client disconnects. It
// takes the first message only after MakeResumable, so that every event has an id.
func (p *reply) streamEvents() {
	events := front.StartEvents(p.w, http.StatusOK, p.handler.WriteTimeout, p.stream)
	beginning, resumable := p.stream.MakeResumable()
	if p.after != "" {
		beginning = p.after // a client that resumes once more gets no event twice
	}
	if resumable && p.revision == front.Revision20251125 {
		events.Prime(beginning, p.handler.Retry)
	} else {
		events.Comment()
	}
	source := &source{stream: p.stream, record: &p.r.Record, resumable: resumable}
	if events.Run(p.r.Context(), p.handler.KeepAlive, source) && source.last {
		p.r.Record.Answered("") // unless a call has failed
	}
}

// source is what the event stream of a reply is made of.
type source struct {
	stream    *session.Stream
	record    *edge.Record
	resumable bool
	id        []byte // of the event that was appended last
	last      bool   // nothing follows that event
}

// Gather is that of front.Source. A client that is treated as gone can come back and
// resume. If it has come back already, it gets there what was gathered here.
func (s *source) Gather(to *front.Events) (more bool) {
	more = s.take(to)
	if s.stream.Replaced() {
		s.record.Answered(edge.Cancelled) // as if the client had closed this connection
		to.Drop()
		return false
	}
	return more
}

func (s *source) take(to *front.Events) (more bool) {
	for !s.last && !to.Full() {
		event, ok, end := s.stream.Take()
		if !ok {
			return !end
		}
		s.append(to, event)
	}
	return !s.last
}

func (s *source) append(to *front.Events, event session.Event) {
	if event.Message != nil {
		if s.resumable {
			s.id = s.stream.AppendID(s.id[:0], event)
		}
		to.Append(rpc.Event{ID: s.id, Data: event.Message})
	}
	s.last = event.Last
	if failed := event.Failed(); failed != "" { // one of a batch is enough
		s.record.Answered(edge.ErrorType(failed))
	}
}

// Wait is that of front.Source.
func (s *source) Wait(ctx context.Context, _ *front.Events) {
	select {
	case <-ctx.Done():
	case <-s.stream.Ready():
	}
}
