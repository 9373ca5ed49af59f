package edge

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/sidecar/front"
	"github.com/slipway-mcp/slipway/internal/sidecar/origin"
)

// refusalLog is a door whose front end refuses what the test says, and what is logged then.
type refusalLog struct {
	door *Door
	text string // why the front end refuses; empty if it does not

	mu    sync.Mutex
	lines []string
}

// logged takes what was logged since the last time.
func (l *refusalLog) logged() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines = nil
	return lines
}

func newRefusalLog(verbosity int) *refusalLog {
	l := &refusalLog{}
	log := funcr.New(func(_, line string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines = append(l.lines, line)
	}, funcr.Options{Verbosity: verbosity})
	l.door = New(Options{
		Admit:        &Origins{Policy: func() *origin.Policy { return &origin.Policy{Hosts: []string{"a.example"}} }},
		Authenticate: Unverified{IsProbe: func(r *http.Request) bool { return r.Header.Get("Probe") != "" }},
		Budget:       bodies(BodyLimits{BodyBytes: 1 << 10}),
		Refusals:     &Refusals{Log: log},
		Routes: map[string]Route{"/mcp": {Serve: func(w http.ResponseWriter, _ *Request) {
			if l.text != "" {
				front.Unavailable(w, nil, l.text)
			}
		}}},
		Elsewhere: func(w http.ResponseWriter, r *http.Request) {
			front.RefusePlain(w, http.StatusNotFound, "there is nothing at "+r.URL.Path)
		},
	})
	return l
}

func (l *refusalLog) ask(method, host, path string, header ...string) {
	r := httptest.NewRequest(method, path, strings.NewReader(strings.Repeat(" ", 2<<10)))
	r.Host = host
	r.Header.Set("Content-Type", "application/json")
	if len(header) > 0 {
		r.Header.Set(header[0], header[1])
	}
	l.door.ServeHTTP(httptest.NewRecorder(), r)
}

// want compares what was logged since the last time.
func (l *refusalLog) want(t *testing.T, when string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, l.logged()); diff != "" {
		t.Errorf("%s, the log (-want +got):\n%s", when, diff)
	}
}

// wantNone waits until all reasons are forgotten.
func (l *refusalLog) wantNone(t *testing.T) {
	t.Helper()
	time.Sleep(time.Hour)
	synctest.Wait()
	refusals := l.door.options.Refusals
	refusals.mu.Lock()
	defer refusals.mu.Unlock()
	if left := len(refusals.reasons); left != 0 {
		t.Errorf("%d reasons are held", left)
	}
}

// Refusals are in the log, the first of a reason at once, and others counted.
func TestRefusalsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newRefusalLog(0)
		line := func(what, rest string) string {
			return `"level"=0 "msg"="` + what + `" ` + rest + ` "from"="192.0.2.1"`
		}
		const (
			full = `"status"=503 "reason"="every session slot is taken: spec.session.maxPerPod is 20" "method"="GET"`
			host = `"status"=403 "reason"="the host \"evil%d.example\" is not one that this server may be reached by: allowed hosts are configured on the server" "method"="GET"`
		)
		l.ask("GET", "a.example", "/mcp")
		l.want(t, "after one that succeeds")
		for n := range 3 {
			l.ask("GET", fmt.Sprintf("evil%d.example", n), "/mcp")
		}
		l.ask("GET", "a.example", "/elsewhere")
		l.ask("POST", "a.example", "/mcp")
		l.text = "every session slot is taken: spec.session.maxPerPod is 20"
		l.ask("GET", "a.example", "/mcp")
		l.want(t, "at once",
			line("Request refused", fmt.Sprintf(host, 0)),
			line("Request refused", `"status"=404 "reason"="there is nothing at /elsewhere" "method"="GET"`),
			line("Request refused", `"status"=413 "reason"="the body is larger than 1024 bytes, the limit of this server" "method"="POST"`),
			line("Request refused", full))
		time.Sleep(refusalPause)
		synctest.Wait()
		l.want(t, "after a while", line("More requests refused", `"count"=2 `+fmt.Sprintf(host, 2)))
		l.ask("GET", "a.example", "/mcp") // the adapter has refused nothing for this reason since
		l.want(t, "for a reason of before", line("Request refused", full))
		l.ask("GET", "evil9.example", "/mcp") // of which there was a line just now
		l.want(t, "for a reason of just now")
		time.Sleep(refusalPause)
		synctest.Wait()
		l.want(t, "after a while more", line("More requests refused", `"count"=1 `+fmt.Sprintf(host, 9)))
		l.wantNone(t)
		l.want(t, "at rest")
	})
}

// Clients that think of ever new texts cannot flood the log.
func TestRefusalsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newRefusalLog(0)
		for n := range 10000 {
			l.text = strings.Repeat("x", n%5000) + "\n" + string(rune('a'+n%26))
			l.ask("GET", "a.example", "/mcp")
		}
		lines := l.logged()
		if got := len(lines); got > refusalReasons+1 {
			t.Errorf("%d lines", got)
		}
		for _, line := range lines {
			if len(line) > 2*refusalText || strings.Contains(line, "\n") {
				t.Fatalf("a line of %d bytes: %q", len(line), line)
			}
		}
		l.wantNone(t)
	})
}

// The manager asks on purpose for what may be refused.
func TestRefusalsOfProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for verbosity, want := range []int{0, 1} {
			l := newRefusalLog(verbosity)
			l.text = "no"
			l.ask("GET", "a.example", "/mcp", "Probe", "yes")
			if lines := l.logged(); len(lines) != want {
				t.Errorf("verbosity %d: %q", verbosity, lines)
			}
			l.wantNone(t)
		}
	})
}
