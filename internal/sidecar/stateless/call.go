package stateless

import (
	"bytes"
	"net/http"
	"strconv"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/internal/sidecar/subscription"
)

const methodListen = subscription.MethodListen

// event is a message for the client of a call.
type event struct {
	message []byte
	last    bool   // it is the answer
	news    bool   // of a subscription
	status  int    // of HTTP, if the answer comes before anything else
	failed  string // how the call failed, if this is its answer
}

// call is a request at the process, from when it is sent until its client has the
// answer or has gone.
type call struct {
	run       *run
	number    uint64           // its id and progress token at the process
	id        []byte           // as the client spelled it
	token     []byte           // of its progress, as the client spelled it
	principal caller.Principal // of the client
	inside    bool             // this program makes it, for a client of another kind
	own       bool             // nobody else's
	listen    bool             // it is a subscription
	logs      bool             // the client wants log messages (U-07)
	names     [48]byte         // room for most ids and tokens
	wake      chan struct{}
	forward   func(event) // takes what arrives, if it is for a call at another process

	tool      bool      // it calls a tool
	aboutTask bool      // it is about a task that was begun before
	tasks     bool      // the client takes a task for an answer
	began     time.Time // at the process
	before    uint64    // messages that the process had written then

	// Guarded by the run's mutex.
	repeats   []*call // of a subscription, at other processes
	answered  bool    // the process works on it no more
	done      bool    // nothing follows what is in the inbox
	inbox     []event
	room      [1]event // for most inboxes
	inHand    int      // bytes of the message that was taken last, which still waits for the client
	waiting   int      // bytes of all these
	takes     uint64   // messages that the client took, and pieces of large ones
	pressed   budget.Pressure
	interrupt func() // ends a write that takes long; nil if there is none
}

// unwritten is what waits, beside what is being written.
func (c *call) unwritten() int { return c.waiting - c.inHand }

// Interruptible is that of front.Interrupter.
func (c *call) Interruptible(interrupt func()) {
	c.run.mu.Lock()
	defer c.run.mu.Unlock()
	c.interrupt = interrupt
}

// Wrote is that of front.Interrupter.
func (c *call) Wrote() {
	c.run.mu.Lock()
	defer c.run.mu.Unlock()
	c.takes++
}

func newCall(r *run, request session.Message) *call {
	e := &request.Envelope
	c := &call{run: r, wake: make(chan struct{}, 1), listen: string(e.Method) == methodListen, tool: string(e.Method) == "tools/call",
		aboutTask: bytes.HasPrefix(e.Method, []byte("tasks/"))}
	id, token := e.ID.Of(request.Bytes), e.ProgressToken.Of(request.Bytes)
	if string(token) == "null" {
		token = nil
	}
	names := append(append(c.names[:0], id...), token...) // the request's body is not kept
	c.id, c.token = names[:len(id):len(id)], names[len(id):]
	c.inbox = c.room[:0]
	if found, err := rpc.Find(request.Bytes, e.Meta, rpc.MetaLogLevel); err == nil && !c.listen {
		c.logs = rpc.Text(request.Bytes, found[0]) != nil
	}
	c.tasks = bytes.Contains(e.Meta.Of(request.Bytes), []byte(tasksExtension))
	return c
}

// toProcess is the client's request with the number in place of id and progress token.
func (c *call) toProcess(request session.Message) session.Message {
	text := strconv.AppendUint(c.token[len(c.token):], c.number, 10) // nearly always into names
	var edits rpc.Edits
	edits.Replace(request.Envelope.ID, text)
	if len(c.token) > 0 {
		edits.Replace(request.Envelope.ProgressToken, text)
	}
	return session.Message{
		Bytes: edits.Edited(request.Bytes), Envelope: edits.MovedEnvelope(request.Envelope),
		From: request.From, Owned: true,
	}
}

// ID is for Translators.
func (c *call) ID() []byte { return c.id }

// Token is for Translators.
func (c *call) Token() []byte { return c.token }

// Notify is for Translators.
func (c *call) Notify(message []byte) {
	c.run.mu.Lock()
	defer c.run.mu.Unlock()
	c.pushLocked(event{message: message, status: http.StatusOK})
}

