package edge

import (
	"bytes"
	"net/http"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Request is a client's request as front ends see it.
type Request struct {
	*http.Request
	Caller caller.Caller
	// Messages are what a POST carries: one, unless it is a Batch. A front end that has
	// passed them on and waits for the answer drops them, because they may be large.
	Messages []session.Message
	Body     []byte // as the client sent it
	Record   Record
	Batch    bool
	carried  bool // Carry has read the Body
	passedOn bool // another instance answers the client

	held   held
	door   *Door
	writer answerWriter       // to answer this request
	sole   [1]session.Message // the array of Messages, unless the POST carries a batch
}

// Head returns the value of a header by its canonical name. http.Header.Get computes that
// name on every call, which shows in the cost of small calls.
func (r *Request) Head(canonical string) string { return head(r.Header, canonical) }

func head(header http.Header, canonical string) string {
	if values := header[canonical]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// Drop releases the body, and gives its share of the budget back.
func (r *Request) Drop() {
	clear(r.Messages)
	r.Messages, r.Body = nil, nil
	r.release()
}

// release gives the room of the body back to the budget, once.
func (r *Request) release() {
	if r.held.bytes > 0 {
		r.door.options.Budget.Release(r)
	}
}

// read reads and scans the body.
func (r *Request) read(w http.ResponseWriter) *Refusal {
	body, refused := r.readBody(w)
	if refused != nil {
		return refused
	}
	// Blanks around a message are no part of it. Servers of the Go SDK end when blanks follow a message on its
	// line, and with such a server end the sessions of others, if they share it.
	if n := len(body); n > 0 && (body[0] <= ' ' || body[n-1] <= ' ') {
		body = bytes.Trim(body, " \t\r\n")
	}
	r.Body = body
	if r.Batch = rpc.IsBatch(body); r.Batch {
		messages, err := scanBatch(body)
		if err != nil {
			return notScanned(err)
		}
		r.Messages = messages
		return nil
	}
	envelope, err := rpc.Scan(body)
	if err != nil {
		return notScanned(err)
	}
	r.sole[0] = session.Message{Bytes: body, Envelope: envelope}
	r.Messages = r.sole[:]
	return nil
}

// note records the method and revision of the message, and counts the request as in flight. It is for a request that
// this instance answers, so that no other one counts it, too.
func (r *Request) note() {
	if r.Batch {
		r.Record.Method = methodBatch
	} else {
		e := &r.Messages[0].Envelope
		if e.Kind == rpc.Response {
			return
		}
		r.Record.Method = knownMethod(e.Method)
		if version := e.ProtocolVersion; version != nil { // a session has agreed on its version, and a header proves nothing
			r.Record.Revision = KnownRevision(string(version))
		}
	}
	if r.Caller.Probe {
		return // metrics of operations are about users
	}
	r.Record.counted = true
	r.door.options.Metrics.inFlight.Add(1)
}

// idOfSole returns the id of the request in a POST, or nil if the POST carries anything
// else.
func (r *Request) idOfSole() []byte {
	if len(r.Messages) != 1 || r.Batch || r.Messages[0].Envelope.Kind != rpc.Request {
		return nil
	}
	return r.Messages[0].Envelope.ID.Of(r.Messages[0].Bytes)
}
