package edge

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/sidecar/front"
)

// carrying is a Locator that carries every request, but lets this instance answer.
type carrying struct {
	anything
	got   func(body []byte, rest io.Reader, refused *Refusal)
	again func(body []byte, rest io.Reader, refused *Refusal) // of a second Carry, when the Door has read the body; may be nil
}

func (c carrying) BySession(w http.ResponseWriter, r *Request, _ string) bool {
	c.got(r.Carry(w))
	return true
}

func (c carrying) ByState(w http.ResponseWriter, r *Request) bool {
	if c.again != nil {
		c.again(r.Carry(w))
	}
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

// A request that was carried by its session may be carried once more by its state. Its body is read once.
func TestCarryAgain(t *testing.T) {
	const ping = `{"jsonrpc":"2.0","id":7,"method":"ping"}`
	memory, times := bodies(BodyLimits{BodyBytes: 1 << 20}), 0
	carry := func(body []byte, rest io.Reader, refused *Refusal) {
		if times++; string(body) != ping || rest != nil || refused != nil {
			t.Errorf("Carry %d: %q, a reader: %t, %v", times, body, rest != nil, refused)
		}
	}
	door := New(Options{
		Admit: &stages{body: &countedBody{}}, Budget: memory, Locate: carrying{got: carry, again: carry},
		Routes: map[string]Route{"/mcp": {
			Missing: func(*Request) string { return "missing" }, Serve: func(http.ResponseWriter, *Request) {},
		}},
	})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", strings.NewReader(ping))
	r.Header.Set("Content-Type", front.TypeJSON)
	door.ServeHTTP(httptest.NewRecorder(), r)
	if left := memory.bytes.Used(); times != 2 || left != 0 {
		t.Errorf("carried %d times, and %d bytes take room", times, left)
	}
}

// A body that is too large here is not refused here: the limits of the instance that answers count.
func TestCarryBeyondTheLimit(t *testing.T) {
	memory := bodies(BodyLimits{BodyBytes: 10})
	door := New(Options{
		Admit: &stages{body: &countedBody{}}, Budget: memory,
		Locate: carrying{got: func(_ []byte, rest io.Reader, refused *Refusal) {
			if rest == nil || refused != nil {
				t.Fatalf("a reader: %t, %v", rest != nil, refused)
			}
			if text, err := io.ReadAll(rest); string(text) != "eleven byte" || err != nil {
				t.Errorf("read %q, %v", text, err)
			}
		}},
		Routes: map[string]Route{"/mcp": {
			Missing: func(*Request) string { return "missing" }, Serve: func(http.ResponseWriter, *Request) {},
		}},
	})
	door.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", strings.NewReader("eleven byte")))
}

// moments notes the deadlines for reads that a client gets.
type moments struct {
	http.ResponseWriter
	set []time.Time
}

func (d *moments) SetReadDeadline(t time.Time) error {
	d.set = append(d.set, t)
	return nil
}

// A client that sends a large body gets time for each piece of it, and none for the request that follows.
func TestCarryTakesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, begin := &moments{}, time.Now()
		body := &timely{from: strings.NewReader(strings.Repeat("x", pieceBytes+1)), control: http.NewResponseController(w), timeout: time.Minute}
		read := func(bytes int) {
			t.Helper()
			if _, err := io.ReadFull(body, make([]byte, bytes)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		read(pieceBytes / 2)
		read(pieceBytes / 2)
		read(1)
		if _, err := body.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("at the end: %v", err)
		}
		want := []time.Time{begin.Add(time.Minute), begin.Add(time.Minute + 2*time.Second), {}}
		if diff := cmp.Diff(want, w.set); diff != "" {
			t.Errorf("deadlines (-want +got):\n%s", diff)
		}
	})
}

// The connection of a client whose body broke off closes: the rest of the body is not another request.
func TestNotReadCloses(t *testing.T) {
	r := &Request{door: New(Options{Budget: bodies(BodyLimits{ReadTimeout: time.Second})})}
	for err, status := range map[error]int{os.ErrDeadlineExceeded: http.StatusRequestTimeout, io.ErrUnexpectedEOF: http.StatusBadRequest} {
		if refused := r.NotRead(err); refused.Status != status || !refused.Close {
			t.Errorf("%v: %+v", err, refused)
		}
	}
}
