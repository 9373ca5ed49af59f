package suite

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-mcp/slipway/internal/plugin/inspector"
	"github.com/slipway-mcp/slipway/internal/plugin/node"
)

// The packages that kubectl mcp runs are those that are tested, and that its page names.
func TestVersions(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "kubectl-mcp.md"))
	if err != nil {
		t.Fatal(err)
	}
	for file, pinned := range map[string]node.Package{
		"package.json":           Package,
		"inspector/package.json": inspector.Package,
	} {
		content, err := os.ReadFile(filepath.Join("..", "..", "..", "test", "conformance", file))
		if err != nil {
			t.Fatal(err)
		}
		var tested struct {
			Dependencies map[string]string `json:"dependencies"`
		}
		if err := json.Unmarshal(content, &tested); err != nil {
			t.Fatal(err)
		}
		if got := tested.Dependencies[pinned.Name]; got != pinned.Version {
			t.Errorf("%s pins %s %q, and kubectl mcp runs %q", file, pinned.Name, got, pinned.Version)
		}
		if row := fmt.Sprintf("| `%s` | Node.js %s", pinned, pinned.Node); !strings.Contains(string(page), row) {
			t.Errorf("docs/kubectl-mcp.md does not have %q", row)
		}
	}
}

func TestForAll(t *testing.T) {
	for name, test := range map[string]struct {
		revision string
		offers   Offers
		want     []string
	}{
		"nothing":         {"2025-11-25", Offers{}, []string{"server-initialize", "ping", "dns-rebinding-protection"}},
		"tools":           {"2026-07-28", Offers{Tools: true}, []string{"dns-rebinding-protection", "server-sse-multiple-streams", "tools-list"}},
		"resources":       {"2026-07-28", Offers{Resources: true}, []string{"dns-rebinding-protection", "resources-list", "sep-2164-resource-not-found"}},
		"prompts":         {"2025-11-25", Offers{Prompts: true}, []string{"server-initialize", "ping", "dns-rebinding-protection", "prompts-list"}},
		"unknown to both": {"2024-11-05", Offers{Tools: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, ForAll(test.revision, test.offers)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What checks say comes from a server, as do their names. Only checks can show that a server passes.
func TestJudge(t *testing.T) {
	passed := []check{{ID: "a", Status: "SUCCESS"}, {ID: "b", Status: "WARNING", ErrorMessage: "hm"}}
	for name, test := range map[string]struct {
		checks []check
		code   int
		want   Result
	}{
		"passed":          {passed, 0, Result{Scenario: "x", Result: Passed}},
		"the first fails": {[]check{{ID: "a", Status: "SUCCESS"}, {ID: "b", Status: "FAILURE", ErrorMessage: "no"}, {ID: "c", Status: "FAILURE"}}, 1, Result{"x", Failed, "b", "no"}},
		"hostile":         {[]check{{ID: "b", Status: "FAILURE", ErrorMessage: "one\ntwo"}}, 1, Result{"x", Failed, "b", "one two"}},
		"no checks":       {[]check{}, 0, Result{Scenario: "x", Result: Failed, Message: "the suite made no check: the end"}},
		"another end": {
			passed, 7, Result{Scenario: "x", Result: Failed, Message: "no check failed, and the suite ended with exit code 7: the end"},
		},
		"no checks, and another end": {
			[]check{}, 7, Result{Scenario: "x", Result: Failed, Message: "no check failed, and the suite ended with exit code 7: the end"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, judge("x", test.checks, test.code, "begin\nthe end\n")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A server decides how much the suite writes, and not how much of it is kept.
func TestBounds(t *testing.T) {
	var said tail
	most := 0
	for range 20 {
		for _, piece := range []string{"begin\n", strings.Repeat("x", saidBytes), strings.Repeat("y", saidBytes/3) + "\n", "the end\n"} {
			if n, err := said.Write([]byte(piece)); n != len(piece) || err != nil {
				t.Fatalf("wrote %d of %d bytes, %v", n, len(piece), err)
			}
			most = max(most, cap(said.kept))
		}
	}
	if got := said.String(); most > 8*saidBytes || len(got) != saidBytes || lastLine(got) != "the end" {
		t.Errorf("%d bytes are kept, and at most %d; the last line is %q", len(got), most, lastLine(got))
	}

	directory := t.TempDir()
	file := filepath.Join(directory, "x", "checks.json")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(`[{"id":"`+strings.Repeat("x", checksBytes)+`"}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	if checks, err := read(directory); err == nil || !strings.Contains(err.Error(), "more than 33554432 bytes") {
		t.Errorf("%d checks, %v", len(checks), err)
	}
	if err := os.WriteFile(file, []byte(`[{"id":"a","status":"SUCCESS"}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	if checks, err := read(directory); err != nil || len(checks) != 1 {
		t.Errorf("%d checks, %v", len(checks), err)
	}
}
