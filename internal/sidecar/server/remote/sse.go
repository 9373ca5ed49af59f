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
	"sync"
	"sync/atomic"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Errors that end a session.
var (
	errStreamEnded = errors.New("the server ended its event stream")
	errStreamLost  = errors.New("the server's event stream broke off")
	errNoSession   = errors.New("the server does not know the session any more")
)

// DialSSE connects to the server and waits until it has said where it takes messages. The
// server is shown what the caller shows, and with each message what its own sender shows. The
// context bounds the wait only; the connection lives until it ends.
func (s *Server) DialSSE(ctx context.Context, from *caller.Caller) (*SSE, error) {
	live, end := context.WithCancel(context.WithoutCancel(ctx))
	abandon := context.AfterFunc(ctx, end)
	c, err := s.connectSSE(live, shownBy(from))
	if !abandon() { // it was given up, perhaps just now
		err = errors.Join(ctx.Err(), err)
	}
	if err != nil {
		end()
		return nil, fmt.Errorf("connect to the server's event stream: %w", err)
	}
	c.live, c.end = live, end
	return c, nil
}

// SSE is a connection to the server, which takes it for one session.
type SSE struct {
	senders
	server *Server
	body   io.Closer
	events *rpc.EventReader
	to     *url.URL    // where the server takes messages
	known  atomic.Bool // the server has accepted a message, so it knew the session
	posts  poster
	live   context.Context
	end    context.CancelFunc

	receive func(session.Message)
	ended   func(error)
}

// Serve reads the server's messages until the connection ends, and then calls ended with
// the reason, once. It must be called once, before the first Send.
func (c *SSE) Serve(receive func(session.Message), ended func(error)) {
	var once sync.Once
	var one sync.Mutex // late refusals are received, too
	c.receive = func(message session.Message) {
		one.Lock()
		defer one.Unlock()
		receive(message)
	}
	c.ended = func(reason error) { once.Do(func() { ended(reason) }) }
	go c.run()
}

func (s *Server) connectSSE(ctx context.Context, header http.Header) (*SSE, error) {
	request := NewRequest(ctx, http.MethodGet, s.URL, nil)
	request.Header = header.Clone()
	request.Header.Set("Accept", front.TypeEvents)
	request.Header.Set("Cache-Control", "no-store")
	response, err := s.endpoint.Send(request)
	if err != nil {
		return nil, err
	}
	c := &SSE{
		senders: senders{opener: header}, server: s, posts: newPoster(postsPerCall*s.Calls, s.SendTimeout),
		body: response.Body, events: newEventReader(response.Body, s.MessageBytes, s.Memory),
	}
	if response.StatusCode != http.StatusOK || !IsEvents(response.Header) {
		err = fmt.Errorf("the server answers %s with status %d and content type %q, not with an event stream",
			s.URL.Path, response.StatusCode, rpc.Clip(response.Header.Get("Content-Type")))
	} else {
		err = c.readEndpoint()
	}
	if err != nil {
		_ = response.Body.Close() // it is not read any further
		return nil, err
	}
	return c, nil
}

// readEndpoint waits for the event that says where messages go (E-02).
func (c *SSE) readEndpoint() error {
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

// resolveEndpoint returns where to send messages. The server may only name a place
// on itself; by which of the names for loopback it calls itself does not matter.
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

// run delivers what the server says, until the stream or the session ends.
func (c *SSE) run() {
	defer c.end()
	defer func() { _ = c.body.Close() }()
	for {
		event, err := c.events.Next()
		switch {
		case err != nil && c.live.Err() != nil:
			c.ended(session.ErrEnded)
			return
		case errors.Is(err, io.EOF):
			c.ended(errStreamEnded)
			return
		case errors.Is(err, rpc.ErrEventTooLarge), errors.Is(err, budget.ErrNoRoom):
			c.ended(err)
			return
		case err != nil:
			c.ended(fmt.Errorf("%w: %w", errStreamLost, err))
			return
		}
		envelope, err := rpc.ScanLenient(event.Data)
		if err != nil || event.Type != rpc.EventMessage {
			c.server.Junk.Inc()
			continue
		}
		c.receive(session.Message{Bytes: event.Data, Envelope: envelope, Owned: event.Owned, Charged: event.Owned})
	}
}

// Close ends the connection, which ends the server's session (E-06).
func (c *SSE) Close() { c.end() }

// postsPerCall is for the answers that calls may need before the server accepts them.
const postsPerCall = 2

// Send posts one message. It returns when the server has accepted it, or has read
// it and not said anything for a while. What the server then says is noted later.
func (c *SSE) Send(ctx context.Context, sent session.Message) error {
	message := sent.Bytes
	from := sent.From
	by := c.sender(from)
	return c.posts.post(ctx, c.live, posting{
		do: func(ctx context.Context) error {
			request := NewRequest(ctx, http.MethodPost, c.to, message)
			request.Header = by.header.Clone()
			request.Header.Set("Content-Type", front.TypeJSON)
			return c.accept(request, by)
		},
		ackWait: ackWait,
		late: func(accepted <-chan error, cancel context.CancelFunc) {
			go c.acceptLate(requestID(message), accepted, cancel)
		},
	})
}

// requestID is the id of a request, in bytes of its own, or nil for anything else.
func requestID(message []byte) []byte {
	envelope, err := rpc.Scan(message)
	if err != nil || envelope.Kind != rpc.Request {
		return nil
	}
	return bytes.Clone(envelope.ID.Of(message))
}

// accept makes the request and judges the answer, whose text means nothing.
func (c *SSE) accept(request *http.Request, by sender) error {
	response, err := c.server.endpoint.Send(request)
	if err != nil {
		return err
	}
	Discard(response)
	c.noteAnswer(by, response.StatusCode)
	switch status := response.StatusCode; {
	case status == http.StatusNotFound || status == http.StatusGone:
		c.ended(errNoSession)
		if c.known.Load() {
			return fmt.Errorf("%w: %w", session.ErrEnded, errNoSession)
		}
		return errNoSession
	case status >= http.StatusMultipleChoices:
		return fmt.Errorf("the server refuses the message with status %d", status)
	}
	c.known.Store(true)
	return nil
}

// acceptLate awaits what the server says to a message that it has read, and
// answers a call in its place if it refuses it.
func (c *SSE) acceptLate(id []byte, accepted <-chan error, cancel context.CancelFunc) {
	timer := time.AfterFunc(c.server.AcceptTimeout, cancel)
	defer timer.Stop()
	err := <-accepted
	if err == nil || id == nil {
		return
	}
	b := rpc.AppendError(nil, id, rpc.CodeInternal, err.Error(), nil)
	if answer, scanErr := rpc.Scan(b); scanErr == nil {
		c.receive(session.Message{Bytes: b, Envelope: answer})
	}
}
