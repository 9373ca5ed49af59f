package edge

import (
	"net/http"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/rpc"
)

// answerWriter records how the adapter answers a request.
type answerWriter struct {
	http.ResponseWriter
	asked *Request
}

func (w *answerWriter) WriteHeader(status int) {
	w.begin(status)
	w.ResponseWriter.WriteHeader(status)
}

func (w *answerWriter) Write(b []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Refused records that the adapter itself answers with an error. code is that of JSON-RPC, or
// 0.
func (w *answerWriter) Refused(status, code int, text string) {
	if code != 0 {
		w.asked.Record.Answered(ErrorType(rpc.ErrorTypeOf(code)))
	}
	if status >= http.StatusBadRequest && !w.asked.passedOn {
		w.asked.door.options.Refusals.note(w.asked, status, text)
	}
}

// ServerFailed tells the manager's probe that the server fails. Clients need not know.
func (w *answerWriter) ServerFailed() {
	if w.asked.Caller.Probe {
		w.Header().Set(adapterapi.HeaderFailed, "server")
	}
}

func (w *answerWriter) begin(status int) {
	record := &w.asked.Record
	if record.Status != 0 || status < http.StatusOK { // 1xx are not the answer
		return
	}
	record.Status = status
	options := &w.asked.door.options
	if !w.asked.passedOn {
		options.Metrics.answers.of(status).Inc()
	}
	select {
	case <-options.Closing:
		// The answer neither belongs to a session of this instance nor opens one, or the session has
		// ended since the adapter found it.
		if record.Session == "" || status == http.StatusNotFound {
			w.Header().Set("Connection", "close")
		}
	default:
	}
}

// close closes the record when the Door is done with a request.
func (d *Door) close(r *Request) {
	record := &r.Record
	if handed := record.handed; handed != nil && (record.Status < http.StatusBadRequest || handed.over.Swap(true)) {
		return // the front end closes it, or has closed it
	}
	record.Caller = &r.Caller
	record.finish(r.Context().Err() != nil)
	d.closed(record)
}

func (d *Door) closed(record *Record) {
	d.options.Metrics.ended(record)
	d.options.Audit.closed(record)
	if d.options.Closed != nil {
		d.options.Closed(*record)
	}
}
