package mux

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Server is a server that speaks MCP. *child.Server is one.
type Server interface {
	session.Server
	// Serve reads the server's messages until it ends, and then calls ended with the reason.
	// A message is valid until receive returns.
	Serve(receive func(session.Message), ended func(error))
}

const (
	// SendTimeout is for a server to read one message. A server that works reads at once, so
	// this only has to outlast a pause of its process.
	SendTimeout = 10 * time.Second
	// StuckTimeout is how long a server may read nothing before the adapter ends it. That
	// server has calls of many clients, so this is longer than the SendTimeout of one.
	StuckTimeout = time.Minute
)

var errNoAnswer = errors.New("the server has not answered in time")

// Options say how a Conn writes.
type Options struct {
	// WriteTimeout is for the server to read one message of the queue; 0 leaves that to the server's
	// Send.
	WriteTimeout time.Duration
	// StuckTimeout is for a server that does not read to read again. Then the connection fails.
	StuckTimeout time.Duration
	// QueueBytes is how much the queue may hold when another message comes; 0 is no limit. Past it,
	// the Conn drops the message, and the connection fails.
	QueueBytes int
	// Written is called, with the mutex held, after each message of the queue; may be nil.
	Written func()
	// Heard is called, with the mutex held, for each message of the server; may be nil.
	Heard func()
	// ReadsAgain is called, with the mutex held, when a server that did not read reads again; may be
	// nil.
	ReadsAgain func()
	// Fail is called, without the mutex, when the Conn cannot write a message. It must end the
	// connection. The reason wraps ErrUnread if the server does not read.
	Fail func(reason error)
}

// Conn multiplexes requests of many callers over one connection to a server. It numbers the requests,
// so that answers and progress find their calls. It also makes requests of the adapter's own, and
// queues messages, so that callers need not wait for the server to read.
//
// A type that embeds a Conn shares its mutex with it. The caller of a method whose name ends in Locked
// holds that mutex. Callers of all other methods must not hold it.
//
// The goroutine that reads the server never waits for the server to read: it only queues messages,
// and another goroutine writes them.
type Conn[Call any] struct {
	server  Server
	mu      *sync.Mutex
	options Options
	over    chan struct{} // closed at the end

	// Guarded by mu.
	number  uint64          // of the last request
	calls   map[uint64]Call // in flight
	own     map[uint64]*ownRequest
	queue   []outgoing // to write
	queued  int        // bytes of the queue, and of the message that the Conn is writing
	writing bool
	unread  time.Time // since when the server does not read; zero if it reads
	heard   uint64    // messages of the server
	dead    error     // why the connection ended
}

// Init makes a Conn ready for use. Serve comes after it.
func (c *Conn[Call]) Init(server Server, mu *sync.Mutex, options Options) {
	c.server, c.mu, c.options = server, mu, options
	c.over, c.calls, c.own = make(chan struct{}), map[uint64]Call{}, map[uint64]*ownRequest{}
}

// Serve starts to read. The Conn itself takes the answers to requests of the adapter's own; receive
// gets all other messages.
func (c *Conn[Call]) Serve(receive func(session.Message), ended func(error)) {
	c.server.Serve(func(message session.Message) {
		message.GiveRoom() // code that keeps the message asks for room itself
		if !c.take(message) {
			receive(message)
		}
	}, ended)
}

// Over is closed when the connection has ended.
func (c *Conn[Call]) Over() <-chan struct{} { return c.over }

// EndLocked ends the connection. It returns false if the connection has ended before. Requests of the
// adapter's own end without an answer. The caller must close the server, without the mutex.
func (c *Conn[Call]) EndLocked(reason error) bool {
	if c.dead != nil {
		return false
	}
	c.dead = reason
	for number := range c.own {
		c.finishLocked(number)
	}
	clear(c.calls)
	c.queue, c.queued = nil, 0
	close(c.over)
	return true
}

// DeadLocked returns why the connection has ended, or nil.
func (c *Conn[Call]) DeadLocked() error { return c.dead }

// Dead is DeadLocked for callers without the mutex.
func (c *Conn[Call]) Dead() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

// NumberLocked returns a new number, which is the id and the progress token of a request at the
// server.
func (c *Conn[Call]) NumberLocked() uint64 {
	c.number++
	return c.number
}

// AddLocked records a call under its number.
func (c *Conn[Call]) AddLocked(number uint64, call Call) { c.calls[number] = call }

