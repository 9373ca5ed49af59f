package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestVerify(t *testing.T) {
	call := &Call{ID: 12, Text: []byte("hello")}
	pad := strings.Repeat("x", 200)
	for name, test := range map[string]struct {
		answer string
		fail   bool
	}{
		"id first":     {answer: `{"jsonrpc":"2.0","id":12,"result":{"content":[{"type":"text","text":"hello"}]}}`},
		"id last":      {answer: `{"result":{"content":[{"type":"text","text":"hello"}],"pad":"` + pad + `"},"jsonrpc":"2.0","id":12}`},
		"another id":   {answer: `{"jsonrpc":"2.0","id":120,"result":{"content":[{"type":"text","text":"hello"}]}}`, fail: true},
		"another text": {answer: `{"jsonrpc":"2.0","id":12,"result":{"content":[{"type":"text","text":"help"}]}}`, fail: true},
		"longer text":  {answer: `{"jsonrpc":"2.0","id":12,"result":{"content":[{"type":"text","text":"hello there"}]}}`, fail: true},
		"cut off":      {answer: `{"jsonrpc":"2.0","id":12,"result":{"content":[{"type":"text","text":"hello`, fail: true},
		"an error":     {answer: `{"jsonrpc":"2.0","id":12,"error":{"code":1,"message":"hello"}}`, fail: true},
		"nothing":      {fail: true},
	} {
		t.Run(name, func(t *testing.T) {
			if err := call.verify([]byte(test.answer)); (err != nil) != test.fail {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestProgress(t *testing.T) {
	for name, test := range map[string]struct {
		message       string
		token, number int
		fail          bool
	}{
		"as the server writes it": {message: `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":41,"message":"p"}}`, token: 7, number: 41},
		"in another order":        {message: `{"method":"notifications/progress","params":{"progress":3,"progressToken":7},"jsonrpc":"2.0"}`, token: 7, number: 3},
		"something else":          {message: `{"jsonrpc":"2.0","method":"notifications/message"}`, fail: true},
		"a word":                  {message: `{"params":{"progressToken":"a","progress":3}}`, fail: true},
	} {
		t.Run(name, func(t *testing.T) {
			token, number, err := Progress([]byte(test.message))
			if token != test.token || (err != nil) != test.fail || err == nil && number != test.number {
				t.Errorf("it is %d of %d, %v", number, token, err)
			}
		})
	}
}

// bridge answers every call in one of the ways that bridges do.
func bridge(t *testing.T, answer func(w http.ResponseWriter, body []byte)) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusBadRequest)
		case r.Method == http.MethodDelete && r.Header.Get("Mcp-Session-Id") == "one":
		case bytes.Contains(body, []byte(`"initialize"`)):
			w.Header().Set("Mcp-Session-Id", "one")
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":0,"result":{}}`)
		case r.Header.Get("Mcp-Session-Id") != "one":
			http.Error(w, "no session", http.StatusNotFound)
		case r.Method == http.MethodGet:
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: {\"method\":\"notifications/tools/list_changed\"}\n\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case bytes.Contains(body, []byte(`"notifications/`)):
			w.WriteHeader(http.StatusAccepted)
		default:
			answer(w, body)
		}
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func result(text string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"%s"}]}}`, text)
}

func TestRemote(t *testing.T) {
	long := strings.Repeat("y", 100_000)
	for name, test := range map[string]struct {
		text   string
		answer func(w http.ResponseWriter, text string)
		events int
		fail   bool
	}{
		"JSON":         {text: "hello", answer: func(w http.ResponseWriter, text string) { _, _ = io.WriteString(w, result(text)) }},
		"chunked JSON": {text: long, answer: func(w http.ResponseWriter, text string) { _, _ = io.WriteString(w, result(text)) }},
		"events": {text: "hello", events: 2, answer: func(w http.ResponseWriter, text string) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "id: 1\ndata: \n\n: comment\n\n")
			for range 2 {
				_, _ = io.WriteString(w, "event: message\ndata: {\"method\":\"notifications/progress\"}\n\n")
				w.(http.Flusher).Flush()
			}
			_, _ = io.WriteString(w, "event: message\ndata: "+result(text)+"\n\n")
		}},
		"a long event": {text: long, answer: func(w http.ResponseWriter, text string) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: "+result(text)+"\n\n")
		}},
		"a refusal": {text: "hello", fail: true, answer: func(w http.ResponseWriter, _ string) { http.Error(w, "no", http.StatusRequestEntityTooLarge) }},
		"no answer": {text: "hello", fail: true, answer: func(w http.ResponseWriter, _ string) { w.Header().Set("Content-Type", "text/event-stream") }},
	} {
		t.Run(name, func(t *testing.T) {
			session, err := Open(bridge(t, func(w http.ResponseWriter, _ []byte) { test.answer(w, test.text) }))
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // on the same connection
				seen := 0
				err = session.Do(&Call{ID: 1, Tool: "echo", Text: []byte(test.text)}, func([]byte) error {
					seen++
					return nil
				})
				if (err != nil) != test.fail || seen != test.events {
					t.Errorf("error %v, %d events", err, seen)
				}
			}
			if err := session.Leave(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestListen(t *testing.T) {
	session, err := Open(bridge(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = session.Close() }()
	heard := make(chan string, 1)
	stream, err := session.Listen(func(message []byte) { heard <- string(message) })
	if err != nil {
		t.Fatal(err)
	}
	if got := <-heard; !strings.Contains(got, "list_changed") {
		t.Errorf("heard %s", got)
	}
	if err := stream.Close(); err != nil {
		t.Error(err)
	}
}

// fake answers at once, or after a time.
type fake struct {
	takes time.Duration
	calls atomic.Int64
}

func (f *fake) Do(*Call, func([]byte) error) error {
	time.Sleep(f.takes)
	f.calls.Add(1)
	return nil
}

func (f *fake) Close() error { return nil }

func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Nothing happens at the moment when a phase ends.
		one, two := &fake{takes: 2 * time.Millisecond}, &fake{takes: 2 * time.Millisecond}
		var marks []int64 // the calls that were answered by then
		result, err := Loop(t.Context(), []Session{one, two}, Timing{5 * time.Millisecond, 20 * time.Millisecond},
			func(s Session, _, _ int) error { return s.Do(nil, nil) },
			func() error {
				marks = append(marks, one.calls.Load()+two.calls.Load())
				return nil
			})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]int64{4, 24}, marks); diff != "" {
			t.Errorf("calls before the marks (-want +got):\n%s", diff)
		}
		// Those under way when measuring ends are waited for, and do not count.
		if all := one.calls.Load() + two.calls.Load(); result.Calls != 20 || all != 26 || result.Elapsed != 20*time.Millisecond {
			t.Errorf("%d calls were measured in %s, of %d; want 20 in 20 ms, of 26", result.Calls, result.Elapsed, all)
		}
	})
}

// A bridge that fails has no speed.
func TestLoopFails(t *testing.T) {
	broken := errors.New("broken")
	_, err := Loop(t.Context(), []Session{new(fake), new(fake)}, Timing{time.Minute, time.Minute},
		func(_ Session, index, number int) error {
			if index == 1 && number == 3 {
				return broken
			}
			return nil
		}, func() error { return nil })
	if !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Loop(ctx, []Session{new(fake)}, Timing{time.Minute, time.Minute}, func(Session, int, int) error { return nil }, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
