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
	slots   chan struct{} // holds an element for each request of the server without an answer

	// broken ends when the connection cannot go on, with an *Error as its cause.
	broken   context.Context
	breakOff context.CancelCauseFunc
	gaveUp   atomic.Pointer[Error] // the error with which the SDK gave the connection up
	status   atomic.Pointer[Error] // of the last response, if it was an error

	reached   atomic.Bool  // the server has accepted a connection at least once
	heard     atomic.Bool  // the server has sent a byte over HTTP
	junkLines atomic.Int64 // lines of a process other than messages
	nonsense  atomic.Int64 // lines that look like an answer and are none

	mu       sync.Mutex
	open     map[string]*exchange // by the JSON of the request's id
	expected *capture             // for the next list request
	opening  capture              // of the last answer to discover or initialize
	discover capture
	refusal  *Error // why initialize must not follow discover

	discoverOnly bool   // initialize must not follow, whatever the answer
	refused      *Error // the error in the server's answer to initialize; may be nil
}

// exchange is a request to the server.
type exchange struct {
	method    string
	capture   *capture
	abandoned bool // the caller has given up
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

// fail breaks the connection. The first reason stays.
func (g *guard) fail(err *Error) { g.breakOff(withOp(err, "session")) }

// reasonFor returns why the SDK gave the connection up. If the SDK has only a text, the
// reason is the error of the last response's status, if there is one.
func (g *guard) reasonFor(err *Error) *Error {
	if status := g.status.Load(); err.Class == Protocol && status != nil {
		err = status
	}
	own := *err // others may hold the original
	return &own
}

// giveUp breaks the connection because the SDK has given it up. The SDK has only a text
// for what the guard sees on the wire, so that this reason is weaker than any other.
func (g *guard) giveUp(err *Error) {
	err.Op = "session"
	g.gaveUp.Store(err)
	g.breakOff(err)
}

// failure returns why the connection is broken, or nil. The reason is secondHand if the
// SDK has given the connection up before the guard found one.
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

// outgoing checks a message before the transport sends it. The transport must not send a
// message for which it returns an error.
func (g *guard) outgoing(message []byte) (sent, error) {
	envelope, err := rpc.Scan(message)
	if err != nil {
		return sent{}, err // cannot happen: the SDK wrote the message
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

// expect sets where the result of the next list request goes. The guard matches answers
// by the id of their request, so that a late answer never gets to another request.
func (g *guard) expect(c *capture) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expected = c
}

// keptAbandoned bounds how many abandoned requests the guard remembers.
const keptAbandoned = 256

// abandon records that the caller of a request has given up. It returns false if the
// request has its answer, or its caller has given up before.
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

// answered frees the slot of a request of the server, whose answer the server has read.
func (g *guard) answered() {
	select {
	case <-g.slots:
	default:
	}
}

// incoming takes each message of the server, and returns what the SDK is to see of it, or
// nil for nothing. It may change the message. The error is a *rpc.Error for what is no
// message, and an *Error for a message that the server must not send.
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

// notification reports changed lists. The SDK gets no notification, because it queues
// them without a bound.
func (g *guard) notification(method string) {
	switch method {
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed":
		select {
		case g.changed <- struct{}{}:
		default:
		}
	}
}

// request lets the SDK answer. The SDK's answer does not depend on the params.
func (g *guard) request(message []byte, envelope rpc.Envelope) ([]byte, error) {
	if method := string(envelope.Method); method == methodInitialize || method == methodDiscover {
		// Only clients send these, so that the server echoes. The SDK would answer that
		// there is no such method, the server would echo that, too, and the SDK would
		// take it for the server's answer.
		return nil, protocolError("the server sends the requests of the probe back")
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

// noteDiscoverError keeps the SDK from sending initialize to a server whose error shows
// that it has no sessions.
func (g *guard) noteDiscoverError(raw []byte) {
	e := rejection(methodDiscover, raw)
	if g.discoverOnly || e.Code == rpc.CodeHeaderMismatch || e.Code == rpc.CodeMissingCapability {
		g.refusal = e
	}
}

// rejection returns the error in a server's answer. A malformed error is an error, too.
func rejection(op string, raw []byte) *Error {
	var wireError struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	_ = json.Unmarshal(raw, &wireError)
	return &Error{Class: Rejected, Op: op, Code: wireError.Code, Detail: clean(wireError.Message)}
}

// lastWord returns why Connect could not open a session. If a server refuses initialize
// and then ends, the refusal is the reason, and not the end.
func (g *guard) lastWord(err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refused == nil || ClassOf(err) != Closed {
		return err
	}
	return g.refused
}

// refuse is noteDiscoverError for errors of HTTP.
func (g *guard) refuse(reason *Error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refusal = reason
}

// skip counts a line of a process other than a message. It counts lines that could be an
// answer apart, to explain why no answer came.
func (g *guard) skip(line []byte) {
	g.junkLines.Add(1)
	if trimmed := bytes.TrimLeft(line, " \t"); len(trimmed) > 0 && (trimmed[0] == '{' || trimmed[0] == '[') {
		g.nonsense.Add(1)
	}
	if g.junk != nil {
		g.junk(line)
	}
}
