package arguments

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// A schema comes from a server, so its references may lead in circles, or fan out without end, and its lists
// may be of any length. What lies beyond these bounds is taken to allow everything: the server itself has the
// last word.
const (
	maxDepth        = 32
	maxSteps        = 1000      // for one argument
	maxWork         = 256 << 10 // for one argument
	maxAlternatives = 100
	maxTypes        = 20
	maxValues       = 1000
)

// document is a schema with everything that its references lead to.
type document struct {
	root  any
	steps int // schemas that the command may still look at
	work  int // bytes of names and values that it may still read or compare
}

// refill gives the command the steps and the work for one argument.
func (d *document) refill() { d.steps, d.work = maxSteps, maxWork }

// shape is what a schema says of the arguments as a whole.
type shape struct {
	properties map[string]any // schemas
	required   []string
	isClosed   bool // the tool takes no arguments but those that it names
}

// read reads the schema of a tool.
func read(inputSchema json.RawMessage) (*document, shape, error) {
	d := &document{}
	d.refill()
	if len(inputSchema) == 0 {
		return d, shape{}, nil
	}
	if err := json.Unmarshal(inputSchema, &d.root); err != nil {
		return nil, shape{}, err
	}
	object, _ := d.root.(map[string]any)
	if _, ok := object["properties"].(map[string]any); !ok && object["properties"] != nil {
		return nil, shape{}, errors.New("its properties are no object")
	}
	s := d.shapeOf(d.root, maxDepth)
	s.isClosed = s.isClosed && !d.isSpent() // there may be names that the command has not seen
	return d, s, nil
}

func (s shape) names() []string {
	if len(s.properties) == 0 {
		return []string{"none"}
	}
	return slices.Sorted(maps.Keys(s.properties))
}

// shapeOf puts together what a schema says itself, and by its parts.
func (d *document) shapeOf(schema any, depth int) shape {
	object, ok := schema.(map[string]any)
	if !d.step(depth) || !ok {
		return shape{}
	}
	own, _ := object["properties"].(map[string]any)
	s := shape{properties: maps.Clone(own), required: texts(object["required"]), isClosed: object["additionalProperties"] == false}
	d.pay(slices.Collect(maps.Keys(own)))
	d.pay(s.required)
	for _, part := range d.parts(object) {
		if d.isSpent() {
			break
		}
		other := d.shapeOf(part, depth-1)
		s.properties = combine(s.properties, other.properties, "allOf")
		s.required = append(s.required, other.required...)
		s.isClosed = s.isClosed || other.isClosed
	}
	for _, choices := range choicesOf(object) {
		var either map[string]any // what one choice requires, another may not
		for _, choice := range choices {
			if d.isSpent() {
				break
			}
			either = combine(either, d.shapeOf(choice, depth-1).properties, "anyOf")
		}
		s.properties = combine(s.properties, either, "allOf")
	}
	return s
}

// combine has the properties of both. A property of both has a schema with a keyword that says how the two
// belong together.
func combine(a, b map[string]any, keyword string) map[string]any {
	if a == nil {
		return maps.Clone(b)
	}
	for name, schema := range b {
		if other, ok := a[name]; ok {
			schema = map[string]any{keyword: []any{other, schema}}
		}
		a[name] = schema
	}
	return a
}

// alternative is one way in which a value can be right.
type alternative struct {
	types []string // nil allows all
	enum  []string // values as JSON; nil allows all
}

// alternatives are all ways in which a value of a schema can be right.
func (d *document) alternatives(schema any, depth int) []alternative {
	if schema == false {
		return nil
	}
	object, ok := schema.(map[string]any)
	if !d.step(depth) || !ok {
		return []alternative{{}}
	}
	found := []alternative{d.ownAlternative(object)}
	for _, part := range d.parts(object) {
		if d.isSpent() {
			break
		}
		found = d.both(found, d.alternatives(part, depth-1))
	}
	for _, choices := range choicesOf(object) {
		found = d.both(found, d.either(choices, depth))
	}
	return found
}

// either are the ways in which a value can be right by one of several schemas.
func (d *document) either(choices []any, depth int) []alternative {
	var found []alternative
	for _, choice := range choices {
		found = append(found, d.alternatives(choice, depth-1)...)
		if d.isSpent() || len(found) > maxAlternatives {
			return []alternative{{}}
		}
	}
	return found
}

