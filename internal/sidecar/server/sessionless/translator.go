package sessionless

import (
	"context"

	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Translator is a server of this revision that is made of servers with sessions.
type Translator interface {
	// Call takes a request, and gives the recipient all messages that belong to it. An error
	// means that the request was not taken; it may wrap fault.ErrBusy.
	Call(ctx context.Context, request session.Message, to Recipient) error
	// Abandon says that the client of a request does not wait any more.
	Abandon(to Recipient)
	// Refuse is for a Translator that gets no new requests, but those that go on with a call. It ends processes that do
	// nothing.
	Refuse()
	// AwaitParked waits until no call waits for its client to come back, or the context ends.
	AwaitParked(ctx context.Context)
	Close()
}

// Recipient takes the messages that belong to one request of a Translator. Its methods never
// wait.
type Recipient interface {
	ID() []byte    // of the request, as its client spelled it
	Token() []byte // of its progress, likewise; empty if there is none
	// Notify takes a notification, which must not change any more.
	Notify(message []byte)
	// Answer takes the answer, which is the last message, with its error code, or 0, and with
	// how the call failed, as rpc.ErrorType has it.
	Answer(message []byte, code int, failed string)
}

// recipient is a Call as a Translator sees it.
type recipient Call

func (r *recipient) ID() []byte    { return r.id }
func (r *recipient) Token() []byte { return r.token }

func (r *recipient) Notify(message []byte) {
	r.process.mu.Lock()
	defer r.process.mu.Unlock()
	c := (*Call)(r)
	c.pushLocked(Event{Message: message})
	c.noteLocked(message)
}

func (r *recipient) Answer(message []byte, code int, failed string) {
	c, p := (*Call)(r), r.process
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, open := p.open[c]; !open || c.answered {
		p.metrics.LateAnswers.Inc()
		return
	}
	c.answered = true
	p.forgetLocked(c)
	c.pushLocked(Event{Message: message, Last: true, Code: code, Failed: failed})
}
