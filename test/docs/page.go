// Package docs runs what the documentation tells users to type, and follows its links.
//
// Every block of commands (```sh or ```console) of a page in Executed runs in CI as the page has it, in the order
// of the page. A comment in front of a block changes that:
//
//	<!-- skip: REASON -->     the block does not run; the test prints the reason
//	<!-- run: background -->  the block goes on running until the end of the page
//
// In a console block, a line that begins with "$ " is a command, lines that begin with "> " continue it, and the lines
// after it are its output. Match says how the output is compared.
package docs

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
)

// Executed are the pages whose commands run, in the order in which a reader comes to them.
var Executed = []string{"README.md", "docs/quick-start.md", "docs/first-hour.md"}

// Page is what the tests need of a page.
type Page struct {
	Path    string // from the root of the repository, with slashes
	Blocks  []Block
	Links   []Link
	Anchors map[string]bool
}

// Block is a fenced block.
type Block struct {
	Line     int // of the first line of its text
	Language string
	Text     string
	Mark     string // of the comment in front of it, such as "skip: it needs a browser"
}

// Link is a link, or a picture.
type Link struct {
	Line   int
	Target string
}

var (
	fence      = regexp.MustCompile("^( *)(`{3,}|~{3,})([A-Za-z0-9]*)")
	mark       = regexp.MustCompile(`^\s*<!-- ((?:run|skip)\b.*?) -->\s*$`)
	heading    = regexp.MustCompile(`^#{1,6} +(.*?)#* *$`)
	codeSpan   = regexp.MustCompile("`+[^`]*`+")
	inlineLink = regexp.MustCompile(`\]\(\s*<?([^()<>\s]+)>?(?:\s+"[^"]*")?\s*\)`)
	namedLink  = regexp.MustCompile(`^\[[^\]^]+\]:\s*(\S+)`)
	htmlLink   = regexp.MustCompile(`<(?:a|img|source)\b[^>]*\b(?:href|src|srcset)="([^"]+)"`)
	htmlAnchor = regexp.MustCompile(`<a\b[^>]*\b(?:id|name)="([^"]+)"`)
)

// ReadPage reads a page of the repository at root.
func ReadPage(root, path string) (*Page, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
	if err != nil {
		return nil, fmt.Errorf("read page: %w", err)
	}
	page, err := ParsePage(path, text)
	if err != nil {
		return nil, fmt.Errorf("read page: %w", err)
	}
	return page, nil
}

// ParsePage finds the blocks, links and anchors of a page.
func ParsePage(path string, text []byte) (*Page, error) {
	p := &parsing{page: &Page{Path: path, Anchors: map[string]bool{}}, slugs: map[string]int{}}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		p.line++
		if err := p.add(lines.Text()); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, p.line, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if p.block != nil {
		return nil, fmt.Errorf("%s:%d: the block does not end", path, p.block.Line-1)
	}
	if p.mark != "" {
		return nil, fmt.Errorf("%s: no block follows <!-- %s -->", path, p.mark)
	}
	return p.page, nil
}

// parsing is how far a page has been read.
type parsing struct {
	page  *Page
	line  int
	mark  string
	slugs map[string]int // how often each was made

	block  *Block // that has begun
	indent int
	end    string
	lines  []string
}

func (p *parsing) add(line string) error {
	if p.block != nil {
		p.addToBlock(line)
		return nil
	}
	if found := fence.FindStringSubmatch(line); found != nil {
		p.block = &Block{Line: p.line + 1, Language: found[3], Mark: p.mark}
		p.indent, p.end, p.mark = len(found[1]), found[2], ""
		return nil
	}
	if strings.TrimSpace(line) == "" {
		return nil
	}
	if p.mark != "" {
		return fmt.Errorf("no block follows <!-- %s -->", p.mark)
	}
	if found := mark.FindStringSubmatch(line); found != nil {
		p.mark = found[1]
		return nil
	}
	p.addText(line)
	return nil
}

func (p *parsing) addToBlock(line string) {
	if trimmed := strings.TrimSpace(line); strings.HasPrefix(trimmed, p.end) && strings.Trim(trimmed, p.end[:1]) == "" {
		p.block.Text = strings.Join(p.lines, "\n")
		p.page.Blocks = append(p.page.Blocks, *p.block)
		p.block, p.lines = nil, nil
		return
	}
	spaces := len(line) - len(strings.TrimLeft(line, " "))
	p.lines = append(p.lines, line[min(spaces, p.indent):])
}

func (p *parsing) addText(line string) {
	if found := heading.FindStringSubmatch(line); found != nil {
		p.page.Anchors[p.slug(found[1])] = true
	}
	for _, found := range htmlAnchor.FindAllStringSubmatch(line, -1) {
		p.page.Anchors[found[1]] = true
	}
	line = codeSpan.ReplaceAllString(line, "")
	for _, form := range []*regexp.Regexp{inlineLink, namedLink, htmlLink} {
		for _, found := range form.FindAllStringSubmatch(line, -1) {
			p.page.Links = append(p.page.Links, Link{Line: p.line, Target: found[1]})
		}
	}
}

var linkText = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)

// slug is the anchor that GitHub gives a heading.
func (p *parsing) slug(title string) string {
	title = linkText.ReplaceAllString(title, "$1")
	slug := strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		case r == ' ':
			return '-'
		default:
			return -1
		}
	}, strings.TrimSpace(title))
	p.slugs[slug]++
	if again := p.slugs[slug] - 1; again > 0 {
		return fmt.Sprintf("%s-%d", slug, again)
	}
	return slug
}
