package sidecar

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const requirementsPage = "docs/requirements.md"

// definitions are the pages that define codes, each with the row of its table, or the
// item of its list, that does.
var definitions = map[string]*regexp.Regexp{
	requirementsPage:      regexp.MustCompile(`(?m)^\| ([A-Z]-\d\d) \|`),
	"docs/adapter.md":     regexp.MustCompile(`(?m)^\| (R\d\d) \|`), // bugs of others
	"docs/performance.md": regexp.MustCompile(`\*\*(L\d)\*\* is `),  // what the benchmark compares
}

var (
	// A word is cut at all that no code contains, so that UTF-8, SHA-256 and a date are one
	// word each, and none of them a code.
	codeWord = regexp.MustCompile(`[\w-]+`)
	// A requirement has a dash.
	requirement = regexp.MustCompile(`^[A-Z]-\d{1,2}$`)
	// Others have none, and can be anything outside a comment: a part of a URL, or a key.
	// There a code is one of a bug, or stands in front of what it is about.
	otherCode = regexp.MustCompile(`^[A-Z]{1,2}\d{1,2}$`)
	bug       = regexp.MustCompile(`^R\d\d$`)
	prefix    = regexp.MustCompile("^[\"`][A-Z]{1,2}\\d{1,2}[ :]")
)

// codesIn are the codes in a comment.
func codesIn(comment string) []string {
	return slices.DeleteFunc(codeWord.FindAllString(comment, -1), func(word string) bool {
		return !requirement.MatchString(word) && !otherCode.MatchString(word)
	})
}

// codesInLiteral are the codes in a string as the source has it, or in a page.
func codesInLiteral(literal string) []string {
	codes := slices.DeleteFunc(codesIn(literal), func(code string) bool {
		return !requirement.MatchString(code) && !bug.MatchString(code)
	})
	if found := prefix.FindString(literal); found != "" {
		codes = append(codes, found[1:len(found)-1])
	}
	return codes
}

func TestCodesAreTold(t *testing.T) {
	for text, want := range map[string][]string{
		"// T-17, R20: a session, and (M-09).":                 {"T-17", "R20", "M-09"},
		"// T-17's M-09/M-10 and M-11 to M-17":                 {"T-17", "M-09", "M-10", "M-11", "M-17"},
		"// T-17 or T" + "-7, and what a review had: SF" + "1": {"T-17", "T" + "-7", "SF" + "1"},
		"// UTF-8, UTF-16, SHA-256, ES256, ISO-8601":           nil,
		"// X-Forwarded-For, HTTP-2, HTTP/2, SSH-2, P-256":     nil,
		"// 2026-07-28, -32022, AB-12-34, a-T-17, GET1":        nil,
	} {
		if diff := cmp.Diff(want, codesIn(text), cmp.Transformer("", func(s []string) string { return strings.Join(s, " ") })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	for literal, want := range map[string]string{
		`"T-17 R20 unknown session"`: "T-17 R20",
		`"/a%C3%BC"`:                 "",
		`"E1"`:                       "",
		`"M` + `2: of the key"`:      "M" + "2",
		`"L-07: is sent %s"`:         "L-07",
	} {
		if got := strings.Join(codesInLiteral(literal), " "); got != want {
			t.Errorf("%s: got %q, want %q", literal, got, want)
		}
	}
}

// Every code in a comment, in a string of a test or in the documentation is defined, on one
// page and once. The page of requirements defines none that is not used.
func TestCodesAreDefined(t *testing.T) {
	const root = "../.."
	defined := map[string]string{} // by code, the page
	for page, row := range definitions {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range row.FindAllStringSubmatch(string(text), -1) {
			if before, twice := defined[match[1]]; twice {
				t.Errorf("%s is defined twice, in %s and %s", match[1], before, page)
			}
			defined[match[1]] = page
		}
	}
	used := map[string]bool{}
	found := codesOf(t, os.DirFS(root))
	for _, place := range slices.Sorted(maps.Keys(found)) {
		for _, code := range found[place] {
			if defined[code] == "" {
				t.Errorf("%s: %s is not defined. %s defines requirements; of anything else, say in words what it is", place, code, requirementsPage)
			}
			if !strings.HasPrefix(place, requirementsPage) {
				used[code] = true
			}
		}
	}
	for _, code := range slices.Sorted(maps.Keys(defined)) {
		if defined[code] == requirementsPage && !used[code] {
			t.Errorf("%s defines %s, which is not used", requirementsPage, code)
		}
	}
}

// codesOf are the codes in all Go files and pages, by place.
func codesOf(t *testing.T, root fs.FS) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	err := fs.WalkDir(root, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		switch {
		case entry.IsDir() && path != "." && (strings.HasPrefix(name, ".") || name == "dist" || name == "testdata" || name == "node_modules"):
			return fs.SkipDir
		case entry.IsDir():
			return nil
		}
		isGo, isPage := strings.HasSuffix(name, ".go"), strings.HasSuffix(name, ".md")
		if !isGo && !isPage {
			return nil
		}
		text, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		if isPage {
			found[path] = codesInLiteral(string(text))
			return nil
		}
		files := token.NewFileSet()
		var tokens scanner.Scanner
		tokens.Init(files.AddFile(path, -1, len(text)), text, nil, scanner.ScanComments)
		for {
			at, kind, literal := tokens.Scan()
			place := files.Position(at).String()
			switch {
			case kind == token.EOF:
				return nil
			case kind == token.COMMENT:
				found[place] = codesIn(literal)
			case kind == token.STRING && strings.HasSuffix(name, "_test.go"):
				found[place] = codesInLiteral(literal)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
