package upstream

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/rpc"
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
			request, err := http.NewRequestWithContext(t.Context(), "POST", e.url, strings.NewReader(ping))
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
	response := e.do("GET", "")
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
			slow := e.do("GET", "")
			if timeout == hang.Guard {
				for range 20 {
					if got := e.do("POST", ping); got.StatusCode != 200 {
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

func TestBetweenEvents(t *testing.T) {
	for tail, want := range map[string]bool{
		"": true, "\n": true, "\r": true, "\r\n": true, "}\n\n": true, "}\r\r": true, "\r\n\r\n": true, "}\n\r\n": true,
		"}": false, "}\n": false, "}\r": false, "\n}\r\n": false, rpc.KeepAlive: true,
	} {
		if got := betweenEvents([]byte(tail[max(0, len(tail)-4):])); got != want {
			t.Errorf("%q: got %v", tail, got)
		}
	}
}
