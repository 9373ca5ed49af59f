package edge

import (
	"net/http"
)

// answerWriter notes how a request is answered.
type answerWriter struct {
	http.ResponseWriter
	door   *Door
	record *Record
	status int // of the answer, once it has begun
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

// Refused is told of errors that the adapter itself answers with.
func (w *answerWriter) Refused(code int) { w.record.refused(code) }

func (w *answerWriter) begin(status int) {
	if w.status != 0 || status < http.StatusOK { // 1xx are not the answer
		return
	}
	w.status = status
	w.door.options.Metrics.answered(status)
	select {
	case <-w.door.options.Closing:
		w.Header().Set("Connection", "close")
	default:
	}
}

// close closes the record of a request that is over.
func (d *Door) close(p *passage) {
	record := &p.request.Record
	if handed := record.handed; handed != nil && (p.status < http.StatusBadRequest || handed.over.Swap(true)) {
		return // whoever has it closes it, or has
	}
	record.Caller = &p.request.Caller
	record.finish(p.status, p.request.Context().Err() != nil)
	d.closed(record)
}

func (d *Door) closed(record *Record) {
	d.options.Metrics.ended(record)
	if d.options.Closed != nil {
		d.options.Closed(*record)
	}
}
