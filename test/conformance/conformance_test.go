//go:build conformance

package conformance

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/test/adapter"
	"github.com/slipway-mcp/slipway/test/servers"
)

// The scenarios that each revision requires, against one running adapter at one URL, with
// a server of the official Go SDK behind it that speaks on standard input and output.
// There is no list of failures that are expected.
func TestRequired(t *testing.T) {
	suite, err := Install(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	url := adapter.Serve(t, tool(t, "everything-server"))
	// Twice, so that each era has been there before the other.
	for _, revision := range []string{legacy, modern, legacy} {
		t.Run(revision, func(t *testing.T) { require(t, suite, url, revision) })
	}
}

const (
	legacy = "2025-11-25"
	modern = "2026-07-28"
)

// required is what passes of each revision.
var required = map[string]struct {
	scenarios int
	extra     []string // that are not required, but pass
}{
	legacy: {scenarios: 30},
	modern: {scenarios: 37, extra: []string{"http-header-validation", "http-custom-header-server-validation"}},
}

// require runs what a revision requires, all of which passes.
func require(t *testing.T, suite Suite, url, revision string) {
	t.Helper()
	report, err := suite.Run(t.Context(), url, revision)
	if err != nil {
		t.Fatal(err)
	}
	want := required[revision]
	if len(report.Failed) != 0 || len(report.Passed) != want.scenarios {
		t.Errorf("%d scenarios passed and %q failed, want %d and none; the suite says:\n%s",
			len(report.Passed), report.Failed, want.scenarios, report.Text)
	}
	for _, name := range want.extra {
		if !slices.Contains(report.Extra, name) {
			t.Errorf("%s did not pass; the suite says:\n%s", name, report.Text)
		}
	}
	t.Logf("%d scenarios passed, %d failed; not required, passed: %q", len(report.Passed), len(report.Failed), report.Extra)
}

// Servers of one era serve the clients of theirs as those of both do, and those of the
// other by translation. What fails then is what the server does where
// it has its other era to fall back to, and no translation can know.
func TestOneEra(t *testing.T) {
	suite, err := Install(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	filter := filepath.Join(t.TempDir(), "era")
	if err := servers.Build(t.Context(), filter, "test/servers/era"); err != nil {
		t.Fatal(err)
	}
	for name, run := range map[string]struct {
		era      string
		revision string
		passed   int
		failed   []string
	}{
		"legacy, with sessions": {"legacy", legacy, 30, nil},
		"modern, without":       {"modern", modern, 37, nil},
		// The first wants a question by the name that the server has for it in its other
		// era, and a server with sessions names none. In the second the server's own shim
		// for older clients asks once only, and leaves the next question in its result.
		"legacy, without sessions": {"legacy", modern, 35, []string{"input-required-result-basic-elicitation", "input-required-result-multi-round"}},
		// Their tools ask the client by a request, and the server refuses to make one to
		// a client without a session, which is what it takes ours for. Those that ask by
		// their result are tested in test/eras.
		"modern, with sessions": {"modern", legacy, 26, []string{"elicitation-sep1034-defaults", "elicitation-sep1330-enums", "tools-call-elicitation", "tools-call-sampling"}},
	} {
		t.Run(name, func(t *testing.T) {
			url := adapter.ServeWith(t, []string{"--offer-roots", "--stateless-clients", "Translate"}, filter, run.era, tool(t, "everything-server"))
			report, err := suite.Run(t.Context(), url, run.revision)
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(report.Failed)
			if !slices.Equal(report.Failed, run.failed) || len(report.Passed) != run.passed {
				t.Errorf("%d scenarios passed and %q failed, want %d and %q; the suite says:\n%s",
					len(report.Passed), report.Failed, run.passed, run.failed, report.Text)
			}
		})
	}
}

// tool returns the path of a pinned tool.
func tool(t *testing.T, name string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "tool", "-modfile=hack/tools/go.mod", "-n", name)
	command.Dir = filepath.Join("..", "..")
	out, err := command.Output()
	if err != nil {
		t.Fatalf("find tool %s: %v", name, err)
	}
	return strings.TrimSpace(string(out))
}
