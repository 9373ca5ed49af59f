// Package words keeps the pages for users in words that a newcomer knows.
package words

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// guides are the pages that newcomers read first.
var guides = []string{"README.md", "docs/quick-start.md", "docs/first-hour.md", "docs/mcpserver.md", "docs/scaling.md"}

// exempt are the pages for people who work on Slipway, and the one that explains the words.
var exempt = []string{"docs/glossary.md", "docs/requirements.md"}

// No page uses a word of this project before it links to its explanation.
func TestJargonIsExplained(t *testing.T) {
	for _, page := range append(pages(t), "README.md") {
		for _, found := range unexplained(read(t, page)) {
			t.Errorf("%s:%d: %q comes before a link to its place in docs/glossary.md", page, found.line, found.word)
		}
	}
}

// The guides have none of the phrases that make people read a sentence twice.
func TestGuidesHaveNoBannedPhrases(t *testing.T) {
	for _, page := range guides {
		for _, found := range banned(read(t, page)) {
			t.Errorf("%s:%d: %q", page, found.line, found.word)
		}
	}
}

func TestUnexplained(t *testing.T) {
	tests := map[string]struct {
		page string
		want []finding
	}{
		"no jargon":                   {"Each session has a process.", nil},
		"a word":                      {"One\nspare process.", []finding{{2, "spare"}}},
		"plural, at a sentence's end": {"The keepers.", []finding{{1, "keepers"}}},
		"in capitals":                 {"# Eras", []finding{{1, "Eras"}}},
		"every form of park":          {"It parks. It parked.", []finding{{1, "parks"}, {1, "parked"}}},
		"link first":                  {"A [spare](glossary.md#spare) waits. A spare starts.", nil},
		"link from another folder":    {"A [spare](../glossary.md#spare) waits.", nil},
		"link on the next line":       {"A [spare\nprocess](glossary.md#spare) waits.", nil},
		"link too late":               {"A spare waits: a [spare](glossary.md#spare).", []finding{{1, "spare"}}},
		"link to another word":        {"A [spare](glossary.md#keeper) waits.", []finding{{1, "spare"}}},
		"link without a place":        {"A [spare](glossary.md) waits.", []finding{{1, "spare"}}},
		"part of a word":              {"Several operators in Sparev.", nil},
		"code":                        {"`spare` and\n```\nspare\n```\nend", nil},
		"line after code":             {"```\nx\n```\nspare", []finding{{4, "spare"}}},
		"address":                     {"See [tests](../test/eras/table_test.go) and https://example.com/park.", nil},
		"comment":                     {"<!-- matrix: written by go test ./test/eras -->\nText.", nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := unexplained(test.page); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestBanned(t *testing.T) {
	tests := map[string]struct {
		page string
		want []finding
	}{
		"none":            {"Anyone who can create an MCPServer can run any image.", nil},
		"at the start":    {"Who may call", []finding{{1, "Who may"}}},
		"over two lines":  {"a person who\nmay call", []finding{{1, "who\nmay"}}},
		"part of a word":  {"a newcomer", nil},
		"whole words":     {"somebody, anew", []finding{{1, "somebody"}, {1, "anew"}}},
		"not in code":     {"`anew`", nil},
		"not in anchors":  {"[Access](install.md#who-may-call)", nil},
		"a longer phrase": {"it makes up for that", []finding{{1, "makes up for"}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := banned(test.page); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// finding is a word of a page, and the line that it begins in.
type finding struct {
	line int
	word string
}

// jargon are the words of this project, by their place in the glossary.
var jargon = map[string]*regexp.Regexp{
	"era":    regexp.MustCompile(`(?i)\beras?\b`),
	"keeper": regexp.MustCompile(`(?i)\bkeepers?\b`),
	"spare":  regexp.MustCompile(`(?i)\bspares?\b`),
	"parked": regexp.MustCompile(`(?i)\bpark(s|ed|ing)?\b`),
}

var (
	// glossaryLink is a link to the glossary. Its second group is the place there.
	glossaryLink = regexp.MustCompile(`\[([^\]]*)\]\((?:[^()\s]*/)?glossary\.md#([a-z]+)\)`)
	phrases      = regexp.MustCompile(`(?i)\b(whoever|somebody|nobody|anew|who\s+may|makes\s+up\s+for)\b`)
	// unread are the parts of a page that are not prose: code, comments, and the addresses of links.
	unread = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`|<!--.*?-->|\\]\\([^)]*\\)|<a id=[^>]*>|https?://\\S+")
)

// unexplained finds the words of the project that stand before the first link to their explanation.
func unexplained(page string) (found []finding) {
	prose := proseOf(page)
	for place, word := range jargon {
		explained := len(page)
		for _, link := range glossaryLink.FindAllStringSubmatchIndex(page, -1) {
			if page[link[4]:link[5]] == place {
				explained = link[0]
				break
			}
		}
		for _, at := range word.FindAllStringIndex(prose[:explained], -1) {
			found = append(found, finding{lineOf(page, at[0]), prose[at[0]:at[1]]})
		}
	}
	slices.SortStableFunc(found, func(a, b finding) int { return a.line - b.line })
	return found
}

func banned(page string) (found []finding) {
	prose := proseOf(page)
	for _, at := range phrases.FindAllStringIndex(prose, -1) {
		found = append(found, finding{lineOf(page, at[0]), prose[at[0]:at[1]]})
	}
	return found
}

// proseOf is a page of the same length, with blanks in place of what is not prose.
func proseOf(page string) string {
	return unread.ReplaceAllStringFunc(page, func(part string) string {
		blank := []byte(part)
		for i, c := range blank {
			if c != '\n' {
				blank[i] = ' '
			}
		}
		return string(blank)
	})
}

func lineOf(page string, at int) int { return strings.Count(page[:at], "\n") + 1 }

// pages are the pages in docs/ for users: all but the records of decisions.
func pages(t *testing.T) (found []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == "decisions":
			return filepath.SkipDir
		}
		name, err := filepath.Rel(root, path)
		if name = filepath.ToSlash(name); strings.HasSuffix(name, ".md") && !slices.Contains(exempt, name) {
			found = append(found, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 10 {
		t.Fatalf("found the pages %q only", found)
	}
	return found
}

func read(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Error(err)
	}
	return string(text)
}
