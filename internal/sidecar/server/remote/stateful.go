package remote

import (
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
	"github.com/slipway-mcp/slipway/internal/sidecar/mux"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// DialStateful returns a connection for one session, if the server's port accepts connections. The
// user of the connection sends initialize. Requests that the adapter makes by itself carry the
// caller's token, until the server accepts that of another caller.
func (s *Server) DialStateful(ctx context.Context, from *caller.Caller) (mux.Server, error) {
	if err := s.reach(ctx); err != nil {
		return nil, err
	}
	return newStateful(s, from), nil
}

func newStateful(s *Server, from *caller.Caller) *Stateful {
	return &Stateful{link: newLink(s, from), settled: make(chan struct{})}
}

// Stateful is one session with a server of Streamable HTTP.
type Stateful struct {
	*link
	listening sync.Once
	settle    sync.Once
	settled   chan struct{} // closed when the server has answered the first GET, or is not expected to
	streams   atomic.Bool   // the server is known to answer GET with a stream
	away      atomic.Bool   // the server did not answer the last request

	agreed struct { // with the server
		sync.Mutex
		session, revision string
	}
}

// cancelGrace is for the server to answer a request that was cancelled. It need not answer. Then the
// connection ends the stream.
const cancelGrace = 5 * time.Second

// Send posts one message. For a request it returns when the server has read it. For any other
// message it returns when the server has accepted it, or has read it and been silent for a while.
func (c *Stateful) Send(ctx context.Context, sent session.Message) error {
	message, err := sent.Scanned()
	if err != nil {
		return err
	}
	text, by := kept(message), c.sender(message.From)
	if message.Envelope.Kind == rpc.Request {
		return c.sendRequest(ctx, by, text, message.Envelope)
	}
	if _, err = c.startPost(ctx, c.live, ackWait, func(ctx context.Context) error { return c.tell(ctx, text, by) }); err != nil {
		return err
	}
	switch string(message.Envelope.Method) {
	case "notifications/initialized":
		c.listening.Do(func() { go c.listen() })
		c.awaitStream(ctx, ackWait)
	case rpc.MethodCancelled:
		if cancelled := c.find(message); cancelled != nil {
			time.AfterFunc(cancelGrace, cancelled.cancel)
		}
	}
	return nil
}

func (c *Stateful) sendRequest(ctx context.Context, by sender, text []byte, envelope rpc.Envelope) error {
	id := envelope.ID.Of(text)
	if string(envelope.Method) == rpc.MethodInitialize {
		return c.sendInitialize(ctx, by, id, text)
	}
	return c.exchange(ctx, c.begin(c.live, id, by), text, c.take)
}

// exchange posts a request, and has take read the response.
func (c *Stateful) exchange(ctx context.Context, flight *call, text []byte, take func(context.Context, *call, *http.Response)) error {
	return c.request(ctx, flight, func(ctx context.Context) error {
		response, err := c.post(ctx, text, flight.by.header)
		if err != nil {
			return c.failed(ctx, flight, err)
		}
		defer func() { _ = response.Body.Close() }()
		take(ctx, flight, response)
		return nil
	})
}

// post posts a message in the session.
func (c *Stateful) post(ctx context.Context, message []byte, header http.Header) (*http.Response, error) {
	request := NewRequest(ctx, http.MethodPost, c.server.URL, header.Clone(), message)
	request.Header.Set("Content-Type", front.TypeJSON)
	request.Header.Set("Accept", AcceptBoth)
	return c.do(request)
}

// do makes a request in the session.
func (c *Stateful) do(request *http.Request) (*http.Response, error) {
	c.agreed.Lock()
	nameSession(request.Header, c.agreed.session, c.agreed.revision)
	c.agreed.Unlock()
	response, err := c.server.endpoint.Send(request)
	if err != nil && request.Context().Err() == nil && !errors.Is(err, ErrUnusable) {
		c.away.Store(true)
	}
	return response, err
}

// nameSession sets the headers by which a request belongs to a session.
func nameSession(header http.Header, id, revision string) {
	if id != "" {
		header.Set(front.HeaderSession, id)
	}
	if IsHeaderValue(revision) {
		header.Set(front.HeaderRevision, revision)
	}
}

// take has the answer to a request received.
func (c *Stateful) take(ctx context.Context, flight *call, response *http.Response) {
	c.noteAnswer(flight.by, response.StatusCode)
	if isStream(response) {
		c.away.Store(false)
		c.follow(ctx, flight, response)
		return
	}
	body, err := c.server.readBody(response)
	switch {
	case err != nil:
		c.fail(flight, err.Error())
	case c.isForgotten(response.StatusCode, false) && c.isKnown(flight.by) && !isAboutCall(flight, response.StatusCode, body):
		c.end(errNoSession)
	default:
		c.takeBody(flight, response.StatusCode, body)
	}
}

// isAboutCall says whether an error is about the call, and not about its session. By 404 later
// revisions say that there is no such method (M-20). Some servers use 404 for a session, but still
// name the call.
func isAboutCall(flight *call, status int, body []byte) bool {
	envelope, err := rpc.ScanLenient(body)
	if err != nil || !envelope.Error.Present() || !rpc.SameID(envelope.ID.Of(body), flight.id) {
		return false
	}
	return status == http.StatusBadRequest || rpc.ErrorCode(body, &envelope) == rpc.CodeMethodNotFound
}

// isForgotten says whether a status means that the server does not know the session any more. The
// signs are those that the package proxy goes by.
func (c *Stateful) isForgotten(status int, stream bool) bool {
	if status < http.StatusMultipleChoices {
		c.away.Store(false)
		return false
	}
	c.agreed.Lock()
	defer c.agreed.Unlock()
	switch {
	case c.agreed.session == "":
		return false
	case status == http.StatusNotFound:
		return !stream || c.streams.Load() // R35
	}
	return status == http.StatusBadRequest && !stream && c.away.Load()
}

// isKnown says whether a refusal of the sender is about the session. A token that does not say whose
// it is may be another caller's, as long as the server has not accepted it.
func (c *Stateful) isKnown(by sender) bool {
	return by.from == nil || by.from.Principal != caller.SomeToken ||
		slices.Equal(by.header["Authorization"], c.lastHeader()["Authorization"])
}

// tell posts a message that has no answer.
func (c *Stateful) tell(ctx context.Context, message []byte, by sender) error {
	response, err := c.post(ctx, message, by.header)
	if err != nil {
		return err
	}
	Discard(response)
	c.noteAnswer(by, response.StatusCode)
	if c.isForgotten(response.StatusCode, false) && c.isKnown(by) {
		c.end(errNoSession)
		return fmt.Errorf("%w: %w", session.ErrEnded, errNoSession)
	}
	return refusal(response.StatusCode)
}

// Close ends the connection, and the session at the server if the server still has it.
func (c *Stateful) Close() {
	if c.live.Err() == nil {
		c.end(session.ErrEnded)
		go c.leave()
	}
}
