package edge

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/fault"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/origin"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

func TestAnswersOfServersAreCountedByClass(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry())
	for _, status := range []int{http.StatusOK, 299, 599, 999} {
		m.answers.of(status).Inc()
	}
	for class, want := range map[int]float64{2: 1, 3: 0, 5: 2} {
		if got := testutil.ToFloat64(m.answers.other[class]); got != want {
			t.Errorf("%v answers with other statuses of class %d, want %v", got, class, want)
		}
	}
}

// Whatever clients send, there are only so many series.
func TestLabelsAreBounded(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry)
	for n := range 1000 {
		odd := fmt.Sprint("odd", n)
		m.inFlight.Add(1)
		m.ended(&Record{Method: knownMethod([]byte(odd)), Revision: KnownRevision(odd), Error: ErrorType(rpc.ErrorTypeOf(1000 + n)), counted: true})
		m.SessionEnded(odd, time.Second, errors.New(odd))
	}
	for name, want := range map[string]int{operationName: 1, sessionName: 1} {
		if got, err := testutil.GatherAndCount(registry, name); err != nil || got != want {
			t.Errorf("%d series of %s, want %d: %v", got, name, want, err)
		}
	}
}

func TestInFlight(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry)
	gauge := func() float64 {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			if family.GetName() == "slipway_adapter_operations_in_flight" {
				return family.GetMetric()[0].GetGauge().GetValue()
			}
		}
		t.Fatal("nothing says what is in flight")
		return 0
	}
	var during float64
	door := New(Options{
		Admit: &Origins{Policy: func() *origin.Policy { return &origin.Policy{} }}, Budget: bodies(BodyLimits{BodyBytes: 1 << 10}), Metrics: m,
		Routes: map[string]Route{"/": {Serve: func(w http.ResponseWriter, r *Request) {
			during = gauge()
			r.Record.Revision = front.Revision20250618
			w.WriteHeader(http.StatusOK)
		}}},
	})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(`{"jsonrpc":"2.0","id":7,"method":"tools/call"}`))
	r.Header.Set("Content-Type", front.TypeJSON)
	door.ServeHTTP(httptest.NewRecorder(), r)
	if during != 1 || gauge() != 0 {
		t.Errorf("%v in flight during a call, %v after it", during, gauge())
	}
	if counted := *m.succeeded.Load(); counted[operation{"tools/call", front.Revision20250618}] == nil {
		t.Errorf("the call is counted as %v", counted)
	}
}

// How a session ended is an error only if the server ended it.
func TestSessionErrors(t *testing.T) {
	for reason, want := range map[error]string{
		session.ErrClient: "", fmt.Errorf("%w (1m)", session.ErrIdle): "", session.ErrLifetime: "", fault.ErrDraining: "",
		errors.New("exit status 1"): serverEnded,
	} {
		if got := sessionError(reason); got != want {
			t.Errorf("%v: got %q, want %q", reason, got, want)
		}
	}
}
