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
	// WriteTimeout is for the server to read one message that the queue holds; 0 leaves that to
	// the server's own Send.
	WriteTimeout time.Duration
	// StuckTimeout is for a server that does not read to read again, before it fails.
	StuckTimeout time.Duration
	// Written is called with the mutex after each message of the queue; may be nil.
	Written func()
	// Heard is called with the mutex for each message of the server; may be nil.
	Heard func()
	// ReadsAgain is called with the mutex when a server reads that had stopped; may be nil.
	ReadsAgain func()
	// Fail ends the connection because a message cannot be written. It is called without the
	// mutex. The reason wraps ErrUnread if the server does not read.
	Fail func(reason error)
}

// Conn multiplexes requests of many callers over one connection to a server. It numbers the
// requests, so that answers and progress find the calls that they belong to. It makes requests of
// the adapter's own. It writes messages that no caller waits for. It ends once.
//
// A policy embeds a Conn and shares its mutex with it. Methods whose names end in Locked need that
// mutex. All others must be called without it.
//
// The goroutine that reads the server never waits for the server to read: whatever it has to say
// goes into the queue, which a goroutine of its own writes.
type Conn[Call any] struct {
	server  Server
	mu      *sync.Mutex
	options Options
	over    chan struct{} // closed at the end

	// Guarded by mu.
	number  uint64          // of the last request
	calls   map[uint64]Call // without an answer
	own     map[uint64]*ask
	queue   []outgoing // to be written
	queued  int        // bytes of these, and of the message that is being written
	writing bool
	unread  time.Time // since when the server does not read; zero if it does
	heard   uint64    // messages of the server
	dead    error     // why it ended
}

// Init makes a Conn ready for use. Serve comes after it.
func (c *Conn[Call]) Init(server Server, mu *sync.Mutex, options Options) {
	c.server, c.mu, c.options = server, mu, options
	c.over, c.calls, c.own = make(chan struct{}), map[uint64]Call{}, map[uint64]*ask{}
}

// Serve begins to read. Answers to requests of the adapter's own do not reach receive.
func (c *Conn[Call]) Serve(receive func(session.Message), ended func(error)) {
	c.server.Serve(func(message session.Message) {
		message.GiveRoom() // code that keeps the message asks for room itself
		if !c.hear(message) {
			receive(message)
		}
	}, ended)
}

// Over is closed when the connection has ended.
func (c *Conn[Call]) Over() <-chan struct{} { return c.over }

// EndLocked ends the connection for a reason, and says whether it had not ended before. Requests of
// the adapter's own end without an answer. The caller closes the server, without the mutex.
func (c *Conn[Call]) EndLocked(reason error) bool {
	if c.dead != nil {
		return false
	}
	c.dead = reason
	for number := range c.own {
		c.giveUpLocked(number)
	}
	clear(c.calls)
	c.queue, c.queued = nil, 0
	close(c.over)
	return true
}

// DeadLocked is why the connection has ended, or nil.
func (c *Conn[Call]) DeadLocked() error { return c.dead }

// Dead is DeadLocked for callers without the mutex.
func (c *Conn[Call]) Dead() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

// NumberLocked returns a number that no request has had. It is the id of a request, and its progress
// token, at the server.
func (c *Conn[Call]) NumberLocked() uint64 {
	c.number++
	return c.number
}

// AddLocked makes a call known by its number.
func (c *Conn[Call]) AddLocked(number uint64, call Call) { c.calls[number] = call }

// DropLocked forgets a call: from now on its answer belongs to no call.
func (c *Conn[Call]) DropLocked(number uint64) { delete(c.calls, number) }

// LenLocked is how many requests have no answer, those of the adapter's own included.
func (c *Conn[Call]) LenLocked() int { return len(c.calls) + len(c.own) }

// FindLocked is the call whose number stands in a message, and that number.
func (c *Conn[Call]) FindLocked(message []byte, at rpc.Span) (call Call, number uint64, ok bool) {
	number = NumberIn(message, at)
	call, ok = c.calls[number]
	return call, number, ok
}

// CallLocked is the call with a number. It is the zero value if there is none.
func (c *Conn[Call]) CallLocked(number uint64) Call { return c.calls[number] }

// TakeLocked is FindLocked for an answer: the call is dropped.
func (c *Conn[Call]) TakeLocked(answer session.Message) (call Call, number uint64, ok bool) {
	call, number, ok = c.FindLocked(answer.Bytes, answer.Envelope.ID)
	delete(c.calls, number)
	return call, number, ok
}

// NumberIn is the number that stands in a message, or 0, which no request has.
func NumberIn(message []byte, at rpc.Span) uint64 {
	number, err := strconv.ParseUint(string(at.Of(message)), 10, 64)
	if err != nil {
		return 0
	}
	return number
}

// HeardLocked is how many messages the server has sent.
func (c *Conn[Call]) HeardLocked() uint64 { return c.heard }

// hear notes that the server has said something, and takes the answer to a request of the
// adapter's own.
func (c *Conn[Call]) hear(message session.Message) (taken bool) {
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
	a := c.own[number]
	if a == nil {
		return false
	}
	delete(c.own, number)
	a.late.Stop()
	a.answer <- Keep(message)
	return true
}

// Keep is a message that outlives the call of receive.
func Keep(message session.Message) session.Message {
	if message.Owned {
		return message
	}
	text := bytes.Clone(message.Bytes)
	envelope, err := rpc.ScanLenient(text) // strings of the other alias a buffer that is used again
	if err != nil {
		return message // it was scanned before
	}
	return session.Message{Bytes: text, Envelope: envelope, Owned: true}
}

// ask is a request of the adapter's own.
type ask struct {
	answer chan session.Message // has room for the answer; closed without one at the end
	late   *time.Timer
}

// AskLocked makes a request of the adapter's own, with the members of its params. It is forgotten
// if it has no answer in time. The caller need not wait for the answer.
func (c *Conn[Call]) AskLocked(method, params string, within time.Duration) <-chan session.Message {
	number := c.NumberLocked()
	a := &ask{answer: make(chan session.Message, 1)}
	if c.dead != nil {
		close(a.answer)
		return a.answer
	}
	c.own[number] = a
	a.late = time.AfterFunc(within, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.giveUpLocked(number)
	})
	c.PostRequestLocked(number, method, params)
	return a.answer
}

// PostRequestLocked is PostLocked for a request that the adapter makes, with the members of its
// params.
func (c *Conn[Call]) PostRequestLocked(number uint64, method, params string) {
	c.postLocked(outgoing{text: rpc.AppendRequest(nil, strconv.AppendUint(nil, number, 10), method, params), request: true})
}

func (c *Conn[Call]) giveUpLocked(number uint64) {
	if a := c.own[number]; a != nil {
		delete(c.own, number)
		a.late.Stop()
		close(a.answer)
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

// CancelLocked tells the server that no caller waits for a request any more.
func (c *Conn[Call]) CancelLocked(number uint64, reason string) {
	c.PostLocked(Cancellation(number, reason))
}

// Cancellation is the notification that CancelLocked posts.
func Cancellation(number uint64, reason string) []byte {
	return rpc.AppendCancelled(nil, strconv.AppendUint(nil, number, 10), reason)
}
