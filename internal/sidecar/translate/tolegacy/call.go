package tolegacy

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

const methodProgress = "notifications/progress"

// call is a request of the client, until it is answered or the client cancels it. It may take
// several requests to the modern server.
//
// It is its own context, which ends when the client does not wait for the call any more. One
// of package context would be three allocations in place of one.
type call struct {
	context.Context // of the session

	request  session.Message // as the modern server gets it the first time
	revision string
	can      abilities
	gone     chan struct{}  // closed when the client does not wait for the call any more
	from     caller.Caller  // of the client's request
	sender   *caller.Caller // of the last message that the next request is due to

	progress float64 // that the client has seen last
	rounds   int
	retries  int
}

// Done is that of a context.
func (c *call) Done() <-chan struct{} { return c.gone }

// Err is that of a context.
func (c *call) Err() error {
	select {
	case <-c.gone:
		return context.Canceled
	default:
		return nil
	}
}

// id is the id of the client's request, as the client spelled it.
func (c *call) id() []byte { return c.request.Envelope.ID.Of(c.request.Bytes) }

func (c *call) method() []byte { return c.request.Envelope.Method }

// call passes a request on.
func (s *Server) call(ctx context.Context, request session.Message) error {
	c, err := s.register(request)
	if err != nil {
		return err
	}
	exchange, err := s.options.Modern.Call(ctx, c.request)
	if err != nil {
		s.forget(c)
		s.work.Done()
		return fmt.Errorf("send request to server: %w", err)
	}
	go s.converse(c, exchange)
	return nil
}

// register makes a call known. The session has no other call with the same id.
func (s *Server) register(request session.Message) (*call, error) {
	c := &call{Context: s.ctx, progress: math.Inf(-1), gone: make(chan struct{})}
	if request.From != nil {
		c.from = *request.From // the session uses its memory again
		c.sender = &c.from
	}
	s.mu.Lock()
	meta := s.meta
	c.revision, c.can = s.client.revision, s.client.can
	s.mu.Unlock()
	c.request = scanned(enveloped(request, meta))
	c.request.From = c.sender
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, session.ErrEnded
	}
	s.work.Add(1)
	s.calls[c] = struct{}{}
	return c, nil
}

// forget says whether the client still waited for the call. It does not afterwards.
func (s *Server) forget(c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.forgetLocked(c)
}

func (s *Server) forgetLocked(c *call) bool {
	if _, known := s.calls[c]; !known {
		return false
	}
	delete(s.calls, c)
	close(c.gone)
	return true
}

// cancelCall ends a call that the client has cancelled. It gets no answer (U-02).
func (s *Server) cancelCall(id []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.calls {
		if rpc.SameID(c.id(), id) {
			s.forgetLocked(c)
			return
		}
	}
	s.metrics.DroppedMessages.Inc()
}

// answer ends a call, unless the client has.
func (s *Server) answer(c *call, message session.Message) {
	if s.forget(c) {
		s.receive(message)
	}
}

// fail ends a call with an error.
func (s *Server) fail(c *call, text string) {
	s.answer(c, scanned(rpc.AppendError(nil, c.id(), rpc.CodeInternal, text, nil)))
}

// passOn gives the client a notification that belongs to a call: progress, with the client's
// own token, or a log message.
func (s *Server) passOn(c *call, notification []byte) {
	m := scanned(notification)
	e := &m.Envelope
	if e.Kind != rpc.Notification || string(e.Method) == methodProgress && !c.advances(notification, e.Params) {
		s.metrics.DroppedMessages.Inc()
		return
	}
	m.Call = c.id()
	s.receive(m)
}

// advances reports whether progress is more than the client has seen. Every round is another
// request to the server, whose progress may start over. The client sees one request, whose
// progress must not go back (U-05).
func (c *call) advances(notification []byte, params rpc.Span) bool {
	progress, err := strconv.ParseFloat(string(rpc.Lookup(notification, params, "progress").Of(notification)), 64)
	if first := c.rounds+c.retries == 0; err != nil || progress <= c.progress {
		return first // the client decides what to do with it
	}
	c.progress = progress
	return true
}
