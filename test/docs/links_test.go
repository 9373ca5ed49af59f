package docs

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

const repository = "../.."

// Every block of commands runs in CI (make test-docs), or its page says why not.
func TestEveryBlockRunsOrSaysWhyNot(t *testing.T) {
	for _, name := range Executed {
		page, err := ReadPage(repository, name)
		if err != nil {
			t.Error(err)
			continue
		}
		run := 0
		for i := range page.Blocks {
			steps, reason, err := page.Blocks[i].Steps()
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if reason != "" {
				t.Logf("%s:%d does not run: %s", name, page.Blocks[i].Line, reason)
			}
			run += len(steps)
		}
		if run == 0 {
			t.Errorf("%s has nothing to run", name)
		}
	}
}

// pages are all pages of the documentation, by their path.
func pages(t *testing.T) map[string]*Page {
	t.Helper()
	found := map[string]*Page{}
	read := func(name string) {
		page, err := ReadPage(repository, filepath.ToSlash(name))
		if err != nil {
			t.Error(err)
			return
		}
		found[page.Path] = page
	}
	top, err := filepath.Glob(filepath.Join(repository, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range top {
		read(filepath.Base(name))
	}
	if err := fs.WalkDir(os.DirFS(repository), "docs", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && path.Ext(name) == ".md" {
			read(name)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

func TestLinksLeadSomewhere(t *testing.T) {
	all := pages(t)
	checked := 0
	for _, page := range all {
		for _, link := range page.Links {
			checked++
			if err := follow(all, page, link.Target); err != nil {
				t.Errorf("%s:%d: link to %s: %v", page.Path, link.Line, link.Target, err)
			}
		}
	}
	if checked < 100 {
		t.Errorf("only %d links were found", checked)
	}
}

// follow looks for what a link of a page leads to. Other sites are not asked.
func follow(all map[string]*Page, from *Page, target string) error {
	parsed, err := url.Parse(target)
	if err != nil {
		return err
	}
	if parsed.Scheme != "" {
		return nil
	}
	to := from.Path
	if parsed.Path != "" {
		to = path.Join(path.Dir(from.Path), parsed.Path)
	}
	if strings.HasPrefix(to, "../") || path.IsAbs(parsed.Path) {
		return errors.New("it leads out of the repository")
	}
	if _, err := os.Stat(filepath.Join(repository, filepath.FromSlash(to))); err != nil {
		return errors.New("there is no such file")
	}
	if page := all[to]; parsed.Fragment != "" && page != nil && !page.Anchors[parsed.Fragment] {
		return fmt.Errorf("%s has no heading with this anchor", to)
	}
	return nil
}

func TestFollow(t *testing.T) {
	here := &Page{Path: "docs/adapter.md", Anchors: map[string]bool{"here": true}}
	all := map[string]*Page{here.Path: here, "README.md": {Path: "README.md", Anchors: map[string]bool{}}}
	for target, want := range map[string]string{
		"#here":                   "",
		"#there":                  "no heading",
		"protocol.md":             "",
		"missing.md":              "no such file",
		"../README.md#quick":      "no heading",
		"decisions":               "",
		"../../x.md":              "out of the repository",
		"/etc/passwd":             "out of the repository",
		"https://example.com/x#y": "",
	} {
		err := follow(all, here, target)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", target, err, want)
		}
	}
}
