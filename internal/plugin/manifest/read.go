package manifest

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"

	kjson "sigs.k8s.io/json"
)

// These read a value and tick it off. A value that is not there is the zero value. One of
// the wrong kind is a problem, which names its place.

func (i *importer) is(n *node, want kind) bool {
	if n == nil {
		return false
	}
	if n.kind != want {
		n.used = true
		i.problem("%s must be %s, not %s", n.place(), kindNames[want], kindNames[n.kind])
		return false
	}
	return true
}

func (i *importer) text(n *node) string {
	if !i.is(n, kindText) {
		return ""
	}
	n.used = true
	i.refuseNUL(n)
	return n.value
}

// scalar is text, or what people write for text without quotes, as it is written.
func (i *importer) scalar(n *node) string {
	if n != nil && (n.kind == kindNumber || n.kind == kindBool) {
		n.used = true
		return n.value
	}
	return i.text(n)
}

// refuseNUL refuses what no process can have as an argument or variable.
func (i *importer) refuseNUL(n *node) {
	if strings.ContainsRune(n.value, 0) {
		i.problem("%s holds a NUL character: remove it", n.place())
	}
	for _, child := range n.children() {
		i.refuseNUL(child)
	}
}

func (i *importer) bool(n *node) bool {
	if !i.is(n, kindBool) {
		return false
	}
	n.used = true
	return n.value == "true"
}

func (i *importer) int32(n *node) int32 {
	if !i.is(n, kindNumber) {
		return 0
	}
	n.used = true
	whole, err := strconv.ParseInt(n.value, 10, 32)
	if err != nil || whole < 0 {
		i.problem("%s must be a whole number from 0 to %d", n.place(), math.MaxInt32)
	}
	return int32(whole)
}

// list returns the items, which remain to be read.
func (i *importer) list(n *node) []*node {
	if !i.is(n, kindList) {
		return nil
	}
	if len(n.items) == 0 {
		n.used = true
	}
	return n.items
}

// fields returns the names of the fields, which remain to be read.
func (i *importer) fields(n *node) []string {
	if !i.is(n, kindObject) {
		return nil
	}
	if len(n.keys) == 0 {
		n.used = true
	}
	return n.keys
}

func (i *importer) texts(n *node) []string {
	var texts []string
	for _, item := range i.list(n) {
		texts = append(texts, i.scalar(item))
	}
	return texts
}

// into reads a value of a type that Kubernetes has. Fields that this type does not have are named
// as dropped, like all others.
func (i *importer) into(object string, n *node, value any) {
	if n == nil {
		return
	}
	n.used = true
	i.refuseNUL(n)
	encoded, err := json.Marshal(n.any())
	if err != nil {
		i.problem("%s: %v", n.place(), err)
		return
	}
	strict, err := kjson.UnmarshalStrict(encoded, value)
	if err != nil {
		i.problem("%s: %v", n.place(), explain(err))
		return
	}
	for _, problem := range strict {
		if field, found := errors.AsType[kjson.FieldError](problem); found {
			i.drop(object, n.path()+"."+field.FieldPath(), "Kubernetes has no such field")
		}
	}
}

// explain turns the decoder's words into those of people who have not seen the Go types.
func explain(err error) error {
	var mismatch *json.UnmarshalTypeError
	if !errors.As(err, &mismatch) {
		return err
	}
	at := mismatch.Field
	if at == "" {
		at = "the value"
	}
	return errors.New(at + " must not be " + mismatch.Value)
}
