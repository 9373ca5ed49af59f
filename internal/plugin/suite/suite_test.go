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

// What checks say comes from a server, as do their names.
func TestJudge(t *testing.T) {
	for name, test := range map[string]struct {
		checks []check
		want   Result
	}{
		"passed":          {[]check{{ID: "a", Status: "SUCCESS"}, {ID: "b", Status: "WARNING", ErrorMessage: "hm"}}, Result{Scenario: "x", Result: Passed}},
		"the first fails": {[]check{{ID: "a", Status: "SUCCESS"}, {ID: "b", Status: "FAILURE", ErrorMessage: "no"}, {ID: "c", Status: "FAILURE"}}, Result{"x", Failed, "b", "no"}},
		"hostile":         {[]check{{ID: "b", Status: "FAILURE", ErrorMessage: "one\ntwo"}}, Result{"x", Failed, "b", "one two"}},
		"no checks":       {[]check{}, Result{Scenario: "x", Result: Passed}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, judge("x", test.checks)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
