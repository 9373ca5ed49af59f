package edge

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/sidecar/front"
)

// carrying is a Locator that carries every request, and lets this instance answer all the same.
type carrying struct {
	anything
	got func(body []byte, rest io.Reader, refused *Refusal)
}

func (c carrying) BySession(w http.ResponseWriter, r *Request, _ string) bool {
	c.got(r.Carry(w))
	return true
}

// A small body is read and counted; this instance can still answer the request. Any other body is left to be read.
func TestCarry(t *testing.T) {
	const ping = `{"jsonrpc":"2.0","id":7,"method":"ping"}`
	for name, test := range map[string]struct {
		body     string
		length   int64 // announced
		streamed bool
	}{
		"small":           {body: ping, length: int64(len(ping))},
		"as much as read": {body: ping + strings.Repeat(" ", carriedBytes-len(ping)), length: carriedBytes},
		"larger":          {body: ping + strings.Repeat(" ", carriedBytes-len(ping)+1), length: carriedBytes + 1, streamed: true},
		"of any length":   {body: ping, length: -1, streamed: true},
	} {
		t.Run(name, func(t *testing.T) {
			memory := bodies(BodyLimits{BodyBytes: 1 << 20, ReadTimeout: ReadTimeout})
			served := false
			door := New(Options{
				Admit: &stages{body: &countedBody{}}, Budget: memory,
				Locate: carrying{got: func(body []byte, rest io.Reader, refused *Refusal) {
					if refused != nil || (rest != nil) != test.streamed || !test.streamed && string(body) != test.body {
						t.Errorf("got %d bytes, a reader: %t, %v", len(body), rest != nil, refused)
					}
					if held := memory.bytes.Used(); (held == 0) != test.streamed {
						t.Errorf("the body holds %d bytes", held)
					}
				}},
				Routes: map[string]Route{"/mcp": {
					Missing: func(*Request) string { return "missing" },
					Serve: func(w http.ResponseWriter, r *Request) {
						served = len(r.Messages) == 1 && string(r.Messages[0].Envelope.Method) == "ping"
						w.WriteHeader(http.StatusNoContent)
					},
				}},
			})
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", strings.NewReader(test.body))
			r.ContentLength = test.length
			r.Header.Set("Content-Type", front.TypeJSON)
			w := httptest.NewRecorder()
			door.ServeHTTP(w, r)
			if !served || w.Code != http.StatusNoContent {
				t.Errorf("answered %d %s", w.Code, w.Body)
			}
			if left := memory.bytes.Used(); left != 0 {
				t.Errorf("the request has ended, and %d bytes of its body take room", left)
			}
		})
	}
}

// A body that does not come as announced is refused here, and goes to no other instance.
func TestCarryBrokenBody(t *testing.T) {
	door := New(Options{
		Admit: &stages{body: &countedBody{}}, Budget: bodies(BodyLimits{BodyBytes: 1 << 20}),
		Locate: carrying{got: func(_ []byte, _ io.Reader, refused *Refusal) {
			if refused == nil || refused.Status != http.StatusBadRequest || !refused.Close {
				t.Errorf("got %+v", refused)
			}
		}},
		Routes: map[string]Route{"/mcp": {
			Missing: func(*Request) string { return "missing" }, Serve: func(http.ResponseWriter, *Request) {},
		}},
	})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", io.MultiReader(strings.NewReader("{"), brokenReader{}))
	r.ContentLength = 100
	door.ServeHTTP(httptest.NewRecorder(), r)
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
