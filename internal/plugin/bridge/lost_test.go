package bridge

import (
	"fmt"
	"net/http"
	"strings"
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
// learns that nobody knows whether it ran.
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
