package paramheader

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

const (
	// prefix is what the names of all these headers begin with.
	prefix = "Mcp-Param-"
	// maxDepth bounds how deep an argument with a header can lie. The protocol has no
	// bound, but a server could have us keep a long path for each of many arguments.
	maxDepth = 32
)

// Where a schema holds other schemas. What stands under other keywords, such as
// "default", is data and may look like anything.
var (
	oneSchema = []string{
		"additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames", "then",
		"unevaluatedItems", "unevaluatedProperties",
	}
	manySchemas  = []string{"allOf", "anyOf", "oneOf", "prefixItems", "items"}
	namedSchemas = []string{"$defs", "definitions", "dependentSchemas", "patternProperties"}
)

// Why an annotation is invalid. The words get into catalogs.
var (
	errPlace = errors.New(Annotation + " stands where no argument can be found for it")
	errKind  = errors.New(Annotation + " is on something that is neither string, integer nor boolean")
	errName  = errors.New(Annotation + " is not the name of a header")
	errDepth = errors.New(Annotation + " lies too deep")
)

// walk goes through a schema, with what it has found.
type walk struct {
	found []Param
	seen  map[string]bool // headers
}

// schema looks at one schema. A header can be filled only if its property is reached
// through the names of properties alone: what items, references or conditions say is not
// known before the arguments are.
func (w *walk) schema(value any, path []string, reached bool) error {
	object, ok := value.(map[string]any)
	if !ok {
		return nil // true is a schema, too
	}
	if name, ok := object[Annotation]; ok {
		if !reached || len(path) == 0 { // the whole is no argument
			return errPlace
		}
		if err := w.annotation(object["type"], name, path); err != nil {
			return err
		}
	}
	if err := w.named(object["properties"], path, reached); err != nil {
		return err
	}
	return w.unreached(object)
}

// unreached looks at what can only have annotations that are invalid.
func (w *walk) unreached(object map[string]any) error {
	for _, keyword := range oneSchema {
		if err := w.schema(object[keyword], nil, false); err != nil {
			return err
		}
	}
	for _, keyword := range manySchemas {
		schemas, _ := object[keyword].([]any)
		for _, schema := range schemas {
			if err := w.schema(schema, nil, false); err != nil {
				return err
			}
		}
	}
	for _, keyword := range namedSchemas {
		if err := w.named(object[keyword], nil, false); err != nil {
			return err
		}
	}
	return nil
}

// named goes by the order of names: what is found must not depend on chance, as a
// reason gets into catalogs.
func (w *walk) named(value any, path []string, reached bool) error {
	schemas, _ := value.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(schemas)) {
		if err := w.schema(schemas[name], append(path, name), reached); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) annotation(kind, value any, path []string) error {
	name, isText := value.(string)
	header := http.CanonicalHeaderKey(prefix + name)
	switch {
	case kind != "string" && kind != "integer" && kind != "boolean":
		return errKind
	case !isText || !isToken(name):
		return errName
	case w.seen[header]:
		return fmt.Errorf("%s %q stands twice", Annotation, name)
	case len(path) > maxDepth:
		return errDepth
	}
	w.seen[header] = true
	w.found = append(w.found, Param{slices.Clone(path), header})
	return nil
}

// isToken says whether a text can be part of a header's name (RFC 9110).
func isToken(text string) bool {
	for _, c := range []byte(text) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		digit := '0' <= c && c <= '9'
		if !letter && !digit && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return text != ""
}
