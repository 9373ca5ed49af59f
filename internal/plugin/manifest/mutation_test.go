package manifest

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// mutants take the place of each value, one at a time.
var mutants = map[string]any{
	"nothing":     "",
	"long":        strings.Repeat("a", 40_000),
	"odd":         "a b/:$(X)\n",
	"negative":    -1,
	"large":       70_000,
	"huge":        json.Number("1e400"),
	"huge text":   "1e400",
	"true":        true,
	"null":        nil,
	"list":        []any{"x", "x"},
	"object":      map[string]any{"x": "y"},
	"many fields": manyFields(),
}

func manyFields() map[string]any {
	fields := map[string]any{}
	for _, a := range "abcdefghij" {
		for _, b := range "0123456789" {
			fields[string([]rune{a, b})] = "x"
		}
	}
	return fields
}

// Whatever stands in a field, the import refuses it with an error, or makes what an API server takes. Fuzzing
// finds the fields too seldom.
func TestLongMutatedInput(t *testing.T) {
	for name, file := range cases(t) {
		t.Run(name, func(t *testing.T) {
			documents, err := parse(file.Content)
			if err != nil {
				t.Fatal(err)
			}
			for _, document := range documents {
				for _, n := range nodesOf(document) {
					for mutation, mutant := range mutants {
						surviveMutant(t, document, n, mutation, func(any) any { return mutant })
					}
					if n.kind == kindList && len(n.items) > 0 {
						surviveMutant(t, document, n, "items twice", func(list any) any { return append(list.([]any), list.([]any)...) })
						surviveMutant(t, document, n, "many items", func(list any) any {
							var many []any
							for range 600 {
								many = append(many, list.([]any)[0])
							}
							return many
						})
					}
				}
			}
		})
	}
}

func surviveMutant(t *testing.T, document, at *node, mutation string, mutate func(any) any) {
	t.Helper()
	content, err := json.Marshal(mutated(document, at, mutate))
	if err != nil {
		t.Fatal(err)
	}
	result, err := Import([]File{{"f", content}}, Options{})
	if err != nil {
		return
	}
	if err := errors.Join(refusals(t, result)...); err != nil {
		t.Errorf("%s, %s: an API server would refuse: %.600v", at.path(), mutation, err)
	}
}

// mutated is a document as encoding/json has it, with another value at one place.
func mutated(n, at *node, mutate func(any) any) any {
	value := n.any()
	switch n.kind {
	case kindObject:
		object := map[string]any{}
		for key, field := range n.fields {
			object[key] = mutated(field, at, mutate)
		}
		value = object
	case kindList:
		list := []any{}
		for _, item := range n.items {
			list = append(list, mutated(item, at, mutate))
		}
		value = list
	}
	if n == at {
		return mutate(value)
	}
	return value
}

func nodesOf(n *node) []*node {
	nodes := []*node{n}
	for _, child := range n.children() {
		nodes = append(nodes, nodesOf(child)...)
	}
	return nodes
}
