package sidecar

import "net/http"

// closing has every answer that is given while the adapter drains say that its
// connection closes, so that clients turn elsewhere. http.Server can do that, but
// closes idle connections at the same moment, and with them requests that have just
// been sent.
func (a *Adapter) closing(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(&closingWriter{ResponseWriter: w, draining: a.draining}, r)
	})
}

type closingWriter struct {
	http.ResponseWriter
	draining <-chan struct{}
	begun    bool
}

func (w *closingWriter) WriteHeader(status int) {
	w.begin()
	w.ResponseWriter.WriteHeader(status)
}

func (w *closingWriter) Write(b []byte) (int, error) {
	w.begin()
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (w *closingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *closingWriter) begin() {
	if w.begun {
		return
	}
	w.begun = true
	select {
	case <-w.draining:
		w.Header().Set("Connection", "close")
	default:
	}
}
