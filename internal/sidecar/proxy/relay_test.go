package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/sidecar/edge"
	"github.com/slipway-mcp/slipway/test/hang"
)

// An answer that breaks off is not taken for a whole one.
func TestBrokenAnswers(t *testing.T) {
	head := "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n"
	for name, test := range map[string]struct {
		answer string
		whole  bool
	}{
		"JSON":             {fmt.Sprintf(head, typeJSON) + "5\r\n{\"jso\r\n", false},
		"within an event":  {fmt.Sprintf(head, typeEvents) + "9\r\ndata: {\"j\r\n", false},
		"after an event":   {fmt.Sprintf(head, typeEvents) + "a\r\ndata: {}\n\n\r\n", true},
		"length not kept":  {"HTTP/1.1 200 OK\r\nContent-Type: " + typeJSON + "\r\nContent-Length: 100\r\n\r\n{", false},
		"R31 proper end":   {fmt.Sprintf(head, typeEvents) + "a\r\ndata: {}\n\n\r\n0\r\n\r\n", true},
		"end in an event ": {fmt.Sprintf(head, typeEvents) + "8\r\ndata: {}\r\n0\r\n\r\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEndpoint(t, newBackend(t, script(test.answer)), nil)
			request, err := http.NewRequestWithContext(t.Context(), "POST", e.URL, strings.NewReader(ping))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Content-Type", typeJSON)
			var body []byte
			response, err := http.DefaultClient.Do(request)
			if err == nil {
				defer func() { _ = response.Body.Close() }()
				body, err = io.ReadAll(response.Body)
			}
			if (err == nil) != test.whole {
				t.Errorf("got %q, error %v; whole: %v", body, err, test.whole)
			}
		})
	}
}

// R32, R33: a stream answers at once and stays alive; comments stand between events.
func TestStreamIsKeptAlive(t *testing.T) {
	half, rest := make(chan struct{}), make(chan struct{})
	e := newEndpoint(t, newBackend(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		control := http.NewResponseController(w)
		w.Header().Set("Content-Type", typeEvents)
		_ = control.Flush()
		<-half
		_, _ = io.WriteString(w, "event: message\ndata: {")
		_ = control.Flush()
		<-rest
		_, _ = io.WriteString(w, "}\n\n")
	})), nil)
	response := e.Do("GET", "")
	if response.Header.Get("X-Accel-Buffering") != "no" {
		t.Errorf("headers: %v", response.Header)
	}
	lines := bufio.NewReader(response.Body)
	for range 4 { // two comments, with the empty lines after them
		line, err := lines.ReadString('\n')
		if err != nil || strings.TrimSpace(line) != "" && !strings.HasPrefix(line, ":") {
			t.Fatalf("got %q, %v", line, err)
		}
	}
	close(half)
	for line := ""; !strings.HasPrefix(line, "event: message"); {
		var err error
		if line, err = lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	time.AfterFunc(4*testLimits.KeepAlive, func() { close(rest) })
	body, err := io.ReadAll(lines)
	if err != nil || !strings.HasPrefix(string(body), "data: {}\n\n") {
		t.Errorf("got %q, %v", body, err)
	}
}

// A client that does not read stalls no other client, and the proxy gives it up.
func TestSlowReader(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"beside others": hang.Guard, "given up": 500 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			flooded := make(chan struct{})
			e := newEndpoint(t, newBackend(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					_, _ = io.WriteString(w, `{}`)
					return
				}
				defer close(flooded)
				w.Header().Set("Content-Type", typeEvents)
				for r.Context().Err() == nil {
					if _, err := io.WriteString(w, "data: "+strings.Repeat("x", 1<<16)+"\n\n"); err != nil {
						return
					}
				}
			})), func(o *Options) { o.WriteTimeout = timeout })
			slow := e.Do("GET", "")
			if timeout == hang.Guard {
				for range 20 {
					if got := e.Do("POST", ping); got.StatusCode != 200 {
						t.Errorf("beside a slow reader: %s", got.Status)
					}
				}
				return
			}
			within(t, "giving up the slow reader", flooded)
			_, _ = io.Copy(io.Discard, slow.Body)
			gomega.NewWithT(t).Eventually(e.proxy.InFlight).WithTimeout(hang.Guard).Should(gomega.BeZero())
		})
	}
}

// deaf is a client that takes the head of an answer, and then nothing.
type deaf struct{ http.ResponseWriter }

func (deaf) Write([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }

// The proxy also gives up a client that does not read while the server is silent. It is not
// the server that is broken.
func TestDeafClientOfSilentServer(t *testing.T) {
	left, records := make(chan struct{}), make(chan edge.Record, 1)
	e := newEndpoint(t, newBackend(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(left)
		w.Header().Set("Content-Type", typeEvents)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})), nil, func(o *edge.Options) { o.Closed = func(record edge.Record) { records <- record } })
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/mcp", http.NoBody)
	request.Host = "mcp.example"
	request.Header.Set("Accept", typeEvents)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		e.door.ServeHTTP(deaf{httptest.NewRecorder()}, request)
	}()
	within(t, "giving up the client", answered)
	within(t, "telling the server", left)
	if broken, how := e.proxy.Metrics.Broken.Value(), (<-records).Error; broken != 0 || how == edge.Broken {
		t.Errorf("%d answers of the server count as broken, this one is %q", broken, how)
	}
}

// punctual is a client that notes whether it has time for more.
type punctual struct {
	*httptest.ResponseRecorder
	hasTime bool
}

func (p *punctual) SetWriteDeadline(time.Time) error {
	p.hasTime = true
	return nil
}

func (p *punctual) Write(b []byte) (int, error) {
	p.hasTime = false
	return p.ResponseRecorder.Write(b)
}

// The server may take long to end an answer. The client has time for the end then, which
// net/http writes.
func TestTimeForTheEnd(t *testing.T) {
	for _, contentType := range []string{typeJSON, typeEvents} {
		t.Run(contentType, func(t *testing.T) {
			e := newEndpoint(t, newBackend(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", contentType)
				_, _ = io.WriteString(w, "data: {}\n\n")
			})), func(o *Options) { o.KeepAlive = time.Hour })
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", strings.NewReader(ping))
			request.Host = "mcp.example"
			request.Header.Set("Content-Type", typeJSON)
			client := &punctual{ResponseRecorder: httptest.NewRecorder()}
			e.door.ServeHTTP(client, request)
			if got := client.Body.String(); !strings.HasPrefix(got, "data: {}\n\n") || !client.hasTime {
				t.Errorf("got %q, time for the end: %v", got, client.hasTime)
			}
		})
	}
}
