package docs

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const samplePage = "# A page\n\n" +
	"See [there](other.md#part), `[not](this.md)` and\n![a picture](pictures/a.svg).\n\n" +
	"## `kubectl mcp`: what *it* does\n## Twice\n## Twice\n" +
	"<a id=\"own\"></a>\n\n" +
	"1. Type:\n\n   ```sh\n   make demo\n     indented\n   ```\n\n" +
	"<!-- skip: it needs a browser -->\n\n```sh\nopen it\n```\n\n" +
	"```console\n$ kubectl get \\\n>   pods\nNAME  AGE\n…\n$ true\n```\n\n" +
	"<!-- run: background -->\n```sh\nserve\n```\n```yaml\nkind: [x](y.md)\n```\n"

func TestParsePage(t *testing.T) {
	page, err := ParsePage("docs/page.md", []byte(samplePage))
	if err != nil {
		t.Fatal(err)
	}
	want := &Page{
		Path: "docs/page.md",
		Blocks: []Block{
			{Line: 14, Language: "sh", Text: "make demo\n  indented"},
			{Line: 21, Language: "sh", Text: "open it", Mark: "skip: it needs a browser"},
			{Line: 25, Language: "console", Text: "$ kubectl get \\\n>   pods\nNAME  AGE\n…\n$ true"},
			{Line: 34, Language: "sh", Text: "serve", Mark: "run: background"},
			{Line: 37, Language: "yaml", Text: "kind: [x](y.md)"},
		},
		Links:   []Link{{3, "other.md#part"}, {4, "pictures/a.svg"}},
		Anchors: map[string]bool{"a-page": true, "kubectl-mcp-what-it-does": true, "twice": true, "twice-1": true, "own": true},
	}
	if diff := cmp.Diff(want, page); diff != "" {
		t.Errorf("ParsePage (-want +got):\n%s", diff)
	}
	var steps []Step
	var reasons []string
	for i := range page.Blocks {
		more, reason, err := page.Blocks[i].Steps()
		if err != nil {
			t.Fatal(err)
		}
		steps = append(steps, more...)
		if reason != "" {
			reasons = append(reasons, reason)
		}
	}
	wantSteps := []Step{
		{Line: 14, Script: "make demo\n  indented"},
		{Line: 25, Script: "kubectl get \\\n  pods", Want: "NAME  AGE\n…"},
		{Line: 29, Script: "true"},
		{Line: 34, Script: "serve", Background: true},
	}
	if diff := cmp.Diff(wantSteps, steps); diff != "" {
		t.Errorf("Steps (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"it needs a browser"}, reasons); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
}

// A block that would run nowhere, and unnoticed, is an error.
func TestBlocksThatWouldNotRun(t *testing.T) {
	for name, test := range map[string]struct{ page, want string }{
		"no reason":           {"<!-- skip -->\n```sh\nx\n```\n", "skip needs a reason"},
		"hardly a reason":     {"<!-- skip: no -->\n```sh\nx\n```\n", "skip needs a reason"},
		"unknown word":        {"<!-- run: later -->\n```sh\nx\n```\n", "is not known"},
		"another language":    {"```bash\nx\n```\n", `a block of "bash"`},
		"no language":         {"```\nx\n```\n", `a block of ""`},
		"commands as text":    {"```text\n$ x\n```\n", "call it sh or console"},
		"output first":        {"```console\nNAME\n$ x\n```\n", "begins with a command"},
		"mark without block":  {"<!-- skip: it needs a browser -->\nText.\n", "no block follows"},
		"mark at the end":     {"Text.\n<!-- skip: it needs a browser -->\n", "no block follows"},
		"block without end":   {"```sh\nx\n", "does not end"},
		"marked manifest":     {"<!-- skip: it needs a browser -->\n```yaml\nx: 1\n```\n", "call it sh or console"},
		"two in a background": {"<!-- run: background -->\n```console\n$ x\n$ y\n```\n", "is not known"},
	} {
		t.Run(name, func(t *testing.T) {
			page, err := ParsePage("page.md", []byte(test.page))
			if err == nil && len(page.Blocks) > 0 {
				_, _, err = page.Blocks[0].Steps()
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one that says %q", err, test.want)
			}
		})
	}
}

func TestMatch(t *testing.T) {
	const table = "NAME      READY   AGE\nmemory    True    12s\n"
	for name, test := range map[string]struct {
		want, got string
		matches   bool
	}{
		"the same":               {"NAME READY AGE\nmemory True 12s", table, true},
		"another time":           {"NAME READY AGE\nmemory True 2m5s", table, true},
		"another word":           {"NAME READY AGE\nmemory False 12s", table, false},
		"a line is missing":      {"NAME READY AGE", table, false},
		"a line too many":        {"NAME READY AGE\nmemory True 12s\nx", table, false},
		"lines left out":         {"…\nmemory True 12s", table, true},
		"lines left out at last": {"NAME READY AGE\n…", table, true},
		"words left out":         {"NAME …\nmemory True …", table, true},
		"left out, and wrong":    {"…\nmemory False 12s", table, false},
		"no time where one is":   {"NAME READY AGE\nmemory True soon", table, false},
		"signs of a pattern":     {"a.b (c)", "axb (c)", false},
		"nothing":                {"x", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Match(test.want, test.got); got != test.matches {
				t.Errorf("Match is %v", got)
			}
		})
	}
}
