package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/toolindex"
)

// DialStateless returns a connection, if the server's port accepts connections. The server is shown
// what the caller shows with messages that the adapter sends itself.
func (s *Server) DialStateless(ctx context.Context, from *caller.Caller) (*Stateless, error) {
	if err := s.Check(ctx); err != nil {
		return nil, err
	}
	return &Stateless{link: newLink(s, from)}, nil
}

// Stateless makes of a server that keeps nothing between two requests what looks
// like a process. It does not end before it is closed.
type Stateless struct {
	*link
	tools mirroredTools
}

var errNoAnswers = errors.New("protocol revision " + front.Revision20260728 + " has no answers of clients")

// Send posts a request, and returns when the server has read it. A request that is
// cancelled is cut off, which is how the server learns of it (M-09). There is no other
// notification that a server must see (M-04).
func (c *Stateless) Send(ctx context.Context, sent session.Message) error {
	message := sent.Bytes
	from := sent.From
	message = bytes.Clone(message) // it may be sent again when the caller has gone on
	envelope, err := rpc.Scan(message)
	if err != nil {
		return fmt.Errorf("send message to the server: %w", err)
	}
	switch envelope.Kind {
	case rpc.Response:
		return errNoAnswers
	case rpc.Notification:
		if string(envelope.Method) == rpc.MethodCancelled {
			if cancelled := c.find(envelope.RequestID.Of(message)); cancelled != nil {
				cancelled.cancel()
			}
		}
		return nil
	}
	var learn func(session.Message)
	if string(envelope.Method) == toolindex.Method {
		learn = func(answer session.Message) { c.tools.learn(answer.Envelope.Result.Of(answer.Bytes)) }
	}
	flight, err := c.begin(c.live, envelope.ID.Of(message), learn)
	if err != nil {
		return err
	}
	flight.by = sender{header: c.header}
	if from != nil {
		flight.by = senderOf(from)
	}
	request := session.Message{Bytes: message, Envelope: envelope}
	return c.request(ctx, flight, func(ctx context.Context) error {
		return c.call(ctx, flight, request)
	})
}

// headerTries is how often a request is sent: with the headers that are known, with those
// of a fresh list of tools, and with its name as it is.
const headerTries = 3

// call sends a request and has its answer received. One that is refused for its headers,
// so that nothing came of it, is sent again if others can be found.
func (c *Stateless) call(ctx context.Context, flight *call, request session.Message) error {
	mirror := c.tools.mirror(request)
	for try := 1; ; try++ {
		refused, err := c.try(ctx, flight, request, withAll(flight.by.header, mirror))
		if err != nil {
			return c.failed(ctx, flight, err)
		}
		if refused == nil {
			return nil
		}
		if try < headerTries {
			mirror = c.better(ctx, request, flight.by.header, mirror)
		}
		if mirror == nil || try == headerTries {
			c.answer(flight, refused)
			return nil
		}
	}
}

// try sends a request and has its answer received, unless that is that its headers do
// not say what the body says.
func (c *Stateless) try(ctx context.Context, flight *call, request session.Message, header http.Header) (refused []byte, err error) {
	response, err := c.post(ctx, request.Bytes, header)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	flight.by.isAccepted(response.StatusCode)
	if response.StatusCode < http.StatusMultipleChoices && IsEvents(response.Header) {
		c.follow(flight, response.Body)
		return nil, nil
	}
	body, err := c.readBody(response)
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		answer := errorIn(flight, response.StatusCode, body)
		if codeOf(answer) == rpc.CodeHeaderMismatch {
			return answer, nil
		}
		c.answer(flight, answer)
		return nil, nil
	}
	c.deliver(flight, body, true)
	if !flight.answered {
		c.fail(flight, fmt.Sprintf("the server's answer with status %d has no answer to the request in it", response.StatusCode))
	}
	return nil, nil
}

func (c *Stateless) post(ctx context.Context, message []byte, header http.Header) (*http.Response, error) {
	request := NewRequest(ctx, http.MethodPost, c.server.URL, message)
	request.Header = header
	return c.server.endpoint.Send(request)
}

// follow has the stream of a call received until its answer. Nothing can be resumed
// (M-10).
func (c *Stateless) follow(flight *call, stream io.ReadCloser) {
	_, err := c.readEvents(newEventReader(stream, c.server.MessageBytes, c.server.Memory), flight)
	switch {
	case flight.answered:
		awaitEnd(stream)
	case errors.Is(err, rpc.ErrEventTooLarge):
		c.fail(flight, err.Error())
	default:
		c.fail(flight, "the server ended the stream of the call without an answer")
	}
}

// Close ends the connection, and with it all requests.
func (c *Stateless) Close() { c.finish(session.ErrEnded) }
