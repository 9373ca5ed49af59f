package bridge

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// dies closes the connection of the first request of a method, or of a tool, without an answer.
func dies(of string) func(http.ResponseWriter, *http.Request, played) bool {
	var isDead atomic.Bool
	return func(w http.ResponseWriter, _ *http.Request, m played) bool {
		switch {
		case (m.Method == of || m.Params.Name == of) && isDead.CompareAndSwap(false, true):
			panic(http.ErrAbortHandler)
		case m.Method == "tools/list":
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"read","annotations":{"readOnlyHint":true}},`+
				`{"name":"set","annotations":{"idempotentHint":true}},{"name":"add","annotations":{"readOnlyHint":false}},{"name":"odd","annotations":7}]}}`, m.ID)
			return true
		}
		return false
	}
}

// A request to a pod that is gone is sent again if it does no harm to run it twice. Otherwise the client
// learns that it may or may not have run.
func TestLostConnection(t *testing.T) {
	const unknown = "may or may not have run"
	for name, test := range map[string]struct {
		lines []string
		times int // the last line is sent
		err   string
	}{
		"initialize":           {[]string{`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`}, 2, ""},
		"ping":                 {[]string{`{"jsonrpc":"2.0","id":1,"method":"ping"}`}, 2, ""},
		"tools/list":           {[]string{modern(1, "tools/list", "")}, 2, ""},
		"resources/list":       {[]string{modern(1, "resources/list", "")}, 2, ""},
		"resources/read":       {[]string{modern(1, "resources/read", `"uri":"a://b",`)}, 2, ""},
		"prompts/get":          {[]string{modern(1, "prompts/get", `"name":"p",`)}, 2, ""},
		"server/discover":      {[]string{modern(1, "server/discover", "")}, 2, ""},
		"read":                 {[]string{modern(1, "tools/list", ""), modern(2, "tools/call", `"name":"read",`)}, 2, ""},
		"set":                  {[]string{modern(1, "tools/list", ""), modern(2, "tools/call", `"name":"set",`)}, 2, ""},
		"add":                  {[]string{modern(1, "tools/list", ""), modern(2, "tools/call", `"name":"add",`)}, 1, unknown},
		"odd":                  {[]string{modern(1, "tools/list", ""), modern(2, "tools/call", `"name":"odd",`)}, 1, unknown},
		"tools/call":           {[]string{modern(1, "tools/call", `"name":"never-listed",`)}, 1, unknown},
		"elicitation/complete": {[]string{modern(1, "elicitation/complete", "")}, 1, unknown},
	} {
		t.Run(name, func(t *testing.T) {
			p := &player{plays: dies(name)}
			answers := converse(t, p, test.lines...)
			last := test.lines[len(test.lines)-1]
			times := 0
			for _, seen := range p.all() {
				if method, _, _ := strings.Cut(seen, " "); strings.Contains(last, `"method":"`+method+`"`) {
					times++
				}
			}
			answer := answers[len(answers)-1]
			if times != test.times || strings.Contains(answer, `"error"`) != (test.err != "") || !strings.Contains(answer, test.err) {
				t.Errorf("sent %d times and answered with %s, want %d times and %q", times, answer, test.times, test.err)
			}
			if id := fmt.Sprintf(`"id":%d,`, len(test.lines)); !strings.Contains(answer, id) {
				t.Errorf("no %s in %s", id, answer)
			}
		})
	}
}

// What is sent again has another id: the server may still have the first request.
func TestAnotherID(t *testing.T) {
	came := make(chan string, 2)
	died := dies("ping")
	p := &player{plays: func(w http.ResponseWriter, request *http.Request, m played) bool {
		came <- string(m.ID)
		return died(w, request, m)
	}}
	answers := converse(t, p, `{"jsonrpc":"2.0","id":"mine","method":"ping"}`)
	close(came)
	var ids []string
	for id := range came {
		ids = append(ids, id)
	}
	if len(ids) != 2 || ids[0] != `"mine"` || ids[1] == ids[0] || !strings.Contains(answers[0], `"id":"mine"`) {
		t.Errorf("sent as %v, and answered with %s", ids, answers[0])
	}
}

// One that is lost twice, or whose answer has begun, is not sent again.
func TestLostForGood(t *testing.T) {
	for name, test := range map[string]struct {
		plays func(http.ResponseWriter, *http.Request, played) bool
		want  []string
		err   string
	}{
		"lost twice": {func(http.ResponseWriter, *http.Request, played) bool { panic(http.ErrAbortHandler) }, []string{"ping", "ping"}, "EOF"},
		"refused": {func(w http.ResponseWriter, _ *http.Request, _ played) bool {
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}, []string{"ping"}, "503"},
		"a message came before": {func(w http.ResponseWriter, _ *http.Request, _ played) bool {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"id\":0}\n\n"))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, []string{"ping"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := &player{plays: test.plays}
			answers := converse(t, p, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
			if diff := cmp.Diff(test.want, p.all()); diff != "" || !strings.Contains(answers[0], test.err) {
				t.Errorf("answered with %s; sent (-want +got):\n%s", answers[0], diff)
			}
		})
	}
}

// canceled gives a bridge a request, and its cancellation as soon as the server is ready for that. It returns
// the ids of the requests that the server got, and those that it was told to cancel.
func canceled(t *testing.T, ready <-chan struct{}, plays func(w http.ResponseWriter, request *http.Request, m played) bool) (requests, canceled []string) {
	t.Helper()
	p := &player{plays: func(w http.ResponseWriter, request *http.Request, m played) bool {
		if m.Method != "notifications/cancelled" {
			requests = append(requests, string(m.ID)) // one at a time
			return plays(w, request, m)
		}
		canceled = append(canceled, string(m.Params.RequestID))
		w.WriteHeader(http.StatusAccepted)
		_ = plays(w, request, m)
		return true
	}}
	server := httptest.NewServer(p)
	defer server.Close() // waits for all handlers
	fromClient, toBridge := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		b := &Bridge{Client: &http.Client{Transport: &http.Transport{}}, Endpoint: server.URL}
		ended <- b.Run(t.Context(), fromClient, io.Discard)
	}()
	for _, line := range []string{`{"jsonrpc":"2.0","id":"mine","method":"ping"}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"m\u0069ne"}}`} {
		if _, err := io.WriteString(toBridge, line+"\n"); err != nil {
			t.Fatal(err)
		}
		<-ready
	}
	_ = toBridge.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return requests, canceled
}

// The client cancels a request by the id that it knows. A server that got the request again knows it by
// another id, too.
func TestCancelRepeated(t *testing.T) {
	ready, done := make(chan struct{}), make(chan struct{})
	died := dies("ping")
	var again string
	requests, ids := canceled(t, ready, func(w http.ResponseWriter, request *http.Request, m played) bool {
		switch {
		case m.Method == "notifications/cancelled" && string(m.Params.RequestID) == again:
			close(done)
		case m.Method == "ping" && !died(w, request, m):
			again = string(m.ID)
			close(ready)
			select {
			case <-done:
			case <-request.Context().Done(): // the bridge waits for the answer no longer
			}
		}
		return false
	})
	if len(requests) != 2 {
		t.Fatalf("the server got %v", requests)
	}
	if diff := cmp.Diff([]string{again, `"m\u0069ne"`}, ids); diff != "" {
		t.Errorf("canceled (-want +got):\n%s", diff)
	}
}

// A request that the client has canceled is not sent again.
func TestCancelLost(t *testing.T) {
	ready, done := make(chan struct{}), make(chan struct{})
	isReady := sync.OnceFunc(func() { close(ready) })
	requests, ids := canceled(t, ready, func(_ http.ResponseWriter, _ *http.Request, m played) bool {
		if m.Method == "ping" {
			isReady()
			<-done
			panic(http.ErrAbortHandler)
		}
		close(done)
		return false
	})
	if len(requests) != 1 || len(ids) != 1 {
		t.Errorf("the server got requests %v, and %v were canceled", requests, ids)
	}
}
