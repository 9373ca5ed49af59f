package peer

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/rpc"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
)

// A client that waits for a place gets the owner's answer as it is if that comes soon. Otherwise it gets a stream with
// comments, and then the owner's stream. Any other answer comes too late.
func TestHeldStreams(t *testing.T) {
	const event = "data: {}\n\n"
	for name, test := range map[string]struct {
		waits     time.Duration
		status    int // of the owner
		typ, body string

		wantStatus   int
		wantComments int
		wantDropped  bool
	}{
		"no wait":                           {0, http.StatusOK, front.TypeEvents, event, http.StatusOK, 0, false},
		"a short wait":                      {holdAfter - 1, http.StatusOK, front.TypeEvents, event, http.StatusOK, 0, false},
		"a short wait, and no stream":       {holdAfter - 1, http.StatusNotFound, front.TypeJSON, "{}", http.StatusNotFound, 0, false},
		"a wait":                            {holdAfter + 1, http.StatusOK, front.TypeEvents + "; charset=utf-8", event, http.StatusOK, 1, false},
		"a long wait":                       {holdAfter + 2*front.KeepAliveInterval + 1, http.StatusOK, front.TypeEvents, event, http.StatusOK, 3, false},
		"a wait, and the session is over":   {holdAfter + 1, http.StatusNotFound, front.TypeJSON, "{}", http.StatusOK, 1, true},
		"a wait, and an error as a stream":  {holdAfter + 1, http.StatusBadGateway, front.TypeEvents, event, http.StatusOK, 1, true},
		"a wait, and success but no stream": {holdAfter + 1, http.StatusOK, front.TypeJSON, "{}", http.StatusOK, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := httptest.NewRecorder()
				h := &held{ResponseWriter: w, leave: func() { t.Error("the request ends") }}
				defer h.close()
				if test.waits > 0 {
					over := h.wait()
					time.Sleep(test.waits)
					over()
				}
				h.Header().Set("Content-Type", test.typ)
				h.WriteHeader(test.status)
				if _, err := io.WriteString(h, test.body); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Hour)
				body := w.Body.String()
				if comments := strings.Count(body, rpc.KeepAlive); w.Code != test.wantStatus || comments != test.wantComments || h.dropped != test.wantDropped ||
					strings.HasSuffix(body, test.body) == test.wantDropped {
					t.Errorf("%d after %d comments, dropped: %t, %q", w.Code, comments, h.dropped, body)
				}
			})
		})
	}
}
