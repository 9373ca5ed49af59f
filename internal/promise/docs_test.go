package promise

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/test/doctable"
)

var update = flag.Bool("update", false, "write the table into the documentation")

const root = "../.."

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTableInTheDocumentation(t *testing.T) {
	doctable.Check(t, root+"/docs/promises.md", "promises", Table(), "go test ./internal/promise -update", *update)
}

// What other pages say of a promise has the promised number.
func TestSentencesInTheDocumentation(t *testing.T) {
	for sentence, path := range map[string]string{
		"it takes " + atMost(Ready) + " from apply to Ready":                               "docs/mcpserver.md",
		"Ready is False no later than " + words(Broken) + " after a server broke":          "docs/mcpserver.md",
		"calls in flight get a JSON-RPC error, " + atMost(Death) + " later":                "docs/adapter.md",
		"it takes " + atMost(Settings) + " from the change until they are in effect":       "docs/mcpserver.md",
		"a manager reconciles again " + atMost(Failover) + " after the loss of the leader": "docs/install.md",
	} {
		// Lines may break anywhere.
		if text := strings.Join(strings.Fields(read(t, path)), " "); !strings.Contains(text, sentence) {
			t.Errorf("%s does not say: %s", path, sentence)
		}
	}
}

// The tests that are named exist.
func TestPromisesAreAsserted(t *testing.T) {
	for _, r := range rows() {
		if len(r.asserted) == 0 {
			t.Errorf("%s: no test", r.promise)
		}
		for _, by := range r.asserted {
			if by == endToEnd {
				continue
			}
			if dir, test, ok := strings.Cut(by, ": "); !ok || !hasTest(t, dir, test) {
				t.Errorf("%s: %q is neither %q nor a package and a test that it has", r.promise, by, endToEnd)
			}
		}
	}
}

// The tests that promises name use every constant.
func TestEveryConstantIsAsserted(t *testing.T) {
	var suite strings.Builder
	for _, r := range rows() {
		for _, by := range r.asserted {
			dir, _, _ := strings.Cut(by, ": ")
			suite.WriteString(tests(t, dir))
		}
	}
	constants := regexp.MustCompile(`(?m)^\t([A-Z]\w*) += `).FindAllStringSubmatch(read(t, "internal/promise/promise.go"), -1)
	if len(constants) < 8 {
		t.Fatalf("found the constants %q only", constants)
	}
	for _, constant := range constants {
		if !regexp.MustCompile(`\bpromise\.` + constant[1] + `\b`).MatchString(suite.String()) {
			t.Errorf("no test that is named uses promise.%s", constant[1])
		}
	}
}

// hasTest tells whether one of the directory's files has the test.
func hasTest(t *testing.T, dir, test string) bool {
	t.Helper()
	return strings.Contains(tests(t, dir), "\nfunc "+test+"(t *testing.T) {")
}

// tests are the files of a directory with tests.
func tests(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}
