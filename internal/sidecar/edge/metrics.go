package edge

import (
	"cmp"
	"errors"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// Names, labels and buckets are those of the OpenTelemetry conventions for MCP. No client
// and no server can choose the value of a label.
const (
	operationName = "mcp_server_operation_duration_seconds"
	sessionName   = "mcp_server_session_duration_seconds"

	labelMethod   = "mcp_method_name"
	labelRevision = "mcp_protocol_version"
	labelError    = "error_type"

	// other stands for every unlisted value.
	other = "_OTHER"
	// methodBatch stands for the methods of a batch, which the adapter answers together.
	methodBatch = "batch"
)

var (
	operationBuckets = []float64{.01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 120, 300}
	// The convention's buckets end at five minutes, and sessions last for a day.
	sessionBuckets = []float64{1, 5, 10, 30, 60, 300, 600, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400}
)

// Metrics count requests, by their records, and sessions.
type Metrics struct {
	inFlight   atomic.Int64
	operations *prometheus.HistogramVec
	sessions   *prometheus.HistogramVec
	answers    answerCounts

	// Observers of operations that succeeded, by method and revision. The first operation
	// of a kind adds its observer, so that later ones need not look up labels.
	succeeded atomic.Pointer[map[operation]prometheus.Observer]
	making    sync.Mutex // held while an observer is added
}

// operation is the key of an observer for operations that succeeded.
type operation struct{ method, revision string }

// NewMetrics registers the metrics of requests and sessions.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		operations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: operationName, Help: "Duration of client requests and notifications, until the response was written. For servers that speak Streamable HTTP, error_type is the HTTP status of the response, because the adapter does not read it.",
			Buckets: operationBuckets, // no native histogram beside it: observing in one cost 3 % of the calls/s
		}, []string{labelMethod, labelRevision, labelError}),
		sessions: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: sessionName, Help: "Duration of sessions. error_type is server_ended if the server ended the session, and otherwise empty.",
			Buckets: sessionBuckets,
		}, []string{labelRevision, labelError}),
		answers: newAnswerCounts(registry),
	}
	m.succeeded.Store(&map[operation]prometheus.Observer{})
	registry.MustRegister(m.operations, m.sessions, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "slipway", Subsystem: "adapter", Name: "operations_in_flight", Help: "Client requests in flight. Streams without a request are not counted.",
	}, func() float64 { return float64(m.inFlight.Load()) }))
	return m
}

func (m *Metrics) ended(r *Record) {
	if r.counted {
		m.inFlight.Add(-1)
		m.observer(r).Observe(r.Duration.Seconds())
	}
}

func (m *Metrics) observer(r *Record) prometheus.Observer {
	if r.Error != Succeeded {
		return m.operations.WithLabelValues(r.Method, r.Revision, string(r.Error))
	}
	what := operation{r.Method, r.Revision}
	if known := (*m.succeeded.Load())[what]; known != nil {
		return known
	}
	m.making.Lock()
	defer m.making.Unlock()
	more := maps.Clone(*m.succeeded.Load())
	more[what] = m.operations.WithLabelValues(r.Method, r.Revision, "")
	m.succeeded.Store(&more)
	return more[what]
}

// SessionEnded records how long a session lasted, and whether the server ended it.
func (m *Metrics) SessionEnded(revision string, lasted time.Duration, reason error) {
	m.sessions.WithLabelValues(KnownRevision(revision), sessionError(reason)).Observe(lasted.Seconds())
}

// serverEnded is the error type of a session that its server ended.
const serverEnded = "server_ended"

// sessionError is empty for a session that its client ends, that reaches a time limit,
// that yields to another, or that ends because the instance drains.
func sessionError(reason error) string {
	for _, orderly := range []error{session.ErrClient, session.ErrIdle, session.ErrSilent, session.ErrLifetime, session.ErrYielded, fault.ErrDraining} {
		if errors.Is(reason, orderly) {
			return ""
		}
	}
	return serverEnded
}

// methods are those of the protocol's schemas, of all revisions.
var methods = labels(
	"initialize", "ping", "server/discover",
	"tools/list", "tools/call",
	"resources/list", "resources/templates/list", "resources/read", "resources/subscribe", "resources/unsubscribe",
	"prompts/list", "prompts/get", "completion/complete", "logging/setLevel",
	"subscriptions/listen",
	"tasks/list", "tasks/get", "tasks/update", "tasks/result", "tasks/cancel",
	"notifications/initialized", "notifications/cancelled", "notifications/progress", "notifications/roots/list_changed",
	"notifications/tasks/status",
)

var revisions = labels(append(front.Revisions(), front.Revision20260728)...)

// labels returns the values of a label, by themselves.
func labels(values ...string) map[string]string {
	known := map[string]string{}
	for _, value := range values {
		known[value] = value
	}
	return known
}

// knownMethod returns a method as a label.
func knownMethod(method []byte) string {
	return cmp.Or(methods[string(method)], other) // the compiler makes no string of the key
}

// KnownRevision returns a protocol revision as a label. Without a revision the label is empty.
func KnownRevision(revision string) string {
	if revision == "" {
		return ""
	}
	return cmp.Or(revisions[revision], other)
}

// answerCounts counts answers to clients, by status. It makes all counters in advance, so
// that no answer looks up labels.
type answerCounts struct {
	known [600]prometheus.Counter // by status; nil for most
	other [6]prometheus.Counter   // by class
}

// answerStatuses are the statuses of the adapter itself. Servers that speak HTTP may use
// others.
var answerStatuses = []int{
	http.StatusOK, http.StatusAccepted, http.StatusNoContent, http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden,
	http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusRequestTimeout, http.StatusConflict,
	http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusMisdirectedRequest, http.StatusTooManyRequests,
	http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
}

func newAnswerCounts(registry prometheus.Registerer) answerCounts {
	vector := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "slipway", Subsystem: "adapter", Name: "answers_total", Help: "HTTP responses to clients, by status code. 413: the body was too large. 503: a limit was reached, the server cannot start, or the adapter is draining.",
	}, []string{"code"})
	registry.MustRegister(vector)
	a := answerCounts{}
	for _, status := range answerStatuses {
		a.known[status] = vector.WithLabelValues(strconv.Itoa(status))
	}
	for class := range a.other {
		a.other[class] = vector.WithLabelValues(strconv.Itoa(class) + "xx")
	}
	return a
}

func (a *answerCounts) of(status int) prometheus.Counter {
	if status >= 0 && status < len(a.known) && a.known[status] != nil {
		return a.known[status]
	}
	return a.other[min(max(status/100, 0), len(a.other)-1)]
}