// DropLocked forgets a call. A later answer to it belongs to no call.
func (c *Conn[Call]) DropLocked(number uint64) { delete(c.calls, number) }

// LenLocked returns how many requests are in flight, with those of the adapter's own.
func (c *Conn[Call]) LenLocked() int { return len(c.calls) + len(c.own) }

// FindLocked returns the call that a message names by its number, and the number.
func (c *Conn[Call]) FindLocked(message []byte, at rpc.Span) (call Call, number uint64, ok bool) {
	number = NumberIn(message, at)
	call, ok = c.calls[number]
	return call, number, ok
}

// CallLocked returns the call with a number, or the zero value.
func (c *Conn[Call]) CallLocked(number uint64) Call { return c.calls[number] }

// TakeLocked is FindLocked for an answer. It drops the call.
func (c *Conn[Call]) TakeLocked(answer session.Message) (call Call, number uint64, ok bool) {
	call, number, ok = c.FindLocked(answer.Bytes, answer.Envelope.ID)
	delete(c.calls, number)
	return call, number, ok
}

// NumberIn returns the number in a place of a message, or 0, which no request has.
func NumberIn(message []byte, at rpc.Span) uint64 {
	number, err := strconv.ParseUint(string(at.Of(message)), 10, 64)
	if err != nil {
		return 0
	}
	return number
}

// HeardLocked returns how many messages the server has sent.
func (c *Conn[Call]) HeardLocked() uint64 { return c.heard }

// take counts a message of the server, and handles it if it answers a request of the adapter's own.
func (c *Conn[Call]) take(message session.Message) (taken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard++
	if c.options.Heard != nil {
		c.options.Heard()
	}
	if message.Envelope.Kind != rpc.Response || len(c.own) == 0 {
		return false
	}
	number := NumberIn(message.Bytes, message.Envelope.ID)
	request := c.own[number]
	if request == nil {
		return false
	}
	request.answer <- Keep(message)
	c.finishLocked(number)
	return true
}

// Keep returns a message that stays valid after receive returns.
func Keep(message session.Message) session.Message {
	if message.Owned {
		return message
	}
	text := bytes.Clone(message.Bytes)
	envelope, err := rpc.ScanLenient(text) // the envelope of message refers to the reader's buffer
	if err != nil {
		return message // never happens: the reader has scanned the same bytes
	}
	return session.Message{Bytes: text, Envelope: envelope, Owned: true}
}

// ownRequest is a request of the adapter's own.
type ownRequest struct {
	answer  chan session.Message // has room for the answer; closed after it, or without one
	timeout *time.Timer
}

// AskLocked makes a request of the adapter's own, with the members of its params. The channel gets the
// answer, and closes without one if the server does not answer in time. The caller need not wait.
func (c *Conn[Call]) AskLocked(method, params string, within time.Duration) <-chan session.Message {
	number := c.NumberLocked()
	answer := make(chan session.Message, 1)
	if c.dead != nil {
		close(answer)
		return answer
	}
	c.own[number] = &ownRequest{answer, time.AfterFunc(within, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.finishLocked(number)
	})}
	c.PostRequestLocked(number, method, params)
	return answer
}

// PostRequestLocked is PostLocked for a request of the adapter's own, with the members of its params.
func (c *Conn[Call]) PostRequestLocked(number uint64, method, params string) {
	c.postLocked(outgoing{text: rpc.AppendRequest(nil, strconv.AppendUint(nil, number, 10), method, params), request: true})
}

func (c *Conn[Call]) finishLocked(number uint64) {
	if request := c.own[number]; request != nil {
		delete(c.own, number)
		request.timeout.Stop()
		close(request.answer)
	}
}

// Await waits for the answer to a request of the adapter's own.
func (c *Conn[Call]) Await(ctx context.Context, answered <-chan session.Message) (session.Message, error) {
	select {
	case answer, ok := <-answered:
		if ok {
			return answer, nil
		}
		if err := c.Dead(); err != nil {
			return answer, err
		}
		return answer, errNoAnswer
	case <-ctx.Done():
		return session.Message{}, fmt.Errorf("wait for the server to answer: %w", ctx.Err())
	}
}

// CancelLocked posts the cancellation of a request.
func (c *Conn[Call]) CancelLocked(number uint64, reason string) {
	c.PostLocked(Cancellation(number, reason))
}

// Cancellation returns the notification that CancelLocked posts.
func Cancellation(number uint64, reason string) []byte {
	return rpc.AppendCancelled(nil, strconv.AppendUint(nil, number, 10), reason)
}
