package sidecar

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-logr/logr"

	"github.com/slipway-mcp/slipway/internal/launcher"
	"github.com/slipway-mcp/slipway/internal/sidecar/audit"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
)

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

// The documentation has a row for each metric, and none for any other.
func TestTableOfMetrics(t *testing.T) {
	text, err := os.ReadFile("../../docs/adapter.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, match := range regexp.MustCompile("(?m)^\\| `(slipway_\\w+)` \\| [^|]+ \\|$").FindAllStringSubmatch(string(text), -1) {
		if documented[match[1]] {
			t.Errorf("%s is there twice", match[1])
		}
		documented[match[1]] = true
	}
	at := serveHTTP(t, nil)
	host, err := launcher.Listen(filepath.Join(t.TempDir(), "s"), launcher.HostOptions{}) // as in a pod
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Close() })
	lines := audit.New(io.Discard, nil)
	t.Cleanup(func() { _ = lines.Close(context.Background()) })
	published := map[string]bool{}
	for _, change := range []func(*config.Config){
		func(*config.Config) {},
		func(c *config.Config) { c.Peers, c.Keys = true, newKeys(t) },
		func(c *config.Config) { c.Shared = true },
		func(c *config.Config) { c.Transport, c.UpstreamURL = config.StreamableHTTP, at },
		func(c *config.Config) { c.Transport, c.UpstreamURL = config.SSE, at },
	} {
		cfg := config.Defaults()
		cfg.Log, cfg.Audit = logr.Discard(), lines
		change(&cfg)
		families, err := New(host, cfg).registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			published[family.GetName()] = true
		}
	}
	for name := range published {
		if !documented[name] {
			t.Errorf("%s is not documented", name)
		}
	}
	for name := range documented {
		if !published[name] {
			t.Errorf("%s does not exist", name)
		}
	}
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