// Answer is for Translators.
func (c *call) Answer(message []byte, code int, failed string) {
	r := c.run
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, open := r.open[c]; !open || c.answered {
		r.metrics.LateAnswers.Inc()
		return
	}
	c.answered = true
	r.forgetLocked(c)
	c.pushLocked(event{message: message, last: true, status: statusOf(code), failed: failed})
}

// pushLocked puts a message into the inbox, which must be the client's by now. It never
// waits for the client: one that has too much to read is given up.
func (c *call) pushLocked(e event) {
	r := c.run
	if _, open := r.open[c]; !open || c.done {
		return
	}
	if c.forward != nil {
		c.forward(e)
		return
	}
	limits := &r.options.Limits
	if c.unwritten() > limits.BacklogBytes {
		c.giveUpLocked(errClientSlow)
		return
	}
	for !r.account.Take(len(e.message)) {
		r.account.Press()
		slowest := r.slowestLocked()
		if slowest == c || slowest.unwritten() <= len(e.message) {
			c.giveUpLocked(errNoRoom)
			return
		}
		slowest.giveUpLocked(errClientSlow)
	}
	c.inbox = append(c.inbox, e)
	c.waiting += len(e.message)
	r.waiting += len(e.message)
	c.done = e.last
	c.signal()
	if alone := r.waiting == len(e.message); r.waiting > limits.TotalBytes && !alone {
		r.slowestLocked().giveUpLocked(errClientSlow)
	}
}

// takenLocked notes that so many bytes no longer wait for the client of a call.
func (r *run) takenLocked(c *call, bytes int) {
	c.waiting -= bytes
	r.waiting -= bytes
	r.account.Change(-bytes)
}

// giveUpLocked ends a call whose client does not read, or whose message has no room.
func (c *call) giveUpLocked(why error) {
	r := c.run
	r.metrics.SlowClients.Inc()
	r.takenLocked(c, c.unwritten()) // what is written is still held
	c.inbox, c.done = nil, false
	if c.interrupt != nil {
		c.interrupt()
	}
	c.failLocked(why.Error())
}

// failLocked answers the client with an error, if it has no answer yet.
func (c *call) failLocked(text string) {
	if c.done {
		return
	}
	c.inbox = append(c.inbox, event{message: rpc.AppendError(nil, c.id, rpc.CodeInternal, text, nil), last: true, status: http.StatusOK, failed: rpc.ErrorTypeOf(rpc.CodeInternal)})
	c.done = true
	c.signal()
}

// completeLocked ends a subscription in order (N-05).
func (c *call) completeLocked() {
	result := []byte(`{"resultType":"complete","_meta":{"` + rpc.MetaSubscriptionID + `":` + string(c.id) + "}}")
	c.pushLocked(event{message: rpc.AppendResult(nil, c.id, result), last: true, status: http.StatusOK})
}

func (c *call) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// take returns the next message for the client, if there is one.
func (c *call) take() (event, bool) {
	defer endOnPanic()
	r := c.run
	r.mu.Lock()
	defer r.mu.Unlock()
	r.takenLocked(c, c.inHand)
	c.inHand = 0
	c.takes++
	if len(c.inbox) == 0 {
		return event{}, false
	}
	next := c.inbox[0]
	c.inbox[0] = event{}
	c.inbox = c.inbox[1:]
	if taken := min(len(next.message), c.waiting); c.inside { // errors of our own do not count
		r.takenLocked(c, taken) // the session that it is for takes it over
	} else {
		c.inHand = taken
	}
	return next, true
}

// release says that nobody waits for the call any more. The process is told, if it
// works on it still (M-09).
func (c *call) release() {
	defer endOnPanic()
	r := c.run
	r.mu.Lock()
	tell := !c.answered && r.DeadLocked() == nil
	c.answered = true
	r.noteSilenceLocked(c, tell)
	r.closeLocked(c)
	if tell && r.translator == nil {
		r.CancelLocked(c.number, "the client has gone")
	}
	r.mu.Unlock()
	if tell && r.translator != nil {
		r.translator.Abandon(c)
	}
}
