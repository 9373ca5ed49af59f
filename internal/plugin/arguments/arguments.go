// Package arguments makes the arguments of a tool of the words on a command line, with the types that
// the tool's schema has.
package arguments

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// schema is what is of interest in the schema of a tool.
type schema struct {
	Properties           map[string]property `json:"properties"`
	Required             []string            `json:"required"`
	AdditionalProperties json.RawMessage     `json:"additionalProperties"`
}

type property struct {
	Type  any               `json:"type"` // a name, or a list of names
	Enum  []any             `json:"enum"`
	AnyOf []json.RawMessage `json:"anyOf"`
	OneOf []json.RawMessage `json:"oneOf"`
}

// Parse makes arguments of words such as id=4711 or tags=["a"].
func Parse(inputSchema json.RawMessage, words []string) (map[string]any, error) {
	var s schema
	if len(inputSchema) > 0 {
		if err := json.Unmarshal(inputSchema, &s); err != nil {
			return nil, fmt.Errorf("read the tool's schema: %w", err)
		}
	}
	values := map[string]any{}
	var problems []error
	for _, word := range words {
		name, value, ok := strings.Cut(word, "=")
		if !ok || name == "" {
			problems = append(problems, fmt.Errorf("%q is no argument: write it as name=value", word))
			continue
		}
		if _, twice := values[name]; twice {
			problems = append(problems, fmt.Errorf("argument %s is there twice", name))
			continue
		}
		known, ok := s.Properties[name]
		if !ok && s.isClosed() {
			problems = append(problems, fmt.Errorf("the tool has no argument %s: it takes %s", name, strings.Join(s.names(), ", ")))
			continue
		}
		typed, err := known.parse(value)
		if err != nil {
			problems = append(problems, fmt.Errorf("argument %s: %w", name, err))
		}
		values[name] = typed // also if it is wrong: it is not missing
	}
	return values, errors.Join(append(problems, Missing(inputSchema, values))...)
}

// Missing says which required arguments are not there.
func Missing(inputSchema json.RawMessage, values map[string]any) error {
	var s schema
	_ = json.Unmarshal(inputSchema, &s) // one that cannot be read requires nothing
	var missing []string
	for _, name := range s.Required {
		if _, ok := values[name]; !ok {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("required arguments are missing: %s", strings.Join(missing, ", "))
}

// isClosed says whether the tool takes no arguments but those that it names.
func (s schema) isClosed() bool { return string(s.AdditionalProperties) == "false" }

func (s schema) names() []string {
	if len(s.Properties) == 0 {
		return []string{"none"}
	}
	return slices.Sorted(maps.Keys(s.Properties))
}

// parse gives a text the type of the property: of several, the first that it can have. A text is a
// string only if nothing else is allowed, or nothing else fits.
func (p property) parse(text string) (any, error) {
	types := p.types()
	for _, name := range types {
		if value, ok := as(name, text); ok && p.allows(value) {
			return value, nil
		}
	}
	if len(p.Enum) > 0 {
		encoded, _ := json.Marshal(p.Enum) // it was decoded from JSON
		return nil, fmt.Errorf("%q is none of %s", text, encoded)
	}
	return nil, fmt.Errorf("%q is no %s", text, strings.Join(types, " or "))
}

// types are the names of the types that a value may have, strings last.
func (p property) types() []string {
	var names []string
	add := func(kind any) {
		switch kind := kind.(type) {
		case string:
			names = append(names, kind)
		case []any:
			for _, name := range kind {
				names = append(names, fmt.Sprint(name))
			}
		}
	}
	add(p.Type)
	for _, alternative := range slices.Concat(p.AnyOf, p.OneOf) {
		var other property
		if json.Unmarshal(alternative, &other) == nil {
			add(other.Type)
		}
	}
	if len(names) == 0 {
		names = []string{"any", "string"}
	}
	slices.SortStableFunc(names, func(a, b string) int { return last(a) - last(b) })
	return slices.Compact(names)
}

func last(name string) int {
	if name == "string" {
		return 1
	}
	return 0
}

// as reads a text as a value of a type.
func as(name, text string) (any, bool) {
	if name == "string" {
		return text, true
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber() // every digit counts
	var value any
	if decoder.Decode(&value) != nil {
		return nil, false
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, false // something follows
	}
	return value, name == "any" || slices.Contains(typesOf(value), name)
}

// typesOf are the names of the types that a value of JSON has. A string is none of them: it is a text as it
// stands, without quotes.
func typesOf(value any) []string {
	switch value := value.(type) {
	case json.Number:
		if strings.ContainsAny(value.String(), ".eE") {
			return []string{"number"}
		}
		return []string{"number", "integer"}
	case bool:
		return []string{"boolean"}
	case []any:
		return []string{"array"}
	case map[string]any:
		return []string{"object"}
	case nil:
		return []string{"null"}
	default:
		return nil
	}
}

// allows says whether the property has a list of values, and this is not among them.
func (p property) allows(value any) bool {
	if len(p.Enum) == 0 {
		return true
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(p.Enum, func(one any) bool {
		allowed, err := json.Marshal(one)
		return err == nil && string(allowed) == string(encoded)
	})
}
