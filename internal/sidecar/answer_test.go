package sidecar

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// Every limit that is answered can be seen in the metrics.
func TestAnswersAreCounted(t *testing.T) {
	t.Parallel()
	adapter, url := startAdapter(t, func(c *Config) { c.BodyBytes = 1 << 10 })
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(strings.Repeat(" ", 2<<10)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil {
		t.Fatal(err)
	}
	for status, want := range map[int]float64{http.StatusRequestEntityTooLarge: 1, http.StatusServiceUnavailable: 0, http.StatusTeapot: 0} {
		if got := testutil.ToFloat64(adapter.answers.of(status)); got != want {
			t.Errorf("%d answers %d, want %v", int(got), status, want)
		}
	}
	adapter.answering(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(999) })).
		ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	if got := testutil.ToFloat64(adapter.answers.other[5]); got != 1 {
		t.Errorf("a status of a server's own was counted %v times", got)
	}
}

// A drain that the end of the pod does not follow leaves no adapter behind that
// refuses every session for ever.
func TestDrainThatNothingFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if err := awaitEnd(t.Context()); err == nil || time.Since(begin) != drainLinger {
			t.Errorf("after %s: %v", time.Since(begin), err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if err := awaitEnd(ended); err != nil {
			t.Errorf("told to end: %v", err)
		}
	})
}
