package eras

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/slipway-mcp/slipway/test/doctable"
)

var update = flag.Bool("update", false, "write the table into the documentation")

const root = "../.."

func TestTableInTheDocumentation(t *testing.T) {
	doctable.Check(t, root+"/docs/protocol.md", "matrix", table(t), "go test ./test/eras -update", *update)
}

// table is the matrix in Markdown, with a note for each of the limits.
func table(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	text.WriteString("| client |")
	for _, s := range columns {
		text.WriteString(" " + s.name + " |")
	}
	text.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	row := func(title, revision string, way func(server) way) {
		text.WriteString("| " + title + " |")
		for _, s := range columns {
			text.WriteString(" " + string(way(s)) + notes(way(s), revision, s.name) + " |")
		}
		text.WriteString("\n")
	}
	for _, revision := range revisions {
		row(revision, revision, func(s server) way { return s.way(revision) })
	}
	row(modern+" with `Translate`", modern, func(s server) way { return s.withTranslation().way(modern) })
	text.WriteString("\n")
	for i, l := range limits {
		fmt.Fprintf(&text, "%d. No %s: %s\n", i+1, strings.Join(l.features, ", "), l.why)
	}
	fmt.Fprintf(&text, "\nThe clients: Go SDK %s, TypeScript SDK %s and %s.\nEach of them uses %s.\n",
		version(t, "go.mod", `modelcontextprotocol/go-sdk v([\d.]+)`),
		version(t, "test/eras/package.json", `modelcontextprotocol/sdk": "([\d.]+)"`),
		version(t, "test/eras/package.json", `modelcontextprotocol/client": "([\d.]+)"`),
		strings.Join(features, ", "))
	return text.String()
}

func notes(way way, revision, server string) string {
	var marks []string
	for i, l := range limits {
		if way != notYet && l.covers(revision, server) {
			marks = append(marks, strconv.Itoa(i+1))
		}
	}
	if marks == nil {
		return ""
	}
	return " (" + strings.Join(marks, ", ") + ")"
}

func version(t *testing.T, path, pattern string) string {
	t.Helper()
	match := regexp.MustCompile(pattern).FindStringSubmatch(read(t, path))
	if match == nil {
		t.Fatalf("%s has nothing like %s", path, pattern)
	}
	return match[1]
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestJudge(t *testing.T) {
	works, toCome, cannot := expectation{}, expectation{toCome: true, why: "soon"}, expectation{answer: "no", why: "never"}
	for name, test := range map[string]struct {
		expectation
		got         string
		wrong, skip string
	}{
		"works":                           {works, ok, "", ""},
		"does not work":                   {works, "broken", "broken", ""},
		"to come":                         {toCome, "broken", "", "soon; now: broken"},
		"came":                            {toCome, ok, "it works, and is said not to: soon", ""},
		"impossible":                      {cannot, "it says no", "", ""},
		"impossible, with another answer": {cannot, "broken", "got broken, want no in it: never", ""},
		"impossible, and works":           {cannot, ok, "it works, and is said not to: never", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if wrong, skip := test.judge(test.got); wrong != test.wrong || skip != test.skip {
				t.Errorf("got %q and %q, want %q and %q", wrong, skip, test.wrong, test.skip)
			}
		})
	}
}

func TestJudgeServed(t *testing.T) {
	for name, test := range map[string]struct {
		way              way
		revision, served string
		wrong            bool
	}{
		"native":                  {native, "2025-06-18", "2025-06-18", false},
		"native, another":         {native, "2025-06-18", "2025-11-25", true},
		"native, nothing":         {native, "2025-06-18", "", true},
		"translated up":           {translated, "2025-06-18", modern, false},
		"translated down":         {translated, modern, "2025-11-25", false},
		"translated, the same":    {translated, modern, modern, true},
		"translated, the era":     {translated, "2025-06-18", "2025-11-25", true},
		"translated, but nothing": {translated, modern, "", true},
		"either":                  {either, anyRevision, "2025-11-25", false},
		"either, but nothing":     {either, anyRevision, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.way.judgeServed(test.revision, test.served); (got != "") != test.wrong {
				t.Errorf("got %q, want an error: %t", got, test.wrong)
			}
		})
	}
}

// Every column says something of every revision, and limits are about what there is.
func TestMatrixIsWhole(t *testing.T) {
	known := map[string]bool{}
	for _, list := range [][]string{revisions, features} {
		for _, name := range list {
			known[name] = true
		}
	}
	for _, s := range columns {
		known[s.name] = true
		if len(s.ways) != len(revisions) {
			t.Errorf("%s has %d ways, want %d", s.name, len(s.ways), len(revisions))
		}
	}
	for i, l := range limits {
		for _, list := range [][]string{l.revisions, l.servers, l.features} {
			for _, name := range list {
				if !known[name] {
					t.Errorf("limit %d: there is no %s", i+1, name)
				}
			}
		}
	}
}
