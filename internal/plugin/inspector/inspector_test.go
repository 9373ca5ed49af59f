package inspector

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/test/hang"
)

func TestLink(t *testing.T) {
	link, err := url.Parse(Link(DefaultPage, "secret&more", "http://127.0.0.1:16270/mcp"))
	if err != nil {
		t.Fatal(err)
	}
	if got := link.Scheme + "://" + link.Host + link.Path; got != DefaultPage+"/" {
		t.Errorf("page %s", got)
	}
	want := url.Values{"MCP_INSPECTOR_API_TOKEN": {"secret&more"}, "autoConnect": {"secret&more"}, "serverUrl": {"http://127.0.0.1:16270/mcp"}, "transport": {"http"}}
	if diff := cmp.Diff(want, link.Query()); diff != "" {
		t.Errorf("parameters (-want +got):\n%s", diff)
	}
}

// An Inspector that does not start is an error, with what it says, and leaves no files behind.
func TestNotStarted(t *testing.T) {
	programs, temporary := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(programs, "npx"), []byte("#!/bin/sh\n[ -f \"$MCP_CATALOG_PATH\" ] && echo 404 Not Found >&2\nexit 7\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", programs)
	t.Chdir(temporary)
	t.Setenv("TMPDIR", ".") // which is elsewhere for npx
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", "")
	var output bytes.Buffer
	_, err := Start(t.Context(), "http://127.0.0.1:1/mcp", &output)
	if err == nil || !strings.Contains(err.Error(), "the Inspector ended with exit code 7 before it served its page") {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(output.String(), "404 Not Found") {
		t.Errorf("output %q", &output)
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// npx is one that runs until ended is closed.
type npx struct{ ended chan struct{} }

func (n npx) Done() <-chan struct{} { return n.ended }
func (n npx) Wait() (int, error)    { return 7, nil }

// An Inspector is there when a page has its token. Another program that took the port is none, nor is one
// that does not answer a reason to wait for longer than npx runs.
func TestAwaitPage(t *testing.T) {
	const token, ended = "secret", "the Inspector ended with exit code 7 before it served its page"
	var end func() // of npx
	var asked int
	say := func(words string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, words) }
	}
	for name, test := range map[string]struct {
		answerTime time.Duration
		answer     http.HandlerFunc
		want       string // of an error
	}{
		"our Inspector": {hang.Guard, say("<script>token=" + token + "</script>"), ""},
		"another program": {hang.Guard, func(w http.ResponseWriter, r *http.Request) {
			if asked == 2 {
				end()
			}
			say("welcome")(w, r)
		}, ended},
		"refused": {hang.Guard, func(w http.ResponseWriter, r *http.Request) {
			if asked == 2 {
				end()
			}
			w.WriteHeader(http.StatusForbidden)
			say(token)(w, r)
		}, ended},
		"no answer, and npx ends": {hang.Guard, func(_ http.ResponseWriter, r *http.Request) {
			end()
			<-r.Context().Done()
		}, ended},
		"no answer at first": {50 * time.Millisecond, func(w http.ResponseWriter, r *http.Request) {
			if asked == 1 {
				<-r.Context().Done()
			}
			say(token)(w, r)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			program := npx{make(chan struct{})}
			end, asked = sync.OnceFunc(func() { close(program.ended) }), 0
			var mu sync.Mutex
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				asked++
				test.answer(w, r)
			}))
			defer server.Close()
			ctx, cancel := context.WithTimeout(t.Context(), hang.Guard/2)
			defer cancel()
			got := ""
			if err := (page{server.URL, token, test.answerTime}).await(ctx, program); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
