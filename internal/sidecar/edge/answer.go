package edge

import (
	"net/http"
)

// answerWriter notes how a request is answered.
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

// Refused notes that the adapter itself answers with an error. The code is that of
// JSON-RPC, or 0.
func (w *answerWriter) Refused(status, code int, text string) {
	if code != 0 {
		w.asked.Record.refused(code)
	}
	if status >= http.StatusBadRequest {
		w.asked.door.options.Refusals.note(w.asked, status, text)
	}
}

func (w *answerWriter) begin(status int) {
	record := &w.asked.Record
	if record.Status != 0 || status < http.StatusOK { // 1xx are not the answer
		return
	}
	record.Status = status
	options := &w.asked.door.options
	options.Metrics.answered(status)
	select {
	case <-options.Closing:
		if !w.inSession() {
			w.Header().Set("Connection", "close")
		}
	default:
	}
}

// inSession says whether the answer belongs to a session of this instance, or opens one.
func (w *answerWriter) inSession() bool { return w.asked.Record.Session != "" }

// close closes the record when the Door is done with a request.
func (d *Door) close(p *passage) {
	record := &p.request.Record
	if handed := record.handed; handed != nil && (record.Status < http.StatusBadRequest || handed.over.Swap(true)) {
		return // the front end closes it, or has closed it
	}
	record.Caller = &p.request.Caller
	record.finish(p.request.Context().Err() != nil)
	d.closed(record)
}

func (d *Door) closed(record *Record) {
	d.options.Metrics.ended(record)
	if d.options.Closed != nil {
		d.options.Closed(*record)
	}
}
