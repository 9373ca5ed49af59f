package sidecar

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/config"
)

// Every limit that is answered can be seen in the metrics.
func TestAnswersAreCounted(t *testing.T) {
	t.Parallel()
	adapter, url := startAdapter(t, func(c *config.Config) { c.BodyBytes = 1 << 10 })
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
	w := httptest.NewRecorder()
	adapter.admin.Handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	for status, want := range map[int]int{http.StatusRequestEntityTooLarge: 1, http.StatusServiceUnavailable: 0} {
		if line := fmt.Sprintf("slipway_adapter_answers_total{code=\"%d\"} %d\n", status, want); !strings.Contains(w.Body.String(), line) {
			t.Errorf("%q is not in the metrics", line)
		}
	}
}

// If the pod does not end after a drain, the adapter ends instead of refusing every session from then on.
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
