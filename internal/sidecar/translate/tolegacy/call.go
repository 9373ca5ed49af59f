package tolegacy

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"strconv"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

const methodProgress = "notifications/progress"

// call is a request of the client's, from when it is made until it is answered or the
// client does not want it any more. It may take several requests to the modern server.
type call struct {
	key      string
	id       []byte // as the client spelled it
	method   string
	revision string
	can      abilities
	request  session.Message // as the modern server gets it the first time
	ctx      context.Context // until nobody waits for it any more
	cancel   context.CancelFunc
	from     caller.Caller  // of the client's request
	sender   *caller.Caller // of the last message that the next request is due to

	progress float64 // what the client was told last
	rounds   int
	retries  int
}

// call passes a request on.
func (s *Server) call(ctx context.Context, request session.Message) error {
	c, err := s.register(request)
	if err != nil {
		return err
	}
	exchange, err := s.options.Modern.Call(ctx, c.request)
	if err != nil {
		s.forget(c)
		return fmt.Errorf("send request to server: %w", err)
	}
	if !s.do(func() { s.converse(c, exchange) }) {
		exchange.Release()
		return session.ErrEnded
	}
	return nil
}

func (s *Server) register(request session.Message) (*call, error) {
	id := bytes.Clone(request.Envelope.ID.Of(request.Bytes))
	c := &call{key: string(rpc.IDKey(id)), id: id, method: string(request.Envelope.Method), progress: math.Inf(-1)}
	if request.From != nil {
		c.from = *request.From // which is not ours to keep
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
	switch {
	case s.closed:
		return nil, session.ErrEnded
	case s.calls[c.key] != nil:
		return nil, session.ErrDuplicateID
	}
	c.ctx, c.cancel = context.WithCancel(s.ctx)
	s.calls[c.key] = c
	return c, nil
}

// forget says whether the call was still waited for. Nobody does afterwards.
func (s *Server) forget(c *call) bool {
	c.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[c.key] != c {
		return false
	}
	delete(s.calls, c.key)
	return true
}

// cancelCall is for a call that the client does not want any more. It gets no answer
// (U-02).
func (s *Server) cancelCall(id []byte) {
	s.mu.Lock()
	c := s.calls[string(rpc.IDKey(id))]
	s.mu.Unlock()
	if c == nil {
		s.metrics.DroppedMessages.Inc()
		return
	}
	s.forget(c)
}

// answer ends a call, unless the client has.
func (s *Server) answer(c *call, message session.Message) {
	if s.forget(c) {
		message.Owned = true
		s.receive(message)
	}
}

// fail ends a call with an error.
func (s *Server) fail(c *call, text string) {
	s.answer(c, scanned(rpc.AppendError(nil, c.id, rpc.CodeInternal, text, nil)))
}

// follow passes on what comes before the answer to a request, and returns that, or nil if
// nobody waits for it any more.
func (s *Server) follow(c *call, exchange Exchange) []byte {
	defer exchange.Release()
	for {
		message, last, err := await(c.ctx, exchange)
		switch {
		case err != nil:
			return nil
		case last:
			return message
		}
		s.passOn(c, message)
	}
}

// passOn gives the client a notification that belongs to a call: progress, with the
// client's own token, or a log message.
func (s *Server) passOn(c *call, notification []byte) {
	e, err := rpc.ScanLenient(notification)
	if err != nil || e.Kind != rpc.Notification || string(e.Method) == methodProgress && !c.advances(notification, e.Params) {
		s.metrics.DroppedMessages.Inc()
		return
	}
	s.receive(session.Message{Bytes: notification, Envelope: e, Owned: true, Call: c.id})
}

// advances says whether progress is more than the client was told before. To the server
// every round is another request, whose progress may begin anew; to the client there is
// one, whose progress must not go back (U-05).
func (c *call) advances(notification []byte, params rpc.Span) bool {
	progress, err := strconv.ParseFloat(string(rpc.Lookup(notification, params, "progress").Of(notification)), 64)
	if err != nil {
		return c.rounds+c.retries == 0 // the client knows best what to do with it
	}
	if progress <= c.progress && c.rounds+c.retries > 0 {
		return false
	}
	c.progress = max(c.progress, progress)
	return true
}
