package config

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-mcp/slipway/test/doctable"
)

var update = flag.Bool("update", false, "write the reference into the documentation")

// The reference has every field of the file, with the comment in the source, and the default that Default returns.
func TestReferenceInTheDocumentation(t *testing.T) {
	source := readSource(t)
	var page strings.Builder
	page.WriteString("| Field | Type | Default | Meaning |\n|---|---|---|---|\n")
	source.fields(t, &page, reflect.ValueOf(Default()), "")
	if rows := strings.Count(page.String(), "\n") - 2; rows < 30 {
		t.Errorf("the reference has %d fields: the walk no longer reaches the whole file", rows)
	}
	const file, command = "../../docs/reference/configuration.md", "go test ./internal/config -update"
	doctable.Check(t, file, "fields", page.String(), command, *update)

	page.Reset()
	page.WriteString("| Variable | Meaning |\n|---|---|\n")
	for _, c := range source.constants {
		if name, isVariable := strings.CutSuffix(c.name, "Variable"); isVariable {
			text := strings.TrimPrefix(c.doc, name+"Variable is the environment variable with ")
			fmt.Fprintf(&page, "| `%s` | %s |\n", c.value, doctable.Cell(strings.ToUpper(text[:1])+text[1:]))
		}
	}
	doctable.Check(t, file, "environment", page.String(), command, *update)
}

// source has the comments of the package.
type source struct {
	docs      map[string]string // by type and JSON name
	constants []constant
}

type constant struct{ typ, name, value, doc string }

func readSource(t *testing.T) source {
	t.Helper()
	s := source{docs: map[string]string{}}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.TypeSpec:
				s.addFields(node)
			case *ast.GenDecl:
				s.addConstants(node)
			}
			return true
		})
	}
	return s
}

func (s *source) addFields(spec *ast.TypeSpec) {
	structure, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, field := range structure.Fields.List {
		if field.Tag == nil {
			continue
		}
		tag := reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("json")
		s.docs[spec.Name.Name+"."+tag] = field.Doc.Text()
	}
}

func (s *source) addConstants(declaration *ast.GenDecl) {
	if declaration.Tok != token.CONST {
		return
	}
	for _, spec := range declaration.Specs {
		value, ok := spec.(*ast.ValueSpec)
		if !ok || len(value.Values) != 1 {
			continue
		}
		literal, ok := value.Values[0].(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			continue
		}
		c := constant{name: value.Names[0].Name, value: strings.Trim(literal.Value, `"`), doc: value.Doc.Text()}
		if c.doc == "" {
			c.doc = declaration.Doc.Text()
		}
		if typ, ok := value.Type.(*ast.Ident); ok {
			c.typ = typ.Name
		}
		s.constants = append(s.constants, c)
	}
}

// fields writes a row for each field of a structure. A structure of this package is a part of the path.
func (s *source) fields(t *testing.T, page *strings.Builder, value reflect.Value, path string) {
	t.Helper()
	for field, member := range value.Fields() {
		name := path + field.Tag.Get("json")
		doc := s.docs[value.Type().Name()+"."+field.Tag.Get("json")]
		if doc == "" {
			t.Errorf("%s has no comment", name)
		}
		if member.Kind() == reflect.Struct && member.Type().PkgPath() == value.Type().PkgPath() {
			s.fields(t, page, member, name+".")
			continue
		}
		fmt.Fprintf(page, "| <a id=\"%[1]s\"></a>`%[1]s` | %[2]s | %[3]s | %[4]s |\n", name, s.typeOf(t, member.Type()), defaultOf(member), strings.ReplaceAll(doctable.Cell(doc), "*", `\*`))
	}
}

func (s *source) typeOf(t *testing.T, typ reflect.Type) string {
	t.Helper()
	switch {
	case typ == reflect.TypeFor[Duration]():
		return "duration"
	case typ.Kind() == reflect.Bool:
		return "boolean"
	case typ.Kind() == reflect.Int || typ.Kind() == reflect.Int32:
		return "integer"
	case typ.Kind() == reflect.String:
		var values []string
		for _, c := range s.constants {
			if c.typ == typ.Name() && typ.PkgPath() != "" {
				values = append(values, "`"+c.value+"`")
			}
		}
		if len(values) > 0 {
			return strings.Join(values, ", ")
		}
		return "string"
	case typ.Kind() == reflect.Slice:
		return "list of strings"
	case typ.Name() == "ResourceList":
		return "map of quantities"
	case typ.Name() == "AdapterLimits":
		return "[object](api.md#spec.adapter.limits)"
	case slices.Contains([]string{"LabelSelector", "ResourceRequirements"}, typ.Name()):
		return "Kubernetes `" + typ.Name() + "`"
	}
	t.Errorf("a field is %s, which the reference cannot show", typ)
	return ""
}

func defaultOf(value reflect.Value) string {
	if duration, ok := reflect.TypeAssert[Duration](value); ok {
		return "`" + time.Duration(duration).String() + "`"
	}
	if value.IsZero() && value.Kind() != reflect.Bool && value.Kind() != reflect.Int {
		return ""
	}
	return fmt.Sprintf("`%v`", value.Interface())
}
