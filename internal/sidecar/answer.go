package sidecar

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// answering counts answers by their status, and has every one that is given while the
// adapter drains say that its connection closes, so that clients turn elsewhere.
// http.Server can do that, but closes idle connections at the same moment, and with
// them requests that have just been sent.
func (a *Adapter) answering(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(&answerWriter{ResponseWriter: w, adapter: a}, r)
	})
}

type answerWriter struct {
	http.ResponseWriter
	adapter *Adapter
	begun   bool
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

func (w *answerWriter) begin(status int) {
	if w.begun || status < http.StatusOK { // 1xx are not the answer
		return
	}
	w.begun = true
	w.adapter.answers.of(status).Inc()
	select {
	case <-w.adapter.draining:
		w.Header().Set("Connection", "close")
	default:
	}
}

// answerCounts counts what clients were answered, by status. Counters are made beforehand:
// looking one up costs a call nothing.
type answerCounts struct {
	known map[int]prometheus.Counter
	other [6]prometheus.Counter // by class
}

// answerStatuses are those that the adapter gives itself; servers that speak HTTP may
// think of others.
var answerStatuses = []int{
	http.StatusOK, http.StatusAccepted, http.StatusNoContent, http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden,
	http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusRequestTimeout, http.StatusConflict,
	http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusMisdirectedRequest, http.StatusTooManyRequests,
	http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
}

func newAnswerCounts(registry prometheus.Registerer) *answerCounts {
	vector := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "slipway", Subsystem: "adapter", Name: "answers_total", Help: "Answers to clients, by HTTP status: 413 and 503 are limits that were hit.",
	}, []string{"code"})
	registry.MustRegister(vector)
	a := &answerCounts{known: map[int]prometheus.Counter{}}
	for _, status := range answerStatuses {
		a.known[status] = vector.WithLabelValues(strconv.Itoa(status))
	}
	for class := range a.other {
		a.other[class] = vector.WithLabelValues(strconv.Itoa(class) + "xx")
	}
	return a
}

func (a *answerCounts) of(status int) prometheus.Counter {
	if counter, ok := a.known[status]; ok {
		return counter
	}
	return a.other[min(max(status/100, 0), len(a.other)-1)]
}
