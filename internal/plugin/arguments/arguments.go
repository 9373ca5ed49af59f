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

// Parse makes arguments of words such as id=4711 or tags=["a"].
func Parse(inputSchema json.RawMessage, words []string) (map[string]any, error) {
	d, s, err := read(inputSchema)
	if err != nil {
		return nil, fmt.Errorf("read the tool's schema: %w", err)
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
		schema, ok := s.properties[name]
		if !ok && s.isClosed {
			problems = append(problems, fmt.Errorf("the tool has no argument %s: it takes %s", name, strings.Join(s.names(), ", ")))
			continue
		}
		d.refill()
		typed, err := parse(value, d.alternatives(schema, maxDepth))
		if err != nil {
			problems = append(problems, fmt.Errorf("argument %s: %w", name, err))
		}
		values[name] = typed // also if it is wrong: it is not missing
	}
	return values, errors.Join(append(problems, Missing(inputSchema, values))...)
}

// Missing says which required arguments are not there.
func Missing(inputSchema json.RawMessage, values map[string]any) error {
	_, s, _ := read(inputSchema) // one that cannot be read requires nothing
	var missing []string
	isNamed := map[string]bool{} // the list may be long
	for _, name := range s.required {
		if _, ok := values[name]; !ok && !isNamed[name] {
			missing = append(missing, name)
			isNamed[name] = true
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("required arguments are missing: %s", strings.Join(missing, ", "))
}

// Unknown are the arguments that the schema does not name, in order. A tool may still accept them,
// unless its schema says that it does not. A schema without properties names no arguments, so none is unknown.
func Unknown(inputSchema json.RawMessage, values map[string]any) []string {
	d, s, err := read(inputSchema)
	if err != nil || len(s.properties) == 0 || d.isSpent() {
		return nil
	}
	var unknown []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if _, ok := s.properties[name]; !ok {
			unknown = append(unknown, name)
		}
	}
	return unknown
}

// parse gives a text a type: of several, the first that it can have. A text is a string only if nothing else
// is allowed, or nothing else fits.
func parse(text string, alternatives []alternative) (any, error) {
	decoded, isJSON := decode(text)
	for _, a := range alternatives {
		if isJSON && a.allows(decoded, typesOf(decoded)...) {
			return decoded, nil
		}
	}
	for _, a := range alternatives {
		if a.allows(text, "string") {
			return text, nil
		}
	}
	return nil, wrong(text, alternatives)
}

// wrong says what would have been right.
func wrong(text string, alternatives []alternative) error {
	var values, types []string
	for _, a := range alternatives {
		if a.enum != nil {
			values = append(values, a.enum...)
		} else {
			types = append(types, a.types...)
		}
	}
	var expected []string
	if len(values) > 0 {
		expected = append(expected, "none of ["+strings.Join(values, ",")+"]")
	}
	if len(types) > 0 {
		expected = append(expected, "no "+strings.Join(unique(types), " or "))
	}
	if len(expected) == 0 {
		return fmt.Errorf("%q cannot be right: the tool's schema allows no value", text)
	}
	return fmt.Errorf("%q is %s", text, strings.Join(expected, " and "))
}

func unique(names []string) []string {
	var found []string
	for _, name := range names {
		if !slices.Contains(found, name) {
			found = append(found, name)
		}
	}
	return found
}

// allows says whether a value, which has these types, is right.
func (a alternative) allows(value any, types ...string) bool {
	isType := a.types == nil || slices.ContainsFunc(types, func(name string) bool { return slices.Contains(a.types, name) })
	if !isType || a.enum == nil {
		return isType
	}
	encoded, err := json.Marshal(value)
	return err == nil && slices.Contains(a.enum, string(encoded))
}

// decode reads a text as one value of JSON.
func decode(text string) (value any, ok bool) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber() // every digit counts
	if decoder.Decode(&value) != nil {
		return nil, false
	}
	_, err := decoder.Token()
	return value, errors.Is(err, io.EOF) // nothing follows
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
