package remote

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// link is the part that all connections have in common: each message to the server has a POST of
// its own, and messages of the server come by several ways at a time.
type link struct {
	senders
	server *Server
	slots  chan struct{}   // for POSTs at a time
	live   context.Context // ends with the connection; its cause is the reason
	end    context.CancelCauseFunc

	receive   func(session.Message)
	receiving sync.Mutex // receive takes one message at a time

	mu    sync.Mutex
	calls map[string]*call // requests without an answer, by id
}

// call is a request that the server has not answered.
type call struct {
	id     []byte
	by     sender
	ctx    context.Context // ends with the connection, or when the caller waits no more
	cancel context.CancelFunc
	// answered is for the goroutine that reads the answer only.
	answered bool
	// learn is called with the answer before receive is; may be nil.
	learn func(answer session.Message)
}

func newLink(to *Server, from *caller.Caller) *link {
	live, end := context.WithCancelCause(context.Background())
	return &link{
		senders: senders{opener: shownBy(from)}, server: to, slots: make(chan struct{}, to.Calls),
		live: live, end: end, calls: map[string]*call{},
	}
}

// Serve has the server's messages received until the connection ends, and then calls ended with
// the reason, once. It must be called once, before the first Send. A message is valid until
// receive returns.
func (l *link) Serve(receive func(session.Message), ended func(error)) {
	l.receive = receive
	context.AfterFunc(l.live, func() { ended(context.Cause(l.live)) })
}

// Close ends the connection, and with it all requests.
func (l *link) Close() { l.end(session.ErrEnded) }

// kept are the bytes of a message that the connection may use after Send.
func kept(message session.Message) []byte {
	if message.Owned {
		return message.Bytes
	}
	return bytes.Clone(message.Bytes)
}

// begin notes a request, so that it can be cancelled. It lasts no longer than live does. The id must
// not change any more.
func (l *link) begin(live context.Context, id []byte, by sender) *call {
	c := &call{id: id, by: by}
	c.ctx, c.cancel = context.WithCancel(live)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls[string(id)] = c
	return c
}

// forget is for a call that has its answer: its id may be used again.
func (l *link) forget(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls[string(c.id)] == c {
		delete(l.calls, string(c.id))
	}
}

// find is the request that a notification cancels, if it has no answer.
func (l *link) find(cancellation session.Message) *call {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls[string(cancellation.Envelope.RequestID.Of(cancellation.Bytes))]
}

// request posts a request. do sends it, and has its answer received. An error of do means that the
// server has not read the request.
func (l *link) request(ctx context.Context, c *call, do func(ctx context.Context) error) error {
	over := func() {
		c.cancel()
		l.forget(c)
	}
	_, err := l.startPost(ctx, c.ctx, 0, func(ctx context.Context) error {
		defer over()
		return do(ctx)
	})
	if err != nil {
		over() // perhaps do was not called
	}
	return err
}

// deliver has messages received that came on the stream of a call, or on one that belongs to no
// call. The messages may be kept if they are owned.
func (l *link) deliver(c *call, data []byte, owned bool) {
	if !rpc.IsBatch(data) {
		l.deliverOne(c, data, owned)
		return
	}
	// A server of revision 2025-03-26 may put several messages into one.
	err := rpc.Batch(data, func(message []byte) error {
		l.deliverOne(c, message, false)
		return nil
	})
	if err != nil {
		l.server.Junk.Inc()
	}
}

// deliverOne has one message received. The only answer that a stream may carry is that to its call.
func (l *link) deliverOne(c *call, data []byte, owned bool) {
	message, ok := l.message(data, owned)
	if !ok {
		return
	}
	if c != nil {
		message.Call = c.id
	}
	if message.Envelope.Kind == rpc.Response {
		if c == nil || c.answered || !rpc.SameID(message.Envelope.ID.Of(message.Bytes), c.id) {
			l.server.Junk.Inc()
			return
		}
		c.answered = true
		l.forget(c)
		if c.learn != nil {
			c.learn(message)
		}
	}
	l.hand(message)
}

// message is a message of the server. Data that are none are counted.
func (l *link) message(data []byte, owned bool) (message session.Message, ok bool) {
	if !utf8.Valid(data) {
		data = []byte(strings.ToValidUTF8(string(data), "\ufffd"))
	}
	envelope, err := rpc.ScanLenient(data)
	if err != nil {
		l.server.Junk.Inc()
	}
	return session.Message{Bytes: data, Envelope: envelope, Owned: owned, Charged: owned}, err == nil
}

// hand has a message received, unless the connection has ended.
func (l *link) hand(message session.Message) {
	l.receiving.Lock()
	defer l.receiving.Unlock()
	if l.live.Err() == nil {
		l.receive(message)
	}
}

// answer answers a call in the server's place, if its caller still waits.
func (l *link) answer(c *call, message []byte) {
	if !c.answered && c.ctx.Err() == nil {
		l.deliverOne(c, message, true)
	}
}

// fail is answer with an error.
func (l *link) fail(c *call, text string) {
	l.answer(c, rpc.AppendError(nil, c.id, rpc.CodeInternal, text, nil))
}

// failed is for a POST that has no answer. It returns the error if the server has not read the
// request, and otherwise answers the call: the server may have done the work.
func (l *link) failed(ctx context.Context, c *call, err error) error {
	if ctx.Err() != nil || IsDown(err) {
		return err
	}
	l.fail(c, "the server did not answer: "+err.Error())
	return nil
}
