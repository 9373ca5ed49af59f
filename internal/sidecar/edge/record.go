package edge

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
)

// Front is the front end that answers a request.
type Front string

// The front ends.
const (
	Streamable Front = "streamable" // sessions of Streamable HTTP
	Stateless  Front = "stateless"  // revision 2026-07-28
	HTTPAndSSE Front = "sse"        // the transport of 2024-11-05
	HTTPServer Front = "http"       // forwarded to a server that speaks HTTP itself
)

// ErrorType says how a request failed. It is a label of metrics, and so has few values.
// It is empty for a request that succeeded.
type ErrorType string

// Error types besides codes of JSON-RPC and HTTP.
const (
	Succeeded ErrorType = ""
	ToolError ErrorType = rpc.ToolError
	Timeout   ErrorType = "timeout"
	Cancelled ErrorType = "cancelled" // the client did not wait for the answer
	Broken    ErrorType = "broken"    // the server's answer broke off
)

// Record is what the adapter knows of a request when it ends.
type Record struct {
	Front      Front
	HTTPMethod string
	Path       string
	Method     string         // of the message; empty if there is none, or it is an answer
	Revision   string         // of the protocol; empty if nothing says which
	Session    string         // its number in the log; empty without a session
	Caller     *caller.Caller // valid until Options.Closed returns; copy it to keep it
	Status     int            // of the answer, once it has begun; 0 if there is none
	Error      ErrorType
	Duration   time.Duration

	began   time.Time
	handed  *Handed  // not nil after HandOver: it closes the record
	closed  bool     // Answered has been called
	counted bool     // Metrics counts it as in flight
	audited *audited // what an audit says besides; nil for most
}

// Answered records how the request ended. The code that writes the answer calls it. Only
// the first call has an effect.
func (r *Record) Answered(how ErrorType) {
	if !r.closed {
		r.closed, r.Error = true, how
	}
}

// finish fills in the duration, and the error if no call of Answered has set it.
func (r *Record) finish(gone bool) {
	r.Duration = time.Since(r.began)
	switch {
	case r.closed:
	case gone || r.Status == 0:
		r.Error = Cancelled
	case r.Status >= http.StatusBadRequest:
		r.Error = statusError(r.Status)
	}
	r.closed = true
}

// statusError is the error type of a status. A server can choose an unknown one.
func statusError(status int) ErrorType {
	if http.StatusText(status) == "" {
		return other
	}
	return ErrorType(strconv.Itoa(status))
}

// Handed is a record that outlives its request: the front end writes the answer to a stream
// on another connection of the client.
type Handed struct {
	door   *Door
	caller caller.Caller
	record Record
	over   atomic.Bool
}

// HandOver returns a Handed that the front end closes later. It is for requests that the
// front end accepts now and answers on another connection. If the front end refuses the
// request after all, the Door closes the record.
func (r *Request) HandOver() *Handed {
	h := &Handed{door: r.door, caller: r.Caller, record: r.Record}
	h.record.Caller = &h.caller
	r.Record.handed = h
	return h
}

// Close closes the record, if it is not closed yet.
func (h *Handed) Close(how ErrorType) {
	if h.over.Swap(true) {
		return
	}
	h.record.Answered(how)
	h.record.Status = http.StatusAccepted
	h.record.finish(false)
	h.door.closed(&h.record)
}
