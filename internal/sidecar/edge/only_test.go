package edge

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// Callers are made here and nowhere else. That nothing else reads a client's body, lint
// says (forbidigo).
func TestCallersAreMadeHereOnly(t *testing.T) {
	const root = ".."
	files, made := 0, 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files++
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(parsed, func(node ast.Node) bool {
			literal, ok := node.(*ast.CompositeLit)
			if !ok {
				return true
			}
			name, ok := literal.Type.(*ast.SelectorExpr)
			if !ok || name.Sel.Name != "Caller" {
				return true
			}
			if made++; filepath.Dir(path) != filepath.Join(root, "edge") {
				t.Errorf("%s makes a caller", path)
			}
			return true
		})
		return nil
	})
	if err != nil || files < 100 || made == 0 {
		t.Errorf("%d files make %d callers: %v", files, made, err)
	}
}
