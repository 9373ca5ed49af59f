package plugin

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/plugin/suite"
	"github.com/slipway-mcp/slipway/internal/plugin/table"
)

var (
	passed  = suite.Result{Scenario: "tools-list", Result: suite.Passed}
	skipped = suite.Result{Scenario: "ping", Result: suite.Skipped}
	failed  = suite.Result{
		Scenario: "dns-rebinding-protection", Result: suite.Failed, FailedCheck: "localhost-host-rebinding-rejected",
		Message: "Expected HTTP 4xx for invalid Host/Origin headers, got 200\x1b[2J",
	}
)

func TestPrintConformance(t *testing.T) {
	for name, test := range map[string]struct {
		output  string
		width   int
		without bool // a revision
		results []suite.Result
		code    int
		problem string
		want    string
	}{
		"passed": {results: []suite.Result{passed, skipped}, want: `SCENARIO    RESULT   FIRST FAILED CHECK
tools-list  passed
ping        skipped
`},
		"failed, 80 columns": {results: []suite.Result{passed, failed}, width: 80, code: exitTool, problem: "1 of 2 scenarios failed", want: `SCENARIO                  RESULT  FIRST FAILED CHECK
tools-list                passed
dns-rebinding-protection  failed  localhost-host-rebinding-rejected
  Expected HTTP 4xx for invalid Host/Origin headers, got 200 [2J
`},
		"JSON": {results: []suite.Result{failed}, output: outputJSON, code: exitTool, problem: "1 of 1 scenarios failed", want: `{
  "suite": "@modelcontextprotocol/conformance@0.2.0-alpha.12",
  "revision": "2026-07-28",
  "items": [
    {
      "scenario": "dns-rebinding-protection",
      "result": "failed",
      "failedCheck": "localhost-host-rebinding-rejected",
      "message": "Expected HTTP 4xx for invalid Host/Origin headers, got 200\u001b[2J"
    }
  ]
}
`},
		"YAML": {results: []suite.Result{passed}, output: outputYAML, want: `items:
- result: passed
  scenario: tools-list
revision: "2026-07-28"
suite: '@modelcontextprotocol/conformance@0.2.0-alpha.12'
`},
		"nothing ran, at no revision": {without: true, results: []suite.Result{skipped}, code: exitUnexpected, problem: "the suite skipped all of these scenarios", want: `SCENARIO  RESULT   FIRST FAILED CHECK
ping      skipped
`},
		"nothing ran": {results: []suite.Result{skipped}, code: exitUnexpected, problem: "revision 2026-07-28 has none of these scenarios", want: `SCENARIO  RESULT   FIRST FAILED CHECK
ping      skipped
`},
	} {
		t.Run(name, func(t *testing.T) {
			e, out, _ := typed("", table.Screen{Width: test.width})
			e.output = test.output
			revision := "2026-07-28"
			if test.without {
				revision = ""
			}
			if err := e.printResults(revision, test.results); err != nil {
				t.Fatal(err)
			}
			got, problem := exitOK, ""
			if err := conclude(revision, test.results); err != nil {
				got, problem = explain(err).code, err.Error()
			}
			if got != test.code || problem != test.problem {
				t.Errorf("exit code %d, %q, want %d, %q", got, problem, test.code, test.problem)
			}
			if diff := cmp.Diff(test.want, out.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What came of scenarios is printed, also if the suite cannot run the next one.
func TestUnfinishedConformance(t *testing.T) {
	// The suite writes checks of the first scenario, cannot run the second, and waits in the third.
	const suiteProgram = `for argument; do
	case $before in --scenario) scenario=$argument;; -o) results=$argument;; esac
	before=$argument
done
case $scenario in
first) /bin/mkdir "$results/x" && echo '[{"id":"a","status":"SUCCESS"}]' > "$results/x/checks.json";;
second) echo one; echo "cannot run" >&2; exit 3;;
third) echo waits; exec /bin/sleep 1000;;
esac
`
	const printed = "SCENARIO  RESULT  FIRST FAILED CHECK\nfirst     passed\n"
	for name, test := range map[string]struct {
		scenarios []string
		want      string
		problem   string
		next      string
	}{
		"all":         {[]string{"first"}, printed, "", ""},
		"the first":   {[]string{"second", "first"}, "", "run scenario second: the suite ended with exit code 3: cannot run", wholeOutput},
		"the second":  {[]string{"first", "second", "first"}, printed, "run scenario second: the suite ended with exit code 3: cannot run", wholeOutput},
		"interrupted": {[]string{"first", "third", "first"}, printed, "the suite was interrupted after 1 of 3 scenarios", "Run the command again."},
	} {
		t.Run(name, func(t *testing.T) {
			useNpx(t, suiteProgram)
			t.Chdir(t.TempDir())
			t.Setenv("TMPDIR", ".") // which is elsewhere for npx
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			e, out, _ := typed("", table.Screen{})
			err := e.runScenarios(ctx, suite.Suite{Log: whenSaid{"waits", cancel}}, test.scenarios, func(context.Context) {})
			if out.String() != test.want {
				t.Errorf("printed %q, want %q", out, test.want)
			}
			if err == nil && test.problem == "" {
				return
			}
			if failed := explain(err); failed.code != exitUnexpected || failed.Error() != test.problem || failed.next != test.next {
				t.Errorf("exit code %d, %q, %q", failed.code, failed.Error(), failed.next)
			}
		})
	}
}

// A log is the user's own, replaces nothing, and is kept if the command fails.
func TestSuiteLog(t *testing.T) {
	e, _, _ := typed("", table.Screen{})
	file := filepath.Join(t.TempDir(), "suite.log")
	log, done, err := e.suiteLog(conformanceOptions{log: file})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(log, "said\n"); err != nil {
		t.Fatal(err)
	}
	if err := done(); err != nil {
		t.Fatal(err)
	}
	_, _, err = e.suiteLog(conformanceOptions{log: file})
	if err == nil || explain(err).Error() != "file "+file+" exists, and is not overwritten" || explain(err).next != "Name another file with --log." {
		t.Errorf("got %v", err)
	}
	found, err := os.Stat(file)
	if err != nil || found.Mode() != 0o600 || found.Size() != int64(len("said\n")) {
		t.Errorf("got %v, %v", found, err)
	}
}

func TestNewestRevision(t *testing.T) {
	for want, serves := range map[string][]string{
		"2026-07-28": {"2026-07-28", "2025-11-25"},
		"2025-11-25": {"2025-11-25", "2024-11-05"},
	} {
		if got := newestRevision(&mcpv1alpha1.MCPServer{Status: mcpv1alpha1.MCPServerStatus{ProtocolVersions: serves}}); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got := newestRevision(&mcpv1alpha1.MCPServer{}); got != "2025-11-25" {
		t.Errorf("of an unknown server: %s", got)
	}
}

// Sessions that clients leave behind are ended, each once.
func TestOpenSessions(t *testing.T) {
	var ended []string
	sessions := &openSessions{RoundTripper: toServer{http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		session := request.Header.Get("Wanted")
		w.Header().Set(sessionHeader, session)
		switch {
		case request.Method == http.MethodDelete:
			ended = append(ended, request.Header.Get(sessionHeader))
		case session == "refused":
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})}}
	for _, session := range []string{"one", "two", "one", "refused", ""} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, endpoint, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Wanted", session)
		response, err := sessions.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
	}
	sessions.end(t.Context())
	sessions.end(t.Context())
	slices.Sort(ended)
	if diff := cmp.Diff([]string{"one", "two"}, ended); diff != "" {
		t.Errorf("ended (-want +got):\n%s", diff)
	}
}
