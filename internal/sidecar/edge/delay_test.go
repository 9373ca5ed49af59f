package edge

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/origin"
)

// slow refuses every request, after a second.
type slow struct{}

func (slow) Authenticate(*http.Request) (caller.Caller, *Refusal) {
	return caller.Caller{}, &Refusal{Status: http.StatusUnauthorized, Reason: "signature", Delay: time.Second}
}

// A refusal that has to wait holds the request back, but neither a client that has left nor an adapter that drains.
func TestRefusalWaits(t *testing.T) {
	tests := map[string]struct {
		leave, drain time.Duration // 0 for never
		want         time.Duration
	}{
		"to the end":         {want: time.Second},
		"the client leaves":  {leave: 300 * time.Millisecond, want: 300 * time.Millisecond},
		"the adapter drains": {drain: 400 * time.Millisecond, want: 400 * time.Millisecond},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				closing := make(chan struct{})
				if test.leave > 0 {
					time.AfterFunc(test.leave, cancel)
				}
				if test.drain > 0 {
					time.AfterFunc(test.drain, func() { close(closing) })
				}
				policy := &origin.Policy{}
				door := New(Options{
					Admit: &Origins{Policy: func() *origin.Policy { return policy }}, Authenticate: slow{}, Budget: bodies(BodyLimits{BodyBytes: 1}), Closing: closing,
					Routes: map[string]Route{"/mcp": {}},
				})
				began, w := time.Now(), httptest.NewRecorder()
				door.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "http://192.0.2.1/mcp", nil))
				if took := time.Since(began); took != test.want || w.Code != http.StatusUnauthorized {
					t.Errorf("answered with %d after %s, want 401 after %s", w.Code, took, test.want)
				}
			})
		})
	}
}
