package mcpprobe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// The methods that the guard tells apart.
const (
	methodDiscover   = "server/discover"
	methodInitialize = "initialize"
	methodListen     = "subscriptions/listen"
	methodPing       = "ping"
	methodElicit     = "elicitation/create"
	methodSample     = "sampling/createMessage"

	methodTools     = "tools/list"
	methodPrompts   = "prompts/list"
	methodResources = "resources/list"
	methodTemplates = "resources/templates/list"
)

// guard stands between the SDK and the wire and sees every message.
type guard struct {
	limits  Limits
	junk    func(line []byte)
	changed chan struct{}
	slots   chan struct{} // one taken for each request of the server in hand

	// broken ends, with an *Error as its cause, when the connection cannot go on.
	broken   context.Context
	breakOff context.CancelCauseFunc
	gaveUp   atomic.Pointer[Error] // what the SDK said when it gave the connection up
	status   atomic.Pointer[Error] // of the last response, if it was an error

	reached   atomic.Bool  // the server was there at least once
	junkLines atomic.Int64 // lines of a process that are no messages
	nonsense  atomic.Int64 // what looked like an answer and is none

	mu       sync.Mutex
	open     map[string]*exchange // by the JSON of the request's id
	expected *capture             // for the next list request
	opening  capture              // of the last answer to discover or initialize
	discover capture
	refusal  *Error // why initialize must not follow discover

	discoverOnly bool   // initialize must not follow, whatever the answer
	refused      *Error // the server's answer to initialize, if that is an error
}

// exchange is a request that was sent to the server.
type exchange struct {
	method    string
	capture   *capture
	abandoned bool // nobody waits for the answer any more
}

// capture is the result of a request as the server wrote it.
type capture struct{ result []byte }

func newGuard(options Options) *guard {
	g := &guard{
		limits:  options.Limits,
		junk:    options.Junk,
		changed: make(chan struct{}, 1),
		slots:   make(chan struct{}, requestsInHand),
		open:    map[string]*exchange{},

		discoverOnly: options.SkipInitialize,
	}
	if g.discoverOnly {
		g.refusal = &Error{Class: Rejected, Op: methodDiscover, Detail: "it answers " + methodDiscover + " without a revision that has no sessions"}
	}
	g.broken, g.breakOff = context.WithCancelCause(context.Background())
	return g
}

// fail breaks the connection; the first reason stays.
func (g *guard) fail(err *Error) { g.breakOff(withOp(err, "session")) }

// reasonFor is why the SDK gave the connection up. Where the SDK has only words, it did so
// for the status of the last response, if that was an error.
func (g *guard) reasonFor(err *Error) *Error {
	if status := g.status.Load(); err.Class == Protocol && status != nil {
		err = status
	}
	own := *err // others may hold the original
	return &own
}

// giveUp breaks the connection because the SDK has given it up. The SDK has only words
// for what the guard saw on the wire, so this reason is weaker than any other.
func (g *guard) giveUp(err *Error) {
	err.Op = "session"
	g.gaveUp.Store(err)
	g.breakOff(err)
}

// failure is why the connection is broken, or nil. It is secondHand if the SDK gave
// the connection up before the guard found a reason to break it.
func (g *guard) failure() (err *Error, secondHand bool) {
	err, _ = errors.AsType[*Error](context.Cause(g.broken))
	return err, err != nil && err == g.gaveUp.Load()
}

// sent is what the guard knows of a message to the server.
type sent struct {
	kind   rpc.Kind
	method string
	id     string
}

// outgoing is called before a message goes to the server. An error means that it
// must not go.
func (g *guard) outgoing(message []byte) (sent, error) {
	envelope, err := rpc.Scan(message)
	if err != nil {
		return sent{}, err // the SDK wrote it, so this does not happen
	}
	s := sent{kind: envelope.Kind, method: string(envelope.Method), id: string(envelope.ID.Of(message))}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case s.kind == rpc.Request && s.method == methodInitialize && g.refusal != nil:
		return s, g.refusal
	case s.kind == rpc.Request:
		g.open[s.id] = &exchange{method: s.method, capture: g.captureFor(s.method)}
	case s.method == rpc.MethodCancelled:
		g.abandonLocked(string(envelope.RequestID.Of(message)))
	}
	return s, nil
}

func (g *guard) captureFor(method string) *capture {
	switch method {
	case methodDiscover:
		return &g.discover
	case methodInitialize:
		return &g.opening
	case methodTools, methodPrompts, methodResources, methodTemplates:
		taken := g.expected
		g.expected = nil
		return taken
	default:
		return nil
	}
}

// expect names who gets the result of the next list request. Answers find their way
// by the id of the request, so a late one never gets into another's hands.
func (g *guard) expect(c *capture) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expected = c
}

// keptAbandoned bounds how many unanswered requests are remembered.
const keptAbandoned = 256

