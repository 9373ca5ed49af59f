package mcpprobe

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// paramHeader is the member of a schema that asks for an argument to be mirrored in
// an HTTP header.
const paramHeader = "x-mcp-header"

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

// checkParamHeaders says why the header annotations of a tool's input schema are not
// valid. Clients of 2026-07-28 must not use such a tool.
func checkParamHeaders(schema json.RawMessage) error {
	if !strings.Contains(string(schema), paramHeader) {
		return nil
	}
	var root any
	if err := json.Unmarshal(schema, &root); err != nil {
		return errNoShape
	}
	walk := headerWalk{seen: map[string]bool{}}
	return walk.schema(root, true)
}

// headerWalk goes through a schema with the header names that it has met.
type headerWalk struct{ seen map[string]bool }

// schema checks one schema. A header can be filled only if its property is reached
// through the names of properties alone.
func (w headerWalk) schema(value any, reached bool) error {
	object, ok := value.(map[string]any)
	if !ok {
		return nil
	}
	if name, ok := object[paramHeader]; ok {
		if err := w.annotation(object["type"], name, reached); err != nil {
			return err
		}
	}
	if err := w.named(object["properties"], reached); err != nil {
		return err
	}
	for _, keyword := range oneSchema {
		if err := w.schema(object[keyword], false); err != nil {
			return err
		}
	}
	for _, keyword := range manySchemas {
		if err := w.array(object[keyword]); err != nil {
			return err
		}
	}
	for _, keyword := range namedSchemas {
		if err := w.named(object[keyword], false); err != nil {
			return err
		}
	}
	return nil
}

func (w headerWalk) array(value any) error {
	schemas, _ := value.([]any)
	for _, schema := range schemas {
		if err := w.schema(schema, false); err != nil {
			return err
		}
	}
	return nil
}

// named goes by the order of names: the reason that is found must not depend on
// chance, as it is part of the catalogue.
func (w headerWalk) named(value any, reached bool) error {
	schemas, _ := value.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(schemas)) {
		if err := w.schema(schemas[name], reached); err != nil {
			return err
		}
	}
	return nil
}

func (w headerWalk) annotation(kind, value any, reached bool) error {
	name, isText := value.(string)
	switch {
	case !reached:
		return errors.New(paramHeader + " stands where no argument can be found for it")
	case kind != "string" && kind != "integer" && kind != "boolean":
		return errors.New(paramHeader + " is on something that is neither string, integer nor boolean")
	case !isText || !isToken(name):
		return errors.New(paramHeader + " is not the name of a header")
	case w.seen[strings.ToLower(name)]:
		return fmt.Errorf("%s %q stands twice", paramHeader, clean(name))
	}
	w.seen[strings.ToLower(name)] = true
	return nil
}

// isToken says whether text is a token in the sense of RFC 9110.
func isToken(text string) bool {
	for _, c := range []byte(text) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		digit := '0' <= c && c <= '9'
		if !letter && !digit && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return text != ""
}
