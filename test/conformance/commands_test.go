//go:build conformance

package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/plugin/inspector"
	"github.com/slipway-mcp/slipway/internal/plugin/node"
	"github.com/slipway-mcp/slipway/internal/plugin/suite"
	"github.com/slipway-mcp/slipway/test/adapter"
	"github.com/slipway-mcp/slipway/test/hang"
	"github.com/slipway-mcp/slipway/test/npm"
	"github.com/slipway-mcp/slipway/test/servers"
)

// useNode puts the pinned Node.js on the PATH, and has npx take a package from where its pinned version is
// installed, with its pinned dependencies.
func useNode(t *testing.T, of *node.Package, modules string) {
	t.Helper()
	pinned, err := Install(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Dir(pinned.Node)+string(os.PathListSeparator)+os.Getenv("PATH"))
	of.Installed = filepath.Dir(modules)
	t.Cleanup(func() { of.Installed = "" })
}

// serve runs the adapter with a server that offers a few tools and nothing else.
func serve(t *testing.T) (url string) {
	t.Helper()
	server := filepath.Join(t.TempDir(), "greeter")
	if err := servers.Build(t.Context(), server, "test/servers/greeter"); err != nil {
		t.Fatal(err)
	}
	return adapter.ServeWith(t, []string{"--stateless-clients", "Translate"}, server)
}

// kubectl mcp conformance: an ordinary server passes what any server can, and fails what wants a server
// that was made for the suite.
func TestSuiteOfCommand(t *testing.T) {
	pinned, err := Install(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := serve(t)
	useNode(t, &suite.Package, pinned.Modules)
	if err := node.Check(t.Context(), suite.Package); err != nil {
		t.Fatal(err)
	}
	for _, revision := range suite.Revisions {
		t.Run(revision, func(t *testing.T) {
			var log bytes.Buffer
			tested := suite.Suite{Endpoint: endpoint, Revision: revision, Log: &log}
			required, err := tested.Scenarios(t.Context(), revision)
			if err != nil {
				t.Fatal(err)
			}
			if want := map[string]int{"2025-11-25": 30, "2026-07-28": 37}[revision]; len(required) != want {
				t.Errorf("%d scenarios are required, want %d", len(required), want)
			}
			for _, name := range suite.ForAll(revision, suite.Offers{Tools: true, Resources: true, Prompts: true}) {
				if !slices.Contains(required, name) {
					t.Errorf("%s is not required", name)
				}
			}
			for _, name := range suite.ForAll(revision, suite.Offers{Tools: true}) {
				got, err := tested.Run(t.Context(), name)
				if diff := cmp.Diff(suite.Result{Scenario: name, Result: suite.Passed}, got); err != nil || diff != "" {
					t.Errorf("%v; (-want +got):\n%s\nthe suite says:\n%s", err, diff, &log)
				}
			}
			got, err := tested.Run(t.Context(), "tools-call-simple-text")
			want := suite.Result{Scenario: "tools-call-simple-text", Result: suite.Failed, FailedCheck: "tools-call-simple-text", Message: `Failed: unknown tool "test_simple_text"`}
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%v; (-want +got):\n%s", err, diff)
			}
			if !strings.Contains(log.String(), "unknown tool") {
				t.Errorf("the log does not have what the suite says: %s", &log)
			}
		})
	}
	t.Run("not of that revision", func(t *testing.T) {
		got, err := suite.Suite{Endpoint: endpoint, Revision: "2026-07-28"}.Run(t.Context(), "ping")
		if diff := cmp.Diff(suite.Result{Scenario: "ping", Result: suite.Skipped}, got); err != nil || diff != "" {
			t.Errorf("%v; (-want +got):\n%s", err, diff)
		}
	})
	t.Run("unknown", func(t *testing.T) {
		if got, err := (suite.Suite{Endpoint: endpoint}).Run(t.Context(), "absent"); err == nil {
			t.Errorf("got %+v", got)
		}
	})
}