func (d *document) ownAlternative(object map[string]any) alternative {
	var own alternative
	if kind, ok := object["type"].(string); ok {
		own.types = []string{kind}
	} else if kinds, ok := object["type"].([]any); ok && len(kinds) <= maxTypes {
		own.types = unique(texts(kinds))
	}
	if values, ok := object["enum"].([]any); ok && len(values) > 0 {
		own.enum = d.encoded(values)
	}
	if value, ok := object["const"]; ok {
		own.enum = d.encoded([]any{value})
	}
	return own
}

// encoded are values as JSON, in which those of different types of Go can be compared. It is nil, which
// allows all, if there are too many.
func (d *document) encoded(values []any) []string {
	if len(values) > maxValues {
		return nil
	}
	all := make([]string, 0, len(values))
	for _, value := range values {
		if d.isSpent() {
			return nil
		}
		encoded, err := json.Marshal(value)
		if err != nil {
			return nil
		}
		all = append(all, string(encoded))
		d.pay(all[len(all)-1:])
	}
	return all
}

// both are the ways in which a value can be right by two schemas at once. If that is too much work, they are
// those of the first schema: the value must be right by that in any case.
func (d *document) both(a, b []alternative) []alternative {
	if len(a)*len(b) > maxAlternatives {
		return a
	}
	var found []alternative
	for _, one := range a {
		for _, other := range b {
			if d.isSpent() {
				return a
			}
			types, isType := commonTypes(one.types, other.types)
			enum, isValue := d.commonValues(one.enum, other.enum)
			if isType && isValue {
				found = append(found, alternative{types, enum})
			}
		}
	}
	return found
}

// commonTypes are the types that two lists have in common. Every integer is a number.
func commonTypes(a, b []string) (types []string, ok bool) {
	switch {
	case a == nil:
		return b, true
	case b == nil:
		return a, true
	}
	for _, one := range a {
		for _, other := range b {
			switch {
			case one == other, one == "integer" && other == "number":
				types = append(types, one)
			case one == "number" && other == "integer":
				types = append(types, other)
			}
		}
	}
	return unique(types), len(types) > 0
}

func (d *document) commonValues(a, b []string) (values []string, ok bool) {
	switch {
	case a == nil:
		return b, true
	case b == nil:
		return a, true
	}
	d.pay(a)
	d.pay(b)
	isInB := make(map[string]bool, len(b))
	for _, value := range b {
		isInB[value] = true
	}
	for _, value := range a {
		if isInB[value] {
			values = append(values, value)
		}
	}
	return values, len(values) > 0
}

// step says whether there may be another schema to look at.
func (d *document) step(depth int) bool {
	d.steps--
	return depth > 0 && !d.isSpent()
}

// pay counts names or values that the command reads or compares.
func (d *document) pay(names []string) {
	for _, name := range names {
		d.work -= len(name) + 1
	}
}

// isSpent says that the schema asks for too much work.
func (d *document) isSpent() bool { return d.steps < 0 || d.work < 0 }

// parts are other schemas that a value of a schema must also be right by.
func (d *document) parts(object map[string]any) []any {
	all, _ := object["allOf"].([]any)
	all = all[:min(len(all), maxSteps)]
	if reference, ok := object["$ref"].(string); ok {
		return append([]any{d.find(reference)}, all...)
	}
	return all
}

// choicesOf are lists of schemas; a value must be right by one of each.
func choicesOf(object map[string]any) [][]any {
	var all [][]any
	for _, keyword := range []string{"anyOf", "oneOf"} {
		if choices, ok := object[keyword].([]any); ok && len(choices) > 0 {
			all = append(all, choices)
		}
	}
	return all
}

// find is the schema that a reference within the document leads to, or one that allows everything.
func (d *document) find(reference string) any {
	pointer, isLocal := strings.CutPrefix(reference, "#")
	if !isLocal {
		return true // nothing is fetched for a schema
	}
	if unescaped, err := url.PathUnescape(pointer); err == nil {
		pointer = unescaped
	}
	if pointer == "" {
		return d.root
	}
	if strings.Count(pointer, "/") > maxDepth {
		return true
	}
	found := d.root
	for name := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		object, ok := found.(map[string]any)
		if !ok {
			return true
		}
		found = object[strings.NewReplacer("~1", "/", "~0", "~").Replace(name)]
	}
	return found
}

// texts is a list of texts.
func texts(value any) []string {
	list, _ := value.([]any)
	var all []string
	for _, one := range list {
		all = append(all, fmt.Sprint(one))
	}
	return all
}
