package manifest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

type kind int

const (
	kindNull kind = iota
	kindText
	kindNumber
	kindBool
	kindList
	kindObject
)

var kindNames = map[kind]string{
	kindNull: "null", kindText: "text", kindNumber: "a number", kindBool: "true or false", kindList: "a list", kindObject: "an object",
}

// node is a value of the input. It knows where it stands, for messages, and whether it was read.
type node struct {
	parent *node
	name   string // as a step of a path: .name, ["na me"] or [3]
	line   int
	kind   kind
	value  string           // of text, a number or a bool, as it is written
	keys   []string         // of an object, in the order of the file
	fields map[string]*node // of an object
	items  []*node          // of a list
	used   bool
}

var plainKey = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$-]*$`)

func (n *node) addField(key string, child *node) {
	child.parent = n
	child.name = "." + key
	if !plainKey.MatchString(key) {
		child.name = "[" + strconv.Quote(key) + "]"
	}
	n.keys = append(n.keys, key)
	n.fields[key] = child
}

func (n *node) addItem(child *node) {
	child.parent = n
	child.name = "[" + strconv.Itoa(len(n.items)) + "]"
	n.items = append(n.items, child)
}

// path is where a value stands in its document.
func (n *node) path() string {
	var steps []string
	for at := n; at != nil; at = at.parent {
		steps = append(steps, at.name)
	}
	var b strings.Builder
	for _, step := range slices.Backward(steps) {
		b.WriteString(step)
	}
	return strings.TrimPrefix(b.String(), ".")
}

// place is a path for an error: with the line, which a person finds faster.
func (n *node) place() string {
	return fmt.Sprintf("line %d: %s", n.line, n.path())
}

// get is a field of an object. It is nil if it is not there or null, which says the same.
func (n *node) get(key string) *node {
	if n == nil {
		return nil
	}
	child := n.fields[key]
	if child != nil && child.kind == kindNull {
		child.used = true
		return nil
	}
	return child
}

// at is get for several steps.
func (n *node) at(keys ...string) *node {
	for _, key := range keys {
		n = n.get(key)
	}
	return n
}

// firstOf is the first of two values that is there.
func firstOf(a, b *node) *node {
	if a != nil {
		return a
	}
	return b
}

// tick notes that a value was read, with everything below it.
func (n *node) tick() {
	if n != nil {
		n.used = true
	}
}

// unread returns the topmost nodes of which nothing was read.
func (n *node) unread() []*node {
	if n == nil || n.used {
		return nil
	}
	if !n.isTouched() {
		return []*node{n}
	}
	var unread []*node
	for _, child := range n.children() {
		unread = append(unread, child.unread()...)
	}
	return unread
}

// isTouched says whether something of a node was read.
func (n *node) isTouched() bool {
	if n.used {
		return true
	}
	for _, child := range n.children() {
		if child.isTouched() {
			return true
		}
	}
	return false
}

func (n *node) children() []*node {
	if n.kind == kindList {
		return n.items
	}
	children := make([]*node, 0, len(n.keys))
	for _, key := range n.keys {
		children = append(children, n.fields[key])
	}
	return children
}

// any is the value as encoding/json would have decoded it. Numbers stay as they are written.
func (n *node) any() any {
	switch n.kind {
	case kindText:
		return n.value
	case kindNumber:
		return json.Number(n.value)
	case kindBool:
		return n.value == "true"
	case kindList:
		list := make([]any, 0, len(n.items))
		for _, item := range n.items {
			list = append(list, item.any())
		}
		return list
	case kindObject:
		object := make(map[string]any, len(n.fields))
		for key, field := range n.fields {
			object[key] = field.any()
		}
		return object
	default:
		return nil
	}
}
