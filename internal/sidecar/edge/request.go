package edge

import (
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
	Body     []byte // as it came
	Record   Record
	Batch    bool

	reserved bool // the budget has to be given back
	held     held
	door     *Door
	writer   *answerWriter
	sole     [1]session.Message // what Messages is of nearly always
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

// release gives the budget back, once.
func (r *Request) release() {
	if r.reserved {
		r.reserved = false
		r.door.options.Budget.Release(r)
	}
}

// read reads and scans the body. If it returns false it has answered the request.
func (r *Request) read(w http.ResponseWriter, limits BodyLimits) bool {
	body, refused := r.readBody(w, limits)
	if refused != nil {
		refused.write(w, nil)
		return false
	}
	r.Body = body
	if r.Batch = rpc.IsBatch(body); r.Batch {
		messages, err := scanBatch(body)
		if err != nil {
			refuseScan(w, err)
			return false
		}
		r.Messages = messages
		r.note(methodBatch, nil)
		return true
	}
	envelope, err := rpc.Scan(body)
	if err != nil {
		refuseScan(w, err)
		return false
	}
	r.sole[0] = session.Message{Bytes: body, Envelope: envelope}
	r.Messages = r.sole[:]
	if envelope.Kind != rpc.Response {
		r.note(knownMethod(envelope.Method), envelope.ProtocolVersion)
	}
	return true
}

// note records the method and version of the message, and counts the request as in
// flight.
func (r *Request) note(method string, version []byte) {
	r.Record.Method = method
	if version != nil { // a session has agreed on its version, and a header proves nothing
		r.Record.Revision = KnownRevision(string(version))
	}
	if r.Caller.Probe {
		return // metrics of operations are about users
	}
	r.Record.counted = true
	r.door.options.Metrics.began()
}

// idOfSole returns the id of the request in a POST, or nil if the POST carries anything
// else.
func (r *Request) idOfSole() []byte {
	if len(r.Messages) != 1 || r.Batch || r.Messages[0].Envelope.Kind != rpc.Request {
		return nil
	}
	return r.Messages[0].Envelope.ID.Of(r.Messages[0].Bytes)
}
