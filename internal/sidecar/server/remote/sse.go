package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Errors that end a connection.
var (
	errStreamEnded = errors.New("the server ended its event stream")
	errStreamLost  = errors.New("the server's event stream broke off")
	errNoSession   = errors.New("the server does not know the session any more")
)

// DialSSE connects to a server of HTTP+SSE and waits until it has named its endpoint for messages.
// The event stream carries the caller's token, and each message that of its own sender. The context
// bounds the wait only.
func (s *Server) DialSSE(ctx context.Context, from *caller.Caller) (*SSE, error) {
	c := &SSE{link: newLink(s, from)}
	c.slots = make(chan struct{}, postsPerCall*s.Calls)
	abandon := context.AfterFunc(ctx, func() { c.end(ctx.Err()) })
	err := c.connect()
	if !abandon() { // the context has ended, perhaps just now
		err = errors.Join(ctx.Err(), err)
	}
	if err != nil {
		c.end(err)
		if c.stream != nil {
			_ = c.stream.Close() // it is not read any further
		}
		return nil, fmt.Errorf("connect to the server's event stream: %w", err)
	}
	return c, nil
}

// SSE is one session with a server of HTTP+SSE, the transport of revision 2024-11-05: one event
// stream from the server, and a POST for each message to it.
type SSE struct {
	*link
	stream io.Closer
	events *rpc.EventReader
	to     *url.URL    // the endpoint for messages
	known  atomic.Bool // the server has accepted a message, so it knew the session
}

// connect opens the event stream and waits for the event that names the endpoint for messages (E-02).
func (c *SSE) connect() error {
	response, err := c.server.endpoint.Send(newGET(c.live, c.server.URL, c.opener)) //nolint:bodyclose // The connection keeps it as its stream.
	if err != nil {
		return err
	}
	c.stream, c.events = response.Body, c.server.events(response.Body)
	if response.StatusCode != http.StatusOK || !IsEvents(response.Header) {
		return fmt.Errorf("the server answers %s with status %d and content type %q, not with an event stream",
			c.server.URL.Path, response.StatusCode, rpc.Clip(response.Header.Get("Content-Type")))
	}
	event, err := c.events.Next()
	if err != nil {
		return fmt.Errorf("wait for the endpoint event: %w", err)
	}
	if event.Type != "endpoint" {
		return fmt.Errorf("the first event is %q, not endpoint", event.Type)
	}
	c.to, err = resolveEndpoint(c.server.URL, strings.TrimSpace(string(event.Data)))
	return err
}

// newGET asks for an event stream.
func newGET(ctx context.Context, from *url.URL, header http.Header) *http.Request {
	request := NewRequest(ctx, http.MethodGet, from, header.Clone(), nil)
	request.Header.Set("Accept", front.TypeEvents)
	request.Header.Set("Cache-Control", "no-store")
	return request
}

// resolveEndpoint returns the URL for messages. The server may only name a place on itself. It may
// use any of the names for loopback.
func resolveEndpoint(stream *url.URL, said string) (*url.URL, error) {
	named, err := stream.Parse(said)
	if err != nil {
		return nil, fmt.Errorf("the endpoint %q is no URL", rpc.Clip(said))
	}
	sameHost := strings.EqualFold(named.Hostname(), stream.Hostname()) || isLoopback(named.Hostname()) && isLoopback(stream.Hostname())
	if named.Scheme != stream.Scheme || named.Port() != stream.Port() || !sameHost || named.User != nil {
		return nil, fmt.Errorf("the endpoint %q is not on the server itself", rpc.Clip(said))
	}
	post := *stream
	post.Path, post.RawPath, post.RawQuery = named.Path, named.RawPath, named.RawQuery
	return &post, nil
}

func isLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && address.IsLoopback()
}

// Serve reads the server's messages until the connection ends, and then calls ended with the reason,
// once. It must be called once, before the first Send.
func (c *SSE) Serve(receive func(session.Message), ended func(error)) {
	c.link.Serve(receive, ended)
	go c.read()
}

// read has the server's messages received until the stream or the connection ends.
func (c *SSE) read() {
	defer func() { _ = c.stream.Close() }()
	for {
		event, err := c.events.Next()
		if err != nil {
			c.end(endOf(err))
			return
		}
		if event.Type != rpc.EventMessage {
			c.server.Junk.Inc()
			continue
		}
		if message, ok := c.message(event.Data, event.Owned); ok {
			c.hand(message)
		}
	}
}

// endOf is why a connection ends whose stream cannot be read.
func endOf(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return errStreamEnded
	case errors.Is(err, rpc.ErrEventTooLarge), errors.Is(err, budget.ErrNoRoom):
		return err
	}
	return fmt.Errorf("%w: %w", errStreamLost, err)
}

// postsPerCall leaves room for the answers of a client that the server waits for before it accepts a
// call.
const postsPerCall = 2

// Send posts one message. It returns when the server has accepted it, or has read it and been silent
// for a while. If the server then refuses a request, the connection answers it.
func (c *SSE) Send(ctx context.Context, sent session.Message) error {
	by := c.sender(sent.From)
	late, err := c.startPost(ctx, c.live, ackWait, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, c.server.SendTimeout+c.server.AcceptTimeout)
		defer cancel()
		request := NewRequest(ctx, http.MethodPost, c.to, by.header.Clone(), sent.Bytes)
		request.Header.Set("Content-Type", front.TypeJSON)
		return c.accept(request, by)
	})
	if late != nil {
		if message, err := sent.Scanned(); err == nil && message.Envelope.Kind == rpc.Request {
			go c.acceptLate(bytes.Clone(message.Envelope.ID.Of(message.Bytes)), late)
		}
	}
	return err
}

// accept makes the request and judges the status of the response. The body means nothing.
func (c *SSE) accept(request *http.Request, by sender) error {
	response, err := c.server.endpoint.Send(request)
	if err != nil {
		return err
	}
	Discard(response)
	c.noteAnswer(by, response.StatusCode)
	if response.StatusCode == http.StatusNotFound || response.StatusCode == http.StatusGone {
		c.end(errNoSession)
		if c.known.Load() {
			return fmt.Errorf("%w: %w", session.ErrEnded, errNoSession)
		}
		return errNoSession
	}
	err = refusal(response.StatusCode)
	if err == nil {
		c.known.Store(true)
	}
	return err
}

// refusal is an error if the status means that the server refuses a message.
func refusal(status int) error {
	if status < http.StatusMultipleChoices {
		return nil
	}
	return fmt.Errorf("the server refuses the message with status %d", status)
}

// acceptLate answers a request in the server's place, if the server refuses it after Send has
// returned.
func (c *SSE) acceptLate(id []byte, accepted <-chan error) {
	if err := <-accepted; err != nil {
		if answer, ok := c.message(rpc.AppendError(nil, id, rpc.CodeInternal, err.Error(), nil), true); ok {
			c.hand(answer)
		}
	}
}
