package streamable

import (
	"context"
	"net/http"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// reply writes the messages of a stream to the client. If the first message is the only answer,
// it writes a JSON body, and otherwise an event stream.
type reply struct {
	handler  *Handler
	w        http.ResponseWriter
	r        *edge.Request
	stream   *session.Stream
	revision string
	after    string // the id of the last event that the client got, if it resumes the stream
}

func (p *reply) run() {
	defer p.stream.Detach()
	if p.r.Batch { // has several answers
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

// writeAll answers with a JSON body, or with an event stream if there are several events.
func (h *Handler) writeAll(w http.ResponseWriter, all []session.Event) {
	if len(all) == 1 {
		front.WriteJSON(w, http.StatusOK, all[0].Message, h.WriteTimeout, nil)
		return
	}
	events := front.StartEvents(w, http.StatusOK, h.WriteTimeout, nil)
	for _, event := range all {
		events.Append(rpc.Event{Data: event.Message})
	}
	_ = events.Flush() // on an error the client has gone
}

// streamEvents answers with an event stream, until the stream ends or the client disconnects.
// It takes the first message after MakeResumable, so that every event has an id.
func (p *reply) streamEvents() {
	events := front.StartEvents(p.w, http.StatusOK, p.handler.WriteTimeout, p.stream)
	beginning, resumable := p.stream.MakeResumable()
	if p.after != "" {
		beginning = p.after // so that a client that resumes again gets no event twice
	}
	if resumable && p.revision == front.Revision20251125 {
		events.Prime(beginning, p.handler.Retry)
	} else {
		events.Comment()
	}
	source := &source{stream: p.stream, record: &p.r.Record, resumable: resumable}
	if events.Run(p.r.Context(), p.handler.KeepAlive, source) && source.last {
		p.r.Record.Answered("") // has no effect if a call has failed
	}
}

// source is the front.Source of a reply.
type source struct {
	stream    *session.Stream
	record    *edge.Record
	resumable bool
	id        []byte // id of the event that was appended last
	last      bool   // no event follows that one
}

// Gather implements front.Source. If the client has resumed the stream on another connection,
// it gets the gathered events there, and this response ends.
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
	if failed := event.Failed(); failed != "" { // a batch has failed if one of its calls has
		s.record.Answered(edge.ErrorType(failed))
	}
}

// Wait implements front.Source.
func (s *source) Wait(ctx context.Context, _ *front.Events) {
	select {
	case <-ctx.Done():
	case <-s.stream.Ready():
	}
}
