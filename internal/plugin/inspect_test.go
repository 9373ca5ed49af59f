package plugin

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/plugin/node"
	"github.com/slipway-mcp/slipway/internal/plugin/table"
	"github.com/slipway-mcp/slipway/test/hang"
)

// toServer has every request answered by a handler.
type toServer struct{ http.Handler }

func (s toServer) RoundTrip(request *http.Request) (*http.Response, error) {
	recorder := httptest.NewRecorder()
	s.ServeHTTP(recorder, request)
	return recorder.Result(), nil
}

// Without Node.js, the endpoint still serves, and the user learns how to start an Inspector that connects
// to it.
func TestInspectElsewhere(t *testing.T) {
	e, _, errOut := typed("", table.Screen{})
	out, in := io.Pipe()
	e.Out = in
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	local, err := listen(ctx, toServer{http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })}, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	defer local.close()
	ended := make(chan error, 1)
	go func() {
		ended <- e.inspectElsewhere(ctx, local, &node.UnfitError{Reason: "there is no npx on your PATH"})
	}()
	line := make([]byte, 1<<10)
	n, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	link, err := url.Parse(strings.TrimSpace(string(line[:n])))
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	if link.Host != "localhost:6274" || link.Query().Get("serverUrl") != local.url {
		t.Errorf("link %s", link)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, link.Query().Get("serverUrl"), nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Timeout: hang.Guard}).Do(request)
	if err != nil || response.StatusCode != http.StatusTeapot {
		t.Fatalf("the endpoint answers %v, %v", response, err)
	}
	_ = response.Body.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	token := link.Query().Get("autoConnect")
	want := "The Inspector does not start here: there is no npx on your PATH.\nStart it yourself, where " + local.url + " leads to this machine:\n" +
		"  MCP_INSPECTOR_API_TOKEN=" + token + " npx -y @modelcontextprotocol/inspector@2.12.0\nThen open this link:\n"
	if diff := cmp.Diff(want, errOut.String()); token == "" || diff != "" {
		t.Errorf("token %q (-want +got):\n%s", token, diff)
	}
}

// A Node.js that is broken is no reason to start an Inspector elsewhere.
func TestInspectWithBrokenNode(t *testing.T) {
	e, out, _ := typed("", table.Screen{})
	broken := errors.New("run node --version: exit status 1")
	if err := e.inspectElsewhere(t.Context(), nil, broken); !errors.Is(err, broken) || out.Len() != 0 {
		t.Errorf("got %v and %q", err, out)
	}
}

// useNpx has an npx of shell on an otherwise empty PATH.
func useNpx(t *testing.T, script string) { usePrograms(t, map[string]string{"npx": script}) }

func usePrograms(t *testing.T, programs map[string]string) {
	t.Helper()
	directory := t.TempDir()
	for name, script := range programs {
		if err := os.WriteFile(filepath.Join(directory, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", directory)
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", "")
}

// whenSaid does something when a program says some words, which it writes at once.
type whenSaid struct {
	words string
	do    func()
}

func (w whenSaid) Write(p []byte) (int, error) {
	if strings.Contains(string(p), w.words) {
		w.do()
	}
	return len(p), nil
}

// Only an Inspector that has ended well, and by itself, is success.
func TestRunInspector(t *testing.T) {
	for name, test := range map[string]struct {
		script  string
		code    int
		problem string
	}{
		"success":                           {"exit 0", exitOK, ""},
		"failed tool":                       {"exit 5", exitTool, "the Inspector ended with exit code 5"},
		"killed":                            {"kill -KILL $$", exitUnexpected, "a signal ended the Inspector"},
		"interrupted":                       {"echo waits; exec /bin/sleep 1000", exitUnexpected, "the Inspector was interrupted"},
		"interrupted, and it does not mind": {"trap 'exit 0' TERM; /bin/sleep 1000 & echo waits; wait", exitUnexpected, "the Inspector was interrupted"},
	} {
		t.Run(name, func(t *testing.T) {
			useNpx(t, test.script)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			e, _, _ := typed("", table.Screen{})
			e.Out = whenSaid{"waits", cancel}
			code, problem := exitOK, ""
			if err := e.runInspector(ctx, "http://127.0.0.1:1/mcp", nil); err != nil {
				code, problem = explain(err).code, explain(err).Error()
			}
			if code != test.code || problem != test.problem {
				t.Errorf("exit code %d, %q, want %d, %q", code, problem, test.code, test.problem)
			}
		})
	}
}

// The advice to read what npx says comes after all of that.
func TestInspectorNotStarted(t *testing.T) {
	useNpx(t, "printf 'one\\nlast words' >&2; exit 7")
	e, out, errOut := typed("", table.Screen{})
	err := e.serveInspector(t.Context(), &loopback{url: "http://127.0.0.1:1/mcp"}, false)
	if err == nil || explain(err).Error() != "the Inspector ended with exit code 7 before it served its page" || !strings.HasPrefix(explain(err).next, "See what npx says above.") {
		t.Errorf("got %v", err)
	}
	if errOut.String() != "one\nlast words\n" || out.Len() != 0 {
		t.Errorf("output %q, error %q", out, errOut)
	}
}
