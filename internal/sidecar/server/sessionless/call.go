package sessionless

import (
	"bytes"
	"strconv"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

const methodListen = subscription.MethodListen

// Event is a message for the client of a Call.
type Event struct {
	Message []byte
	Last    bool   // it is the answer
	Code    int    // of the error that the answer is, or 0
	Failed  string // how the call failed, if this is its answer
}

// Call is a request at a process, from when it is sent until its client has the answer or
// has gone.
type Call struct {
	process   *process
	number    uint64           // its id and progress token at the process
	id        []byte           // as the client spelled it
	token     []byte           // of its progress, as the client spelled it
	principal caller.Principal // of the client
	owned     bool             // what the call begins belongs to the principal
	internal  bool             // the adapter makes it, for a session that it translates
	own       bool             // the adapter makes it for itself
	listen    bool             // it is a subscription
	logs      bool             // the client wants log messages (U-07)
	tool      bool             // it calls a tool
	aboutTask bool             // it is about a task that was started before
	tasks     bool             // the client accepts a task for an answer
	names     [48]byte         // room for most ids and tokens
	ready     chan struct{}
	sent      time.Time // to the process
	heard     uint64    // messages that the process had written then

	// Guarded by the process's mutex.
	listening bool  // the hub knows the subscription
	mirrored  *pool // that has mirrors of the subscription; nil if there are none
	answered  bool  // the process works on it no more
	done      bool  // nothing follows what is in the inbox
	inbox     []Event
	first     [1]Event // room for most inboxes
	writing   int      // bytes of the message that the client reads now
	buffered  int      // bytes of that one and of the inbox
	reads     uint64   // messages that the client read, and pieces of large ones
	pressure  budget.Pressure
	interrupt func() // ends a write that takes long; nil if there is none
}

func newCall(p *process, request session.Message) *Call {
	e := &request.Envelope
	c := &Call{process: p, ready: make(chan struct{}, 1), listen: string(e.Method) == methodListen, tool: string(e.Method) == "tools/call",
		aboutTask: isAboutTask(request)}
	id, token := e.ID.Of(request.Bytes), e.ProgressToken.Of(request.Bytes)
	if string(token) == "null" {
		token = nil
	}
	names := append(append(c.names[:0], id...), token...) // the request's body is not kept
	c.id, c.token = names[:len(id):len(id)], names[len(id):]
	c.inbox = c.first[:0]
	if found, err := rpc.Find(request.Bytes, e.Meta, rpc.MetaLogLevel); err == nil && !c.listen {
		c.logs = rpc.Text(request.Bytes, found[0]) != nil
	}
	c.tasks = bytes.Contains(e.Meta.Of(request.Bytes), []byte(tasksExtension))
	return c
}

// renumber puts the number in the place of id and progress token of the client's request.
func (c *Call) renumber(edits *rpc.Edits, request session.Message) {
	number := strconv.AppendUint(c.token[len(c.token):], c.number, 10) // into the rest of names
	edits.Replace(request.Envelope.ID, number)
	if len(c.token) > 0 {
		edits.Replace(request.Envelope.ProgressToken, number)
	}
}

// ID is that of the request, as its client spelled it.
func (c *Call) ID() []byte { return c.id }

// IsSubscription says whether the request is a subscription, which lasts until the client or
// the server ends it.
func (c *Call) IsSubscription() bool { return c.listen }

// Ready has a value when there may be something to take.
func (c *Call) Ready() <-chan struct{} { return c.ready }

// Take returns the next message, if there is one: notifications that belong to the request,
// and then its answer, which is the last.
func (c *Call) Take() (message []byte, last, ok bool) {
	next, ok := c.Next()
	return next.Message, next.Last, ok
}

// Next is Take for callers that need to know more of the answer.
func (c *Call) Next() (Event, bool) {
	defer endOnPanic()
	p := c.process
	p.mu.Lock()
	defer p.mu.Unlock()
	p.takenLocked(c, c.writing)
	c.writing = 0
	c.reads++
	if len(c.inbox) == 0 {
		return Event{}, false
	}
	next := c.inbox[0]
	c.inbox[0] = Event{}
	c.inbox = c.inbox[1:]
	if taken := min(len(next.Message), c.buffered); c.internal { // errors of the adapter's own do not count
		p.takenLocked(c, taken) // the session that the message is for counts it from now on
	} else {
		c.writing = taken
	}
	return next, true
}

// Interruptible is that of front.Interrupter.
func (c *Call) Interruptible(interrupt func()) {
	c.process.mu.Lock()
	defer c.process.mu.Unlock()
	c.interrupt = interrupt
}

// Wrote is that of front.Interrupter.
func (c *Call) Wrote() {
	c.process.mu.Lock()
	defer c.process.mu.Unlock()
	c.reads++
}

// Release says that no client waits for the call any more. The adapter cancels the request if
// the process still works on it (M-09).
func (c *Call) Release() {
	defer endOnPanic()
	p := c.process
	p.mu.Lock()
	cancel := !c.answered && p.DeadLocked() == nil
	c.answered = true
	if cancel {
		p.retireIfSilentLocked(c)
	}
	p.closeLocked(c)
	if cancel && p.translator == nil {
		p.CancelLocked(c.number, clientGone)
	}
	p.mu.Unlock()
	if cancel && p.translator != nil {
		p.translator.Abandon((*recipient)(c))
	}
}

// clientGone is why the adapter cancels a request.
const clientGone = "the client has gone"

// backlog is the bytes that the client does not read yet.
func (c *Call) backlog() int { return c.buffered - c.writing }

// pushLocked puts a message, which must not change any more, into the inbox. It never waits
// for the client: the call of one that reads too slowly ends.
func (c *Call) pushLocked(e Event) {
	p := c.process
	if _, open := p.open[c]; !open || c.done {
		return
	}
	limits := &p.options.Limits
	if c.backlog() > limits.BacklogBytes {
		c.giveUpLocked(errClientSlow)
		return
	}
	for !p.account.Take(len(e.Message)) {
		p.account.Press()
		slowest := p.slowestLocked()
		if slowest == c || slowest.backlog() <= len(e.Message) {
			c.giveUpLocked(errNoRoom)
			return
		}
		slowest.giveUpLocked(errClientSlow)
	}
	c.inbox = append(c.inbox, e)
	c.buffered += len(e.Message)
	p.buffered += len(e.Message)
	c.done = e.Last
	c.signal()
	if alone := p.buffered == len(e.Message); p.buffered > limits.TotalBytes && !alone {
		p.slowestLocked().giveUpLocked(errClientSlow)
	}
}

// passLocked puts a message of the process into the inbox, with the client's spelling of ids.
func (c *Call) passLocked(message session.Message, edits ...rpc.Edit) {
	c.pushLocked(Event{Message: rpc.Edited(message.Bytes, edits...)})
}

// giveUpLocked ends a call whose client does not read, or whose message has no room.
func (c *Call) giveUpLocked(why error) {
	p := c.process
	p.metrics.SlowClients.Inc()
	p.takenLocked(c, c.backlog()) // the message that the client reads now is still held
	c.inbox, c.done = nil, false
	if c.interrupt != nil {
		c.interrupt()
	}
	c.failLocked(why.Error())
}

// failLocked answers the client with an error, if it has no answer yet.
func (c *Call) failLocked(text string) {
	if c.done {
		return
	}
	c.inbox = append(c.inbox, Event{Message: rpc.AppendError(nil, c.id, rpc.CodeInternal, text, nil), Last: true, Code: rpc.CodeInternal, Failed: rpc.ErrorTypeOf(rpc.CodeInternal)})
	c.done = true
	c.signal()
}

// completeLocked ends a subscription in order (N-05).
func (c *Call) completeLocked() {
	c.pushLocked(Event{Message: subscription.Completion(c.id), Last: true})
}

func (c *Call) signal() {
	select {
	case c.ready <- struct{}{}:
	default:
	}
}
