package edge

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/onsi/gomega"

	"github.com/slipway-mcp/slipway/internal/adapterapi"
	"github.com/slipway-mcp/slipway/internal/sidecar/audit"
	"github.com/slipway-mcp/slipway/internal/sidecar/caller"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/test/hang"
)

// line is what tests look at of an audit line.
type line struct {
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		Tool        string `json:"tool"`
	} `json:"objectRef"`
	SourceIPs      []string `json:"sourceIPs"`
	UserAgent      string   `json:"userAgent"`
	Session        any      `json:"session"`
	ResponseStatus struct {
		Code    int `json:"code"`
		JSONRPC int `json:"jsonrpc"`
	} `json:"responseStatus"`
	Annotations map[string]string `json:"annotations"`
}

// told ends the log, and returns its lines.
func (h *house) told() (lines []line) {
	h.t.Helper()
	if err := h.audit.Log.Close(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	h.lines.mu.Lock()
	defer h.lines.mu.Unlock()
	for text := range strings.Lines(h.lines.text.String()) {
		var one line
		if err := json.Unmarshal([]byte(text), &one); err != nil {
			h.t.Fatalf("%s: %v", text, err)
		}
		lines = append(lines, one)
	}
	return lines
}

// brief is a line in a few words.
func (l *line) brief() string {
	answer := []string{l.Annotations["authorization"]}
	for _, name := range []string{"reason", "rule"} {
		if value := l.Annotations[name]; value != "" {
			answer = append(answer, name, value)
		}
	}
	status, err := json.Marshal(l.ResponseStatus)
	if err != nil {
		panic(err)
	}
	return strings.Join([]string{l.Verb, l.User.Username, l.ObjectRef.Subresource, l.ObjectRef.Tool, string(status), strings.Join(answer, " ")}, "|")
}

func TestAuditedRequests(t *testing.T) {
	tests := map[string]struct {
		user, method, body string
		want               []string
	}{
		"a call":               {user: "bob", body: callSearch, want: []string{`tools/call|corp:bob|tools|search|{"code":204,"jsonrpc":0}|allow rule 0`}},
		"a call, escaped":      {user: "bob", body: message("tools/call", `{"name":"sea\u0072ch"}`), want: []string{`tools/call|corp:bob|tools|search|{"code":204,"jsonrpc":0}|allow rule 0`}},
		"a prompt":             {user: "bob", body: message("prompts/get", `{"name":"p"}`), want: []string{`prompts/get|corp:bob|prompts||{"code":204,"jsonrpc":0}|allow rule 0`}},
		"a list":               {user: "bob", body: message("tools/list", `{}`)},
		"a ping":               {user: "bob", body: message("ping", `{}`)},
		"a notification":       {user: "bob", body: `{"jsonrpc":"2.0","method":"notifications/initialized"}`},
		"a stream":             {user: "bob", method: "GET"},
		"no rule":              {user: "bob", body: callDelete, want: []string{`tools/call|corp:bob|tools|delete|{"code":403,"jsonrpc":403}|deny reason no_rule`}},
		"no scope":             {user: "bob", body: message("tools/call", `{"name":"create_issue"}`), want: []string{`tools/call|corp:bob|tools|create_issue|{"code":403,"jsonrpc":403}|deny reason scope`}},
		"blocked":              {user: "mallory", body: message("ping", `{}`), want: []string{`ping|corp:mallory|||{"code":403,"jsonrpc":403}|deny reason blocked`}},
		"a stream, and eve":    {user: "eve", method: "GET", want: []string{`http/get|corp:eve|||{"code":403,"jsonrpc":403}|deny reason no_rule`}},
		"no token":             {body: callSearch, want: []string{`http/post|system:anonymous|||{"code":401,"jsonrpc":401}|deny reason missing`}},
		"no token, DELETE":     {method: "DELETE", want: []string{`http/delete|system:anonymous|||{"code":401,"jsonrpc":401}|deny reason missing`}},
		"an unknown method":    {user: "bob", body: message("secret/do", `{}`), want: []string{`_OTHER|corp:bob|||{"code":403,"jsonrpc":403}|deny reason method`}},
		"a batch":              {user: "bob", body: "[" + callSearch + "," + callSearch + "]", want: []string{`tools/call|corp:bob|tools|search|{"code":204,"jsonrpc":0}|allow rule 0`, `tools/call|corp:bob|tools|search|{"code":204,"jsonrpc":0}|allow rule 0`}},
		"a batch that is none": {user: "bob", body: "[" + callSearch + "," + callDelete + "]", want: []string{`tools/call|corp:bob|tools|search|{"code":403,"jsonrpc":403}|deny reason no_rule rule 0`, `tools/call|corp:bob|tools|delete|{"code":403,"jsonrpc":403}|deny reason no_rule`}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			_, _ = h.ask(orText(test.method, "POST"), "/mcp", h.as(test.user), test.body)
			lines := h.told()
			var got []string
			for i := range lines {
				got = append(got, lines[i].brief())
				one := &lines[i]
				if one.ObjectRef.Namespace != "demo" || one.ObjectRef.Name != "echo" || cmp.Diff([]string{"192.0.2.1"}, one.SourceIPs) != "" || one.UserAgent != "tester/1" || one.Annotations["access"] != "g1" {
					t.Errorf("the line has %+v", one)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAuditIsOff(t *testing.T) {
	h := newHouse(t, func(a *adapterapi.Access) { a.Audit.Level = adapterapi.AuditNone })
	_, _ = h.ask("POST", "/mcp", h.as("bob"), callSearch)
	_, _ = h.ask("POST", "/mcp", "", callSearch)
	h.audit.SessionBegan(&session.Identity{Number: "17"}, "")
	if lines := h.told(); lines != nil {
		t.Errorf("the log has %+v", lines)
	}
}

// stick has the log write nothing more, before its first line. The function has it go on.
func (h *house) stick() (free func()) {
	h.lines.stuck.Lock()
	h.audit.Log.Add(&audit.Event{Verb: "first"})
	<-h.lines.began
	return h.lines.stuck.Unlock
}

// fill fills the log.
func (h *house) fill() {
	for h.audit.Log.Add(&audit.Event{Verb: "other"}) {
	}
}

// The document sets what the adapter does while no process reads the audit lines.
func TestAuditIsFull(t *testing.T) {
	for whenFull, want := range map[adapterapi.AuditWhenFull]int{adapterapi.AuditDrop: 204, adapterapi.AuditRefuse: 503} {
		t.Run(string(whenFull), func(t *testing.T) {
			h := newHouse(t, func(a *adapterapi.Access) { a.Audit.WhenFull = whenFull })
			free := h.stick()
			if w, _ := h.ask("POST", "/mcp", h.as("bob"), callSearch); w.Code != 204 {
				t.Errorf("got %d %s while there is room", w.Code, w.Body)
			}
			h.fill()
			w, _ := h.ask("POST", "/mcp", h.as("bob"), callSearch)
			if w.Code != want || want == 503 && (w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), `"id":7,"error":{"code":-32603`)) {
				t.Errorf("got %d %v %s, want %d", w.Code, w.Header(), w.Body, want)
			}
			free()
			_ = h.told()
		})
	}
}

// A call that the adapter has let pass has its line, even if others fill the log meanwhile.
func TestAuditedCallHasRoom(t *testing.T) {
	off := func(a *adapterapi.Access) { a.Generation, a.Audit.Level = 2, adapterapi.AuditNone }
	for whenFull, want := range map[adapterapi.AuditWhenFull]int{adapterapi.AuditDrop: 0, adapterapi.AuditRefuse: 1} {
		t.Run(string(whenFull), func(t *testing.T) {
			h := newHouse(t, func(a *adapterapi.Access) { a.Audit.WhenFull = whenFull })
			free := h.stick()
			h.served = func(*Request) { h.fill() }
			if w, _ := h.ask("POST", "/mcp", h.as("bob"), callSearch); w.Code != 204 {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
			free()
			calls := 0
			lines := h.told()
			for i := range lines {
				if lines[i].Verb == "tools/call" {
					calls++
				}
			}
			if calls != want {
				t.Errorf("%d lines about the call, want %d", calls, want)
			}
		})
	}
	t.Run("turned off meanwhile", func(t *testing.T) {
		h := newHouse(t, func(a *adapterapi.Access) { a.Audit.WhenFull = adapterapi.AuditRefuse })
		before := roomIn(h.audit.Log)
		h.served = func(*Request) { h.take(off) }
		if w, _ := h.ask("POST", "/mcp", h.as("bob"), callSearch); w.Code != 204 {
			t.Errorf("got %d %s", w.Code, w.Body)
		}
		if after := roomIn(h.audit.Log); after != before {
			t.Errorf("there is room for %d lines after the call, and for %d before", after, before)
		}
		_ = h.told()
	})
}

// roomIn returns how many lines of one caller the log can promise room for.
func roomIn(log *audit.Log) (lines int) {
	room := log.Size(&audit.Event{})
	for log.Reserve("user corp:bob", room) == nil {
		lines++
		defer log.Release("user corp:bob", room)
	}
	return lines
}

// batchOf returns a batch of as many calls.
func batchOf(calls int) string {
	return "[" + strings.Repeat(callSearch+",", calls-1) + callSearch + "]"
}

// A caller with as many calls in flight as the adapter can record leaves room to others.
func TestAuditedBatchLeavesRoom(t *testing.T) {
	h := newHouse(t, func(a *adapterapi.Access) {
		a.Audit.WhenFull = adapterapi.AuditRefuse
		a.Rules[0].Subjects = append(a.Rules[0].Subjects, adapterapi.AccessSubject{Kind: adapterapi.SubjectUser, Name: "corp:alice"})
	})
	before := roomIn(h.audit.Log)
	var more, other *httptest.ResponseRecorder
	h.served = func(*Request) {
		h.served = nil
		more, _ = h.ask("POST", "/mcp", h.as("bob"), batchOf(100))
		other, _ = h.ask("POST", "/mcp", h.as("alice"), callSearch)
	}
	if w, _ := h.ask("POST", "/mcp", h.as("bob"), batchOf(100)); w.Code != 204 {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	if more.Code != 503 || more.Header().Get("Retry-After") != "1" || !strings.Contains(more.Body.String(), "too many audited calls of this caller are in flight") {
		t.Errorf("a second batch of the same caller: %d %v %s", more.Code, more.Header(), more.Body)
	}
	if other.Code != 204 {
		t.Errorf("a call of another caller: %d %s", other.Code, other.Body)
	}
	w, _ := h.ask("POST", "/mcp", h.as("bob"), batchOf(511))
	if w.Code != 413 || w.Header().Get("Retry-After") != "" || !strings.Contains(w.Body.String(), `"code":-32600,"message":"the batch has more calls than`) {
		t.Errorf("a batch that never fits: %d %v %s", w.Code, w.Header(), w.Body)
	}
	// Lines take room until the log has written them.
	gomega.NewWithT(t).Eventually(func() int { return roomIn(h.audit.Log) }).WithTimeout(hang.Guard).Should(gomega.Equal(before))
	_ = h.told()
}

// Clients without a token must not be able to make the adapter refuse others.
func TestAnonymousFloodLeavesAuditRoom(t *testing.T) {
	h := newHouse(t, func(a *adapterapi.Access) { a.Audit.WhenFull = adapterapi.AuditRefuse })
	free := h.stick()
	for h.audit.Log.Lost() == 0 {
		if w, _ := h.ask("POST", "/mcp", "", callSearch); w.Code != 401 {
			t.Fatalf("got %d %s", w.Code, w.Body)
		}
	}
	if w, _ := h.ask("POST", "/mcp", h.as("bob"), callSearch); w.Code != 204 {
		t.Errorf("got %d %s beside the flood", w.Code, w.Body)
	}
	free()
	lines := h.told()
	if last := lines[len(lines)-1]; last.User.Username != "corp:bob" || last.Verb != "tools/call" {
		t.Errorf("the last line is %+v", last)
	}
}

func TestAuditedSessions(t *testing.T) {
	h := newHouse(t)
	_, _ = h.ask("POST", "/mcp", h.as("bob"), message("tools/list", `{}`))
	about := &session.Identity{Number: "17", Owner: caller.NewOwner(&h.seen[0])}
	h.audit.SessionBegan(about, "tester/1")
	h.audit.SessionEnded(about, "tester/1")
	var got []string
	lines := h.told()
	for i := range lines {
		got = append(got, lines[i].Verb+" of "+lines[i].User.Username+" at "+strings.Join(lines[i].SourceIPs, ",")+" with "+lines[i].UserAgent)
		if lines[i].Session == nil {
			t.Error("the line does not name the session")
		}
	}
	if diff := cmp.Diff([]string{"session/begin of corp:bob at 192.0.2.1 with tester/1", "session/end of corp:bob at 192.0.2.1 with tester/1"}, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}
