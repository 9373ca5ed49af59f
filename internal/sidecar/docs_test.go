package sidecar

import (
	"context"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/launcher"
	"github.com/slipway-mcp/slipway/internal/sidecar/audit"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/session"
	"github.com/slipway-mcp/slipway/test/doctable"
)

var update = flag.Bool("update", false, "write the tables into the documentation")

// The table in the documentation names a test for each of the bugs, and every one of
// those tests exists.
func TestTableOfBugs(t *testing.T) {
	const root, last = "../..", 55
	text, err := os.ReadFile(filepath.Join(root, "docs", "adapter.md"))
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^\| (R\d\d) \| ([^|]+) \| ([^|]+) \|$`)
	found := map[string]bool{}
	testsOf := map[string]map[string]bool{} // by directory: it takes a while to read one
	for _, match := range row.FindAllStringSubmatch(string(text), -1) {
		id := match[1]
		if found[id] {
			t.Errorf("%s is there twice", id)
		}
		found[id] = true
		if reason, ok := strings.CutPrefix(match[3], "cannot apply: "); ok && reason != "" {
			continue
		}
		for part := range strings.SplitSeq(match[3], "; ") {
			name, list, ok := strings.Cut(part, ": ")
			if !ok {
				t.Errorf("%s: %q is no package with its tests", id, part)
				continue
			}
			dir := filepath.Join(root, "internal", name)
			if strings.HasPrefix(name, "cmd/") || strings.HasPrefix(name, "test/") {
				dir = filepath.Join(root, name)
			}
			tests := testsOf[dir]
			if tests == nil {
				tests = testsIn(t, dir)
				testsOf[dir] = tests
			}
			for test := range strings.SplitSeq(list, ", ") {
				if !tests[test] {
					t.Errorf("%s: %s has no test %s", id, name, test)
				}
			}
		}
	}
	for number := 1; number <= last; number++ {
		if id := fmt.Sprintf("R%02d", number); !found[id] {
			t.Errorf("%s is missing", id)
		}
	}
	if len(found) > last {
		t.Errorf("%d rows, want %d", len(found), last)
	}
}

// adapters are the ways to run an adapter that differ in their metrics.
var adapters = []struct {
	name   string
	change func(t *testing.T, c *config.Config, at *url.URL)
}{
	{"processes", func(*testing.T, *config.Config, *url.URL) {}},
	{"peers", func(t *testing.T, c *config.Config, _ *url.URL) { c.Peers, c.Keys = true, newKeys(t) }},
	{"shared", func(_ *testing.T, c *config.Config, _ *url.URL) { c.Shared = true }},
	{"http", func(_ *testing.T, c *config.Config, at *url.URL) {
		c.Transport, c.UpstreamURL = config.StreamableHTTP, at
	}},
	{"sse", func(_ *testing.T, c *config.Config, at *url.URL) { c.Transport, c.UpstreamURL = config.SSE, at }},
}

// metricGroups are the tables of metrics, by the adapters that have them.
var metricGroups = []struct{ adapters, title string }{
	{"processes peers shared http sse", "Every adapter"},
	{"peers", "MCPServers whose pods pass requests on to each other"},
	{"processes peers shared", "Servers with `transport.type: stdio`"},
	{"processes peers shared sse", "Servers with `transport.type: stdio` or `sse`"},
	{"processes peers", "Servers with `transport.type: stdio` and `session.isolation: PerSession`"},
	{"processes peers sse", "Servers with `transport.type: stdio` and `session.isolation: PerSession`, or with `transport.type: sse`"},
	{"shared", "Servers with `session.isolation: Shared`"},
	{"http", "Servers with `transport.type: streamable-http`"},
	{"sse", "Servers with `transport.type: sse`"},
}

// The reference has each metric, by the servers whose adapters have it.
func TestMetricsInTheDocumentation(t *testing.T) {
	at := serveHTTP(t, nil)
	host, err := launcher.Listen(filepath.Join(t.TempDir(), "s"), launcher.HostOptions{}) // as in a pod
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Close() })
	lines := audit.New(io.Discard, nil)
	t.Cleanup(func() { _ = lines.Close(context.Background()) })
	metrics, having := map[string]*doctable.Metric{}, map[string][]string{}
	for _, adapter := range adapters {
		cfg := config.Defaults()
		cfg.Log, cfg.Audit = logr.Discard(), lines
		adapter.change(t, &cfg, at)
		a := New(host, cfg)
		// A histogram has no type before its first sample.
		a.requests.SessionEnded("", 0, session.ErrClient)
		call := httptest.NewRequest(http.MethodPost, "http://127.0.0.1"+Path, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
		call.Header.Set("Content-Type", "application/json")
		call.Header.Set("Accept", "application/json, text/event-stream")
		a.door(a.routes()).ServeHTTP(httptest.NewRecorder(), call)
		for name, metric := range doctable.MetricsOf(t, a.registry) {
			metrics[name] = metric
			having[name] = append(having[name], adapter.name)
		}
	}
	groups := map[string]map[string]*doctable.Metric{}
	for name, adapters := range having {
		group := strings.Join(adapters, " ")
		if groups[group] == nil {
			groups[group] = map[string]*doctable.Metric{}
		}
		groups[group][name] = metrics[name]
	}
	var page strings.Builder
	for _, group := range metricGroups {
		if groups[group.adapters] != nil {
			page.WriteString("\n### " + group.title + "\n\n" + doctable.Metrics(groups[group.adapters]))
			delete(groups, group.adapters)
		}
	}
	page.WriteString("\n")
	for adapters, left := range groups {
		t.Errorf("no table is for metrics of the adapters %q: %v", adapters, slices.Collect(maps.Keys(left)))
	}
	doctable.Check(t, "../../docs/reference/metrics.md", "metrics of the adapter", page.String(), "go test ./internal/sidecar -update", *update)
}

// testsIn are the names of a package's tests.
func testsIn(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range file.Decls {
			if f, ok := declaration.(*ast.FuncDecl); ok && f.Recv == nil && (strings.HasPrefix(f.Name.Name, "Test") || strings.HasPrefix(f.Name.Name, "Fuzz")) {
				tests[f.Name.Name] = true
			}
		}
	}
	return tests
}

// Each file and package that docs/data-plane.md names is there.
func TestDataPlaneNamesFiles(t *testing.T) {
	text, err := os.ReadFile("../../docs/data-plane.md")
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, match := range regexp.MustCompile("`([a-z/]+(?:\\.go)?)`").FindAllStringSubmatch(string(text), -1) {
		name := match[1]
		if !strings.Contains(name, "/") && !strings.HasSuffix(name, ".go") || strings.HasPrefix(name, "/") {
			continue // a word
		}
		named++
		_, here := os.Stat(name)
		if _, above := os.Stat("../../" + name); here != nil && above != nil {
			t.Errorf("there is no %s", name)
		}
	}
	if named < 30 {
		t.Errorf("found %d names: the page has another form", named)
	}
}
