package mcpprobe

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/internal/rpc"
)

// Whatever a stream may look like, the SDK sees the simple one.
func TestEventsOfAnyLook(t *testing.T) {
	for name, dress := range map[string]func(answer string) string{
		"R30 without a type": func(answer string) string { return "data: " + answer + "\n\n" },
		"CR":                 func(answer string) string { return "event: message\rdata: " + answer + "\r\r" },
		"CRLF":               func(answer string) string { return "event: message\r\ndata: " + answer + "\r\n\r\n" },
		"byte order mark":    func(answer string) string { return "\xef\xbb\xbfdata: " + answer + "\n\n" },
		"names without text": func(answer string) string { return "id\nfoo\ndata: " + answer + "\n\n" },
		"several lines":      func(answer string) string { return "data: " + strings.ReplaceAll(answer, ",", ",\ndata: ") + "\n\n" },
		"priming":            func(answer string) string { return "id: 1\nretry: 5\ndata:\n\nid: 2\ndata: " + answer + "\n\n" },
		"junk behind it":     func(answer string) string { return "data: " + answer + "\n\ndata: {oops\n\n" },
	} {
		t.Run(name, func(t *testing.T) {
			s := script{methodTools: func(c call) string { return dress(c.result(`{"tools":[{"name":"odd"}]}`)) }}
			catalog, err := Probe(withPatience(t), HTTP(serve(t, s.asEvents()), nil), Options{})
			if err != nil || toolNames(catalog) != "odd" {
				t.Errorf("got %v, %v", catalog, err)
			}
		})
	}
}

// T-21: a call's stream that breaks off is resumed after the last event that was whole,
// also if the SDK has not seen that event.
func TestStreamIsResumed(t *testing.T) {
	for name, test := range map[string]struct {
		stream, want string // what comes before the stream breaks off, and where it goes on
	}{
		"priming":      {"id: 1\nretry: 1\ndata:\n\n", "1"},
		"notification": {"id: 1\nretry: 1\ndata:\n\nid: 2\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\n", "2"},
		"half":         {"id: 1\nretry: 1\ndata:\n\nid: 2\ndata: {\n", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			answer, resumed := make(chan string, 1), make(chan string, 1)
			s := script{methodTools: func(c call) string {
				answer <- c.result(`{"tools":[{"name":"late"}]}`)
				return test.stream
			}}.asEvents()
			url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if after := r.Header.Get("Last-Event-ID"); after != "" {
					resumed <- after
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = io.WriteString(w, "data: "+<-answer+"\n\n")
					return
				}
				s.ServeHTTP(w, r)
			}))
			catalog, err := Probe(withPatience(t), HTTP(url, nil), Options{})
			if err != nil || toolNames(catalog) != "late" {
				t.Fatalf("got %v, %v", catalog, err)
			}
			if after := <-resumed; after != test.want {
				t.Errorf("resumed after %q, want %q", after, test.want)
			}
		})
	}
}

// A stream that breaks off cannot be resumed after an event that was not whole.
func TestIDOfHalfAnEvent(t *testing.T) {
	s := script{methodTools: func(call) string { return "id: 1\ndata: {" }}
	_, err := Probe(withPatience(t), HTTP(serve(t, s.asEvents()), nil), Options{})
	wantClass(t, err, Closed)
}

// endStream is an answer that ends the stream instead.
const endStream = "end"

// serveSSE has a script behind the oldest transport, with something between the address and
// the first message.
func serveSSE(t *testing.T, s script, before string) string {
	t.Helper()
	messages := make(chan string, 8)
	return serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			recorded := httptest.NewRecorder()
			s.ServeHTTP(recorded, r)
			w.WriteHeader(http.StatusAccepted)
			messages <- recorded.Body.String()
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "event: endpoint\ndata: /messages\n\n"+before)
		for {
			_ = http.NewResponseController(w).Flush()
			select {
			case message := <-messages:
				if message == endStream {
					return
				}
				_, _ = fmt.Fprintf(w, "data: %s\n\n", message)
			case <-r.Context().Done():
				return
			}
		}
	}))
}