// abandon says that nobody waits for an answer, and whether somebody did.
func (g *guard) abandon(id string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.abandonLocked(id)
}

func (g *guard) abandonLocked(id string) bool {
	e, ok := g.open[id]
	if !ok || e.abandoned {
		return false
	}
	e.abandoned = true
	if len(g.open) > keptAbandoned {
		for id, e := range g.open {
			if e.abandoned {
				delete(g.open, id)
			}
		}
	}
	return true
}

// answered is called when an answer of ours has reached the server.
func (g *guard) answered() {
	select {
	case <-g.slots:
	default:
	}
}

// incoming is called with each message of the server and returns what the SDK is to
// see of it, or nil if that is nothing. It may change the message. The error is a
// *rpc.Error if this is no message, or an *Error if it is one too many.
func (g *guard) incoming(message []byte) ([]byte, error) {
	envelope, err := rpc.ScanLenient(message)
	if err != nil {
		return nil, err
	}
	switch envelope.Kind {
	case rpc.Response:
		return g.response(message, envelope)
	case rpc.Request:
		return g.request(message, envelope)
	default:
		g.notification(string(envelope.Method))
		return nil, nil
	}
}

// notification takes what is worth knowing; the SDK, which queues without a bound,
// gets none.
func (g *guard) notification(method string) {
	switch method {
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed":
		select {
		case g.changed <- struct{}{}:
		default:
		}
	}
}

// request lets the SDK answer, which it does in the same way whatever the params.
func (g *guard) request(message []byte, envelope rpc.Envelope) ([]byte, error) {
	if method := string(envelope.Method); method == methodInitialize || method == methodDiscover {
		// Only clients send these. To one that is sent back our answer would be that
		// there is no such method, which would be sent back as well, and believed.
		return nil, protocolError("it sends back what it is sent, which is no answer")
	}
	select {
	case g.slots <- struct{}{}:
	case <-g.broken.Done():
		return nil, nil
	}
	if !envelope.Params.Present() {
		return message, nil
	}
	return rpc.AppendEdited(nil, message, rpc.Edit{Span: envelope.Params, With: []byte("{}")}), nil
}

func (g *guard) response(message []byte, envelope rpc.Envelope) ([]byte, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	id := string(envelope.ID.Of(message))
	e, ok := g.open[id]
	delete(g.open, id)
	switch {
	case !ok:
		g.nonsense.Add(1)
		return nil, nil
	case e.abandoned:
		return nil, nil
	case e.method == methodDiscover && envelope.Error.Present():
		g.noteDiscoverError(envelope.Error.Of(message))
	case e.method == methodInitialize && envelope.Error.Present():
		g.refused = rejection(opConnect, envelope.Error.Of(message))
	}
	if e.capture == nil || !envelope.Result.Present() {
		return g.small(message)
	}
	e.capture.result = bytes.Clone(envelope.Result.Of(message))
	if e.method == methodDiscover || e.method == methodInitialize {
		return g.small(message)
	}
	return rpc.AppendEdited(nil, message, rpc.Edit{Span: envelope.Result, With: []byte("{}")}), nil
}

func (g *guard) small(message []byte) ([]byte, error) {
	if limit := min(smallReply, g.limits.ReplyBytes); len(message) > limit {
		return nil, tooLarge(LimitReplyBytes, limit)
	}
	return message, nil
}

// noteDiscoverError sees to it that initialize is not tried on a server that has
// shown itself to be of the newer era, by an error that only that has.
func (g *guard) noteDiscoverError(raw []byte) {
	e := rejection(methodDiscover, raw)
	if g.discoverOnly || e.Code == rpc.CodeHeaderMismatch || e.Code == rpc.CodeMissingCapability {
		g.refusal = e
	}
}

// rejection is the error that a server answered with. One that cannot be read is one
// all the same.
func rejection(op string, raw []byte) *Error {
	var wireError struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	_ = json.Unmarshal(raw, &wireError)
	return &Error{Class: Rejected, Op: op, Code: wireError.Code, Detail: clean(wireError.Message)}
}

// lastWord is why a session was not opened: a server that refuses and ends at once has
// refused, and its end only follows from that.
func (g *guard) lastWord(err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refused == nil || ClassOf(err) != Closed {
		return err
	}
	return g.refused
}

// refuse is noteDiscoverError for what HTTP has to say.
func (g *guard) refuse(reason *Error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refusal = reason
}

// skip is called with a line of a process that is no message. One that could have
// been an answer is remembered, to explain why none came.
func (g *guard) skip(line []byte) {
	g.junkLines.Add(1)
	if trimmed := bytes.TrimLeft(line, " \t"); len(trimmed) > 0 && (trimmed[0] == '{' || trimmed[0] == '[') {
		g.nonsense.Add(1)
	}
	if g.junk != nil {
		g.junk(line)
	}
}
