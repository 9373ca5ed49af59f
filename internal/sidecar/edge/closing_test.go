package edge

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/origin"
)

// A client that learns from a 404 that its session has ended begins another one at once. On the
// connection of before, it would ask the instance that goes away.
func TestClosing(t *testing.T) {
	const session = "1"
	for name, test := range map[string]struct {
		isOpen  bool // the instance stays
		session string
		status  int
		want    string
	}{
		"outside a session": {status: http.StatusOK, want: "close"},
		"in a session":      {session: session, status: http.StatusOK},
		"in a session that ends while it is answered": {session: session, status: http.StatusNotFound, want: "close"},
		"the same, of an instance that stays":         {isOpen: true, session: session, status: http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			closing := make(chan struct{})
			if !test.isOpen {
				close(closing)
			}
			policy := &origin.Policy{}
			door := New(Options{
				Admit: &Origins{Policy: func() *origin.Policy { return policy }}, Budget: bodies(BodyLimits{BodyBytes: 1 << 10}), Closing: closing,
				Routes: map[string]Route{"/mcp": {Serve: func(w http.ResponseWriter, r *Request) {
					r.Record.Session = test.session
					front.RefusePlain(w, test.status, "an answer")
				}}},
			})
			w := httptest.NewRecorder()
			door.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://192.0.2.1/mcp", http.NoBody))
			if got := w.Header().Get("Connection"); w.Code != test.status || got != test.want {
				t.Errorf("answered %d, Connection %q, want %d and %q", w.Code, got, test.status, test.want)
			}
		})
	}
}