// The SDK takes every event of the oldest transport for a message, even one without data.
func TestOtherEventsOfSSE(t *testing.T) {
	for name, before := range map[string]string{
		"none":       "",
		"comment":    ": hello\n\n",
		"retry":      "retry: 10\n\n",
		"id":         "id: 7\n\n",
		"priming":    "id: 7\ndata:\n\n",
		"ping":       "event: ping\nid: 7\ndata: {}\n\n",
		"no message": "id: 7\ndata: hello\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			catalog, err := Probe(withPatience(t), SSE(serveSSE(t, script{}, before), nil), Options{})
			if err != nil || toolNames(catalog) != "a" {
				t.Errorf("got %v, %v", catalog, err)
			}
		})
	}
}

// Nothing can be resumed in the oldest transport: the server is gone with the stream.
func TestEndOfSSE(t *testing.T) {
	s := script{methodTools: func(call) string { return endStream }}
	_, err := Probe(withPatience(t), SSE(serveSSE(t, s, "id: 7\nretry: 1\n\n"), nil), Options{})
	wantClass(t, err, Closed)
}

// Nothing reaches the SDK past the guard as an address: over the oldest transport the SDK
// takes the data of any event but the first for a message.
func TestEndpointIsNoMessage(t *testing.T) {
	const message = `{"jsonrpc":"2.0","method":"notifications/message","params":{}}`
	for name, test := range map[string]struct {
		stream, want string
		broken       bool
	}{
		"address":       {"event: endpoint\ndata: /m\n\n", "event: endpoint\ndata: /m\n\n", false},
		"second one":    {"event: endpoint\ndata: /m\n\nevent: endpoint\ndata: " + message + "\n\n", "event: endpoint\ndata: /m\n\n", false},
		"several lines": {"event: endpoint\ndata: /m\ndata:\ndata: event: message\ndata: data: " + message + "\n\n", "", true}, //nolint:dupword // the second is data
	} {
		t.Run(name, func(t *testing.T) {
			r := &roundTripper{guard: newGuard(Options{Limits: Limits{ReplyBytes: 1 << 10}})}
			got, err := io.ReadAll(r.filter(nil, sent{}, io.NopCloser(strings.NewReader(test.stream))))
			if string(got) != test.want || (err != nil) != test.broken {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

// The stream of a call may have so many bytes in all, whatever they are. One that never ends
// may have any number of events of so many bytes each.
func TestEventLimits(t *testing.T) {
	const limit = 200
	const answer = `{"jsonrpc":"2.0","id":1,"result":{}}`
	text := func(bytes int) string { return strings.Repeat("x", bytes) }
	tools := sent{kind: rpc.Request, method: methodTools, id: "1"}
	listen := sent{kind: rpc.Request, method: methodListen, id: "1"}
	for name, test := range map[string]struct {
		message sent
		stream  string
		whole   bool
	}{
		"just so many":        {tools, ":" + text(limit-3) + "\n\n", true},
		"one more":            {tools, ":" + text(limit-2) + "\n\n", false},
		"many comments":       {tools, strings.Repeat(": hi\n\n", limit), false},
		"behind the answer":   {tools, "data: " + answer + "\n\ndata: " + text(limit) + "\n\n", true},
		"before the answer":   {tools, ": " + text(limit-len(answer)) + "\n\ndata: " + answer + "\n\n", false},
		"listen, comments":    {listen, strings.Repeat(": hi\n\n", limit), true},
		"listen, events":      {listen, strings.Repeat("data: "+text(limit)+"\n\n", 3), true},
		"listen, large event": {listen, "data: " + text(limit+1) + "\n\n", false},
		"listen, many lines":  {listen, strings.Repeat("data: x\n", limit), false},
		"own, large event":    {sent{}, "data: " + text(limit+1) + "\n\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			r := &roundTripper{guard: newGuard(Options{Limits: Limits{ReplyBytes: limit}})}
			_, err := io.ReadAll(r.filter(nil, test.message, io.NopCloser(strings.NewReader(test.stream))))
			if limited, ok := errors.AsType[*LimitError](err); ok == test.whole || ok && limited.What != LimitReplyBytes {
				t.Errorf("got %v, want all of it: %v", err, test.whole)
			}
			if broken, _ := r.guard.failure(); (broken == nil) != test.whole {
				t.Errorf("the connection is broken by %v, want it whole: %v", broken, test.whole)
			}
		})
	}
}
