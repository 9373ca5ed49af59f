package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// DialStateful returns a connection for one session, if the server's port accepts connections.
// The server is shown what the caller shows, until others are let in on the connection.
// The user of the connection sends initialize.
func (s *Server) DialStateful(ctx context.Context, from *caller.Caller) (*Stateful, error) {
	if err := s.Check(ctx); err != nil {
		return nil, err
	}
	return newStateful(newLink(s, from)), nil
}

func newStateful(by *link) *Stateful {
	return &Stateful{link: by, senders: senders{opener: by.header}}
}

// Stateful is one session with a server.
type Stateful struct {
	*link
	senders
	listening sync.Once
	streams   atomic.Bool // the server is known to answer GET with a stream
	away      atomic.Bool // the server was not there when it was last asked

	agreed struct { // with the server
		sync.Mutex
		session, revision string
	}
}

// cancelGrace is for the server to answer a request that was cancelled. It need not, and
// then nobody else would end the stream.
const cancelGrace = 5 * time.Second

// Send posts one message. It returns when the server has read it, and for what is not a
// request, has accepted it or not said anything for a while.
func (c *Stateful) Send(ctx context.Context, sent session.Message) error {
	message := sent.Bytes
	from := sent.From
	message = bytes.Clone(message) // it may be sent again when the caller has gone on
	envelope, err := rpc.Scan(message)
	if err != nil {
		return fmt.Errorf("send message to the server: %w", err)
	}
	if envelope.Kind == rpc.Request {
		return c.sendRequest(ctx, from, message, envelope)
	}
	by := c.sender(from)
	err = c.posts.post(ctx, c.live, posting{
		do:      func(ctx context.Context) error { return c.tell(ctx, message, by) },
		ackWait: ackWait,
		late:    func(<-chan error, context.CancelFunc) {}, // it is on its way, and nobody waits for more
	})
	if err != nil {
		return err
	}
	switch string(envelope.Method) {
	case "notifications/initialized":
		c.listening.Do(func() { go c.listen() })
	case rpc.MethodCancelled:
		if cancelled := c.find(envelope.RequestID.Of(message)); cancelled != nil {
			timer := time.AfterFunc(cancelGrace, cancelled.cancel)
			context.AfterFunc(cancelled.ctx, func() { timer.Stop() })
		}
	}
	return nil
}

// isKnown says whether the server refuses the sender for the session's sake. A token that
// does not say whose it is may be another's, as long as the server has not accepted it.
func (c *Stateful) isKnown(by sender) bool {
	return by.from == nil || by.from.Principal != caller.SomeToken ||
		slices.Equal(by.header["Authorization"], c.lastHeader()["Authorization"])
}

func (c *Stateful) sendRequest(ctx context.Context, from *caller.Caller, message []byte, envelope rpc.Envelope) error {
	id := envelope.ID.Of(message)
	if string(envelope.Method) == "initialize" {
		return c.sendInitialize(ctx, from, id, message)
	}
	flight, err := c.begin(c.live, id, nil)
	if err != nil {
		return err
	}
	flight.by = c.sender(from)
	return c.request(ctx, flight, func(ctx context.Context) error {
		response, err := c.post(ctx, message, flight.by.header)
		if err != nil {
			return c.failed(ctx, flight, err)
		}
		defer func() { _ = response.Body.Close() }()
		c.take(ctx, flight, response)
		return nil
	})
}

// post posts a message in the session.
func (c *Stateful) post(ctx context.Context, message []byte, header http.Header) (*http.Response, error) {
	request := NewRequest(ctx, http.MethodPost, c.server.URL, message)
	request.Header = header.Clone()
	request.Header.Set("Content-Type", front.TypeJSON)
	request.Header.Set("Accept", AcceptBoth)
	return c.do(request)
}

// get asks for a stream of the session, from after an event on if it has a name.
func (c *Stateful) get(ctx context.Context, lastEventID string, header http.Header) (*http.Response, error) {
	request := NewRequest(ctx, http.MethodGet, c.server.URL, nil)
	request.Header = header.Clone()
	request.Header.Set("Accept", front.TypeEvents)
	request.Header.Set("Cache-Control", "no-store")
	if lastEventID != "" {
		request.Header.Set(front.HeaderLastEventID, lastEventID)
	}
	return c.do(request)
}

// do makes a request in the session.
func (c *Stateful) do(request *http.Request) (*http.Response, error) {
	id, revision := c.known()
	if id != "" {
		request.Header.Set(front.HeaderSession, id)
	}
	if revision != "" {
		request.Header.Set(front.HeaderRevision, revision)
	}
	response, err := c.server.endpoint.Send(request)
	if err != nil && request.Context().Err() == nil && !errors.Is(err, ErrUnusable) {
		c.away.Store(true)
	}
	return response, err
}

func (c *Stateful) known() (id, revision string) {
	c.agreed.Lock()
	defer c.agreed.Unlock()
	return c.agreed.session, c.agreed.revision
}

// take has the answer to a request received.
func (c *Stateful) take(ctx context.Context, flight *call, response *http.Response) {
	c.noteAnswer(flight.by, response.StatusCode)
	if response.StatusCode < http.StatusMultipleChoices && IsEvents(response.Header) {
		c.away.Store(false)
		c.follow(ctx, flight, response)
		return
	}
	body, err := c.readBody(response)
	switch {
	case err != nil:
		c.fail(flight, err.Error())
	case c.forgotten(response.StatusCode, false) && c.isKnown(flight.by) && !isAboutCall(flight, response.StatusCode, body):
		c.finish(errNoSession)
	case response.StatusCode >= http.StatusMultipleChoices:
		c.answer(flight, errorIn(flight, response.StatusCode, body))
	default:
		c.deliver(flight, body, true)
		if !flight.answered {
			c.fail(flight, fmt.Sprintf("the server's answer with status %d has no answer to the request in it", response.StatusCode))
		}
	}
}

// isAboutCall says whether an error is about the call, and not about its session. By 404
// later revisions say that there is no such method (M-20); some servers use it for a
// session, and name the call all the same.
func isAboutCall(flight *call, status int, body []byte) bool {
	envelope, err := rpc.ScanLenient(body)
	if err != nil || !envelope.Error.Present() || !rpc.SameID(envelope.ID.Of(body), flight.id) {
		return false
	}
	return status == http.StatusBadRequest || codeOf(body) == rpc.CodeMethodNotFound
}

// forgotten says whether a status means that the server does not know the session any
// more, which is told by the same signs as in Proxy.
func (c *Stateful) forgotten(status int, stream bool) bool {
	id, _ := c.known()
	switch {
	case status < http.StatusMultipleChoices:
		c.away.Store(false)
		return false
	case id == "":
		return false
	case status == http.StatusNotFound:
		return !stream || c.streams.Load() // R35
	}
	return status == http.StatusBadRequest && !stream && c.away.Load()
}

// tell posts what has no answer.
func (c *Stateful) tell(ctx context.Context, message []byte, by sender) error {
	response, err := c.post(ctx, message, by.header)
	if err != nil {
		return err
	}
	Discard(response)
	c.noteAnswer(by, response.StatusCode)
	switch status := response.StatusCode; {
	case c.forgotten(status, false) && c.isKnown(by):
		c.finish(errNoSession)
		return fmt.Errorf("%w: %w", session.ErrEnded, errNoSession)
	case status >= http.StatusMultipleChoices:
		return fmt.Errorf("the server refuses the message with status %d", status)
	}
	return nil
}

// Close ends the connection, and the session at the server.
func (c *Stateful) Close() {
	if c.finish(session.ErrEnded) {
		go c.leave()
	}
}
