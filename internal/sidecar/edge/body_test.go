package edge

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/slipway-mcp/slipway/internal/sidecar/budget"
	"github.com/slipway-mcp/slipway/internal/sidecar/front"
)

// bodies bounds each body, and has room for all.
func bodies(limits BodyLimits) *Memory { return NewMemory(limits, budget.New(1<<40, 1)) }

func readBody(w http.ResponseWriter, r *http.Request, limits BodyLimits) ([]byte, *Refusal) {
	request := &Request{Request: r, door: New(Options{Budget: bodies(limits)}), Record: Record{began: time.Now()}}
	return request.readBody(w)
}

// deadlines notes how often a client was given more time.
type deadlines struct {
	*httptest.ResponseRecorder
	given, lifted int
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	if at.IsZero() {
		d.lifted++
	} else {
		d.given++
	}
	return nil
}

type inPieces struct {
	io.Reader
	size int
}

func (p inPieces) Read(b []byte) (int, error) { return p.Reader.Read(b[:min(len(b), p.size)]) }

// A client earns time by sending a good part of its body, not by sending a few bytes.
// A client that trickles would otherwise occupy a slot without limit.
func TestTimeForABody(t *testing.T) {
	const size = 4 * pieceBytes
	for name, test := range map[string]struct {
		piece, most int
	}{
		"all at once":      {size, 5},
		"steadily":         {pieceBytes / 2, 5},
		"byte after byte":  {1, 5},
		"nothing but dust": {7, 5},
	} {
		t.Run(name, func(t *testing.T) {
			w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
			r := httptest.NewRequest(http.MethodPost, "/", inPieces{strings.NewReader(strings.Repeat(" ", size)), test.piece})
			r.Header.Set("Content-Type", front.TypeJSON)
			body, refused := readBody(w, r, BodyLimits{BodyBytes: size, ReadTimeout: time.Second})
			if refused != nil || len(body) != size {
				t.Fatalf("read %d bytes, %v", len(body), refused)
			}
			if w.given > test.most || w.lifted != 1 {
				t.Errorf("time was given %d times and lifted %d times, want at most %d, and once", w.given, w.lifted, test.most)
			}
		})
	}
}

// T-03: every way to send a body wrongly has its own answer.
func TestRefusedBodies(t *testing.T) {
	for name, test := range map[string]struct {
		body    io.Reader
		headers map[string]string
		status  int
		want    string
	}{
		"just right":        {strings.NewReader("12345678"), nil, 200, ""},
		"parameters":        {strings.NewReader("{}"), map[string]string{"Content-Type": "application/json; charset=utf-8"}, 200, ""},
		"too large":         {strings.NewReader("123456789"), nil, 413, "larger than 8 bytes"},
		"too large, unsaid": {inPieces{strings.NewReader("123456789"), 1}, nil, 413, "larger than 8 bytes"},
		"no type":           {strings.NewReader("{}"), map[string]string{"Content-Type": ""}, 415, "the Content-Type must be application/json, and there is none"},
		"other type":        {strings.NewReader("{}"), map[string]string{"Content-Type": "text/plain"}, 415, `the Content-Type must be application/json, not \"text/plain\"`},
		"compressed":        {strings.NewReader("{}"), map[string]string{"Content-Encoding": "gzip"}, 415, `the body must not have a Content-Encoding, such as \"gzip\"`},
		"breaks off":        {iotest.ErrReader(io.ErrUnexpectedEOF), nil, 400, "could not be read"},
		"breaks off later":  {iotest.TimeoutReader(inPieces{strings.NewReader("1234"), 1}), nil, 400, "could not be read"},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodPost, "/", test.body)
			r.Header.Set("Content-Type", front.TypeJSON)
			for name, value := range test.headers {
				r.Header.Set(name, value)
			}
			if _, refused := readBody(w, r, BodyLimits{BodyBytes: 8}); refused != nil {
				refused.write(w, nil)
			}
			if w.Code != test.status || !strings.Contains(w.Body.String(), test.want) {
				t.Errorf("got %d: %s\nwant %d with %q", w.Code, w.Body, test.status, test.want)
			}
		})
	}
}

// A client that stops in the middle of its body is told so, and not waited for.
func TestBodyThatStops(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, refused := readBody(w, r, BodyLimits{BodyBytes: 1 << 10, ReadTimeout: 50 * time.Millisecond}); refused != nil {
			refused.write(w, nil)
		}
	}))
	t.Cleanup(server.Close)
	connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	if _, err := io.WriteString(connection, "POST / HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(connection) // up to the end of the connection
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 408 ") || !strings.Contains(string(answer), "the body does not arrive") {
		t.Errorf("got %s, %v", answer, err)
	}
}
