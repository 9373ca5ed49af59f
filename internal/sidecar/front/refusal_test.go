package front

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/sidecar/session"
)

// The status tells a client whether to begin again, to change its message, or to try again. The
// answer to a client whose session has ended names no request.
func TestRefuseMessage(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		status int
		retry  string
		body   []string
	}{
		"ended":     {session.ErrEnded, 404, "", []string{`{"jsonrpc":"2.0","error":`, `"message":"begin again"`}},
		"duplicate": {session.ErrDuplicateID, 400, "", []string{`"id":7`, `"message":"` + session.ErrDuplicateID.Error() + `"`}},
		"too many":  {session.ErrTooManyCalls, 503, "1", []string{`"id":7`, `"message":"` + session.ErrTooManyCalls.Error() + `"`}},
		"other":     {fmt.Errorf("wrapped: %w", errors.New("broken pipe")), 503, "1", []string{`"id":7`, `"message":"the server does not take messages now: wrapped: broken pipe"`}},
	} {
		answer := httptest.NewRecorder()
		RefuseMessage(answer, []byte("7"), test.err, "begin again")
		if answer.Code != test.status || answer.Header().Get("Retry-After") != test.retry {
			t.Errorf("%s: %d, Retry-After %q", name, answer.Code, answer.Header().Get("Retry-After"))
		}
		for _, want := range test.body {
			if !strings.Contains(answer.Body.String(), want) {
				t.Errorf("%s: %s has no %s", name, answer.Body, want)
			}
		}
	}
}
