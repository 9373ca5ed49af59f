package remote

import (
	"context"
	"errors"
	"net/http"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/toolindex"
)

// DialStateless returns a connection to a server of revision 2026-07-28, if the server's port
// accepts connections.
func (s *Server) DialStateless(ctx context.Context) (mux.Server, error) {
	if err := s.reach(ctx); err != nil {
		return nil, err
	}
	return &Stateless{link: newLink(s, nil)}, nil
}

// Stateless is a connection to a server that keeps nothing between two requests. It does not end
// before it is closed.
type Stateless struct {
	*link
	tools mirroredTools
}

var errNoAnswers = errors.New("protocol revision " + front.Revision20260728 + " has no answers of clients")

// Send posts a request, and returns when the server has read it. To cancel a request, Send ends its
// POST: so the server learns of it (M-09). Servers of this revision take no other notification
// (M-04).
func (c *Stateless) Send(ctx context.Context, sent session.Message) error {
	message, err := sent.Scanned()
	if err != nil {
		return err
	}
	switch message.Envelope.Kind {
	case rpc.Response:
		return errNoAnswers
	case rpc.Notification:
		if string(message.Envelope.Method) == rpc.MethodCancelled {
			if cancelled := c.find(message); cancelled != nil {
				cancelled.cancel()
			}
		}
		return nil
	}
	text := kept(message)
	flight := c.begin(c.live, message.Envelope.ID.Of(text), c.sender(message.From))
	if string(message.Envelope.Method) == toolindex.Method {
		flight.learn = func(answer session.Message) { c.tools.learn(answer.Envelope.Result.Of(answer.Bytes)) }
	}
	header := c.tools.mirror(message, flight.by.header)
	return c.request(ctx, flight, func(ctx context.Context) error {
		return c.call(ctx, flight, text, header)
	})
}

// headerTries is how often Send posts a request: with the headers that the adapter knows of, with
// those of a fresh list of tools, and with its name unencoded.
const headerTries = 3

// call sends a request and has its answer received. A server that refuses a request for its headers
// has done nothing, so call sends it again if it finds other headers.
func (c *Stateless) call(ctx context.Context, flight *call, text []byte, header http.Header) error {
	for try := 1; ; try++ {
		refused, err := c.try(ctx, flight, text, header)
		switch {
		case err != nil && try > 1:
			c.fail(flight, err.Error()) // Send has returned
			return nil
		case err != nil:
			return c.failed(ctx, flight, err)
		case refused == nil:
			return nil
		}
		if try < headerTries {
			header = c.better(ctx, text, flight.by.header, header)
		}
		if header == nil || try == headerTries {
			c.answer(flight, refused)
			return nil
		}
	}
}

// try sends a request. It has the answer received, unless that says that the headers do not repeat
// the body. It returns that answer.
func (c *Stateless) try(ctx context.Context, flight *call, text []byte, header http.Header) (refused []byte, err error) {
	response, err := c.post(ctx, text, header)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	flight.by.isAccepted(response.StatusCode)
	if isStream(response) { // it cannot be resumed (M-10)
		if _, err := c.readEvents(c.server.events(response.Body), response, flight); err != nil {
			c.streamEnded(flight, err)
		}
		return nil, nil
	}
	body, err := c.server.readBody(response)
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		if answer := errorIn(flight, response.StatusCode, body); codeOf(answer) == rpc.CodeHeaderMismatch {
			return answer, nil
		}
	}
	c.takeBody(flight, response.StatusCode, body)
	return nil, nil
}

func (c *Stateless) post(ctx context.Context, message []byte, header http.Header) (*http.Response, error) {
	return c.server.endpoint.Send(NewRequest(ctx, http.MethodPost, c.server.URL, header, message))
}
