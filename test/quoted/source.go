package quoted

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Source is every text that programs write: the string literals of their Go files, cut where a value goes.
type Source struct {
	texts            []string
	known            map[string]bool
	beginsSo, endsSo map[string][]string // texts by their first and last bytes
}

// verb is a verb of package fmt.
var verb = regexp.MustCompile(`%[-+# 0]*[0-9]*(\.[0-9]+)?[a-zA-Z]|%%`)

// Read parses all Go files below some directories, without tests.
func Read(directories ...string) (*Source, error) {
	s := &Source{known: map[string]bool{}, beginsSo: map[string][]string{}, endsSo: map[string][]string{}}
	for _, directory := range directories {
		err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && entry.Name() == "testdata":
				return fs.SkipDir
			case entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			return s.readFile(path)
		})
		if err != nil {
			return nil, fmt.Errorf("read source in %s: %w", directory, err)
		}
	}
	return s, nil
}

func (s *Source) readFile(path string) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parse %s: %w", path, err)
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.ImportSpec, *ast.Field: // paths and tags are no messages
			return false
		case *ast.BasicLit:
			if text, err := strconv.Unquote(node.Value); err == nil && node.Kind == token.STRING {
				s.add(text)
			}
		}
		return true
	})
	return nil
}

func (s *Source) add(text string) {
	for _, part := range verb.Split(text, -1) {
		if part != "" && !s.known[part] {
			s.known[part] = true
			s.texts = append(s.texts, part)
			if at := len(part) - leastPiece; at >= 0 {
				s.beginsSo[part[:leastPiece]] = append(s.beginsSo[part[:leastPiece]], part)
				s.endsSo[part[at:]] = append(s.endsSo[part[at:]], part)
			}
		}
	}
}

// Missing returns what of a text is in no literal, or nothing if literals make up the text. Where a value goes,
// the text has an ellipsis.
func (s *Source) Missing(text string) string {
	for fragment := range strings.SplitSeq(text, Ellipsis) {
		if strings.TrimSpace(fragment) != "" && !s.has(fragment) {
			return fragment
		}
	}
	return ""
}

// word matches a literal that is a word alone.
var word = regexp.MustCompile(`^[A-Za-z]+ ?$`)

// isShortWord reports whether a piece is a word. Words are in every sentence, so two in a row prove nothing.
func isShortWord(piece string) bool { return len(piece) < leastPiece && word.MatchString(piece) }

// leastPiece is the least length of a piece of a literal beside another literal. Shorter ones are found by chance.
const leastPiece = 12

// has reports whether a fragment is a part of a literal, or several literals in a row: the end of one, others as
// a whole, and the beginning of the last.
func (s *Source) has(fragment string) bool {
	if slices.ContainsFunc(s.texts, func(text string) bool { return strings.Contains(text, fragment) }) {
		return true
	}
	// The first i bytes are the end of a literal, and perhaps others, of which the last is a word, or is none.
	byWord, byOther := make([]bool, len(fragment)+1), make([]bool, len(fragment)+1)
	byOther[0] = true
	for i := leastPiece; i <= len(fragment); i++ {
		byOther[i] = s.ends(fragment[:i])
	}
	for i := range fragment {
		if !byWord[i] && !byOther[i] {
			continue
		}
		if s.begins(fragment[i:]) {
			return true
		}
		for j := i + 1; j <= len(fragment); j++ {
			switch piece := fragment[i:j]; {
			case !s.known[piece]:
			case !isShortWord(piece):
				byOther[j] = true
			case byOther[i]:
				byWord[j] = true
			}
		}
	}
	return byWord[len(fragment)] || byOther[len(fragment)]
}

// begins reports whether a literal begins with a text that is long enough to tell.
func (s *Source) begins(text string) bool {
	return len(text) >= leastPiece && slices.ContainsFunc(s.beginsSo[text[:leastPiece]], func(literal string) bool { return strings.HasPrefix(literal, text) })
}

// ends reports the same of its end.
func (s *Source) ends(text string) bool {
	at := len(text) - leastPiece
	return at >= 0 && slices.ContainsFunc(s.endsSo[text[at:]], func(literal string) bool { return strings.HasSuffix(literal, text) })
}