// Nothing of the directory that the user is in runs, nor does its registry count: it may be a checkout of
// someone else's.
func TestSuiteOfCheckout(t *testing.T) {
	pinned, err := Install(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Dir(pinned.Node)+string(os.PathListSeparator)+os.Getenv("PATH"))
	checkout := t.TempDir()
	files := map[string]string{
		"package.json": `{"dependencies":{"` + suite.Package.Name + `":"` + suite.Package.Version + `"}}`,
		".npmrc":       "registry=http://127.0.0.1:1/\nfetch-retries=0\n",
		"node_modules/" + suite.Package.Name + "/package.json": `{"name":"` + suite.Package.Name + `","version":"` + suite.Package.Version + `","bin":{"conformance":"run.js"}}`,
		"node_modules/" + suite.Package.Name + "/run.js":       "#!/usr/bin/env node\nconsole.log('Server scenarios\\n  - of-the-checkout')\n",
		"node_modules/.bin/conformance":                        "#!/usr/bin/env node\nconsole.log('Server scenarios\\n  - of-the-checkout')\n",
	}
	for name, content := range files {
		file := filepath.Join(checkout, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(checkout)
	got, err := suite.Suite{}.Scenarios(t.Context(), "")
	if err != nil || !slices.Contains(got, "tools-list") || slices.Contains(got, "of-the-checkout") {
		t.Errorf("scenarios %v, %v", got, err)
	}
}

// kubectl mcp inspect: the page is there at once, only with its token can anything be done, the link is one
// that it takes, and nothing is left when it is closed.
//
// Its package.json also pins rolldown, to a release that the registry has for all platforms: npm ci wants all
// of them in the lock.
func TestInspector(t *testing.T) {
	modules, err := npm.Install(t.Context(), "inspector")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := serve(t)
	useNode(t, &inspector.Package, modules)
	if err := node.Check(t.Context(), inspector.Package); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DANGEROUSLY_OMIT_AUTH", "true") // which must not count
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	var output bytes.Buffer
	started, err := inspector.Start(t.Context(), endpoint, &output)
	if err != nil {
		t.Fatalf("%v; it says:\n%s", err, &output)
	}
	link, err := url.Parse(started.Link)
	if err != nil {
		t.Fatal(err)
	}
	page, token := "http://"+link.Host, link.Query().Get("MCP_INSPECTOR_API_TOKEN")
	if len(processesWith(t, temporary)) == 0 {
		t.Error("no process is found, so that the end of none shows")
	}
	for name, test := range map[string]struct {
		url, token string
		want       int
	}{
		"the link":                {started.Link, "", http.StatusOK},
		"its API without a token": {page + "/api/servers", "", http.StatusUnauthorized},
		"its API with the token":  {page + "/api/servers", token, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			if got, body := get(t, page, test.url, test.token); got != test.want {
				t.Errorf("status %d, want %d: %s", got, test.want, body)
			}
		})
	}
	t.Run("the link is one that the page reads", func(t *testing.T) { readsLink(t, modules, link.Query()) })
	if err := started.Close(); err != nil {
		t.Error(err)
	}
	if left := processesWith(t, temporary); len(left) != 0 {
		t.Errorf("processes %v are left", left)
	}
	if left, err := os.ReadDir(temporary); err != nil || slices.ContainsFunc(left, func(file os.DirEntry) bool { return strings.HasPrefix(file.Name(), "kubectl-mcp") }) {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// get asks for a page of the Inspector as the page itself does.
func get(t *testing.T, page, address, token string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Origin", page)
	if token != "" {
		request.Header.Set("X-Mcp-Remote-Auth", "Bearer "+token)
	}
	response, err := (&http.Client{Timeout: hang.Guard}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(content)
}

// readsLink looks into the program of the page for the parameters that a link has. No browser runs here.
func readsLink(t *testing.T, modules string, parameters url.Values) {
	t.Helper()
	scripts, err := filepath.Glob(filepath.Join(modules, "@modelcontextprotocol", "inspector", "clients", "web", "dist", "assets", "index-*.js"))
	if err != nil || len(scripts) != 1 {
		t.Fatalf("scripts %v, %v", scripts, err)
	}
	content, err := os.ReadFile(scripts[0])
	if err != nil {
		t.Fatal(err)
	}
	for name := range parameters {
		if name != "MCP_INSPECTOR_API_TOKEN" && !bytes.Contains(content, []byte(".get(`"+name+"`)")) {
			t.Errorf("the page does not read %s", name)
		}
	}
	if transport := parameters.Get("transport"); !bytes.Contains(content, []byte("new Set([`"+transport+"`,`sse`])")) {
		t.Errorf("the page does not know transport %s", transport)
	}
}

// kubectl mcp inspect --cli: tools are listed through the endpoint, and exit codes are those of kubectl mcp.
func TestInspectorByArguments(t *testing.T) {
	modules, err := npm.Install(t.Context(), "inspector")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := serve(t)
	useNode(t, &inspector.Package, modules)
	for name, test := range map[string]struct {
		args []string
		code int
		want []string // tools
	}{
		"tools":  {nil, 0, []string{"add", "greet", "visits"}},
		"a call": {[]string{"--method", "tools/call", "--tool-name", "absent"}, 5, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			code, err := inspector.CommandLineMode(t.Context(), endpoint, node.Streams{Out: &out, ErrOut: &errOut}, test.args...)
			if err != nil || code != test.code {
				t.Fatalf("exit code %d, want %d, %v: %s", code, test.code, err, &errOut)
			}
			var listed struct{ Tools []struct{ Name string } }
			if test.want != nil {
				if err := json.Unmarshal(out.Bytes(), &listed); err != nil {
					t.Fatalf("%v: %s", err, &out)
				}
			}
			var names []string
			for _, tool := range listed.Tools {
				names = append(names, tool.Name)
			}
			slices.Sort(names)
			if diff := cmp.Diff(test.want, names); diff != "" {
				t.Errorf("tools (-want +got):\n%s", diff)
			}
		})
	}
}

// If the user interrupts the Inspector while it starts, the plugin still ends it.
func TestInspectorInterrupted(t *testing.T) {
	modules, err := npm.Install(t.Context(), "inspector")
	if err != nil {
		t.Fatal(err)
	}
	useNode(t, &inspector.Package, modules)
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := inspector.Start(ctx, "http://127.0.0.1:1/mcp", io.Discard); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if left := processesWith(t, temporary); len(left) != 0 {
		t.Errorf("processes %v are left", left)
	}
}

// processesWith are the processes, other than this one, whose temporary directory is that of a test.
func processesWith(t *testing.T, temporary string) (pids []int) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux shows the environment of processes")
	}
	environments, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range environments {
		content, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended, or is not ours
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			t.Fatal(err)
		}
		if pid != os.Getpid() && slices.Contains(strings.Split(string(content), "\x00"), "TMPDIR="+temporary) {
			pids = append(pids, pid)
		}
	}
	return pids
}
