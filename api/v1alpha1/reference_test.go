package v1alpha1_test

import (
	"flag"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/test/doctable"
)

var update = flag.Bool("update", false, "write the reference into the documentation")

// The reference has every field of the CRD. The schema says what a field accepts, and the Go types say
// which objects are Kubernetes' own, which are named and not shown.
func TestReferenceInTheDocumentation(t *testing.T) {
	crd, _ := readCRD(t)
	page := &reference{t: t}
	root := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	page.WriteString("\n## MCPServer\n\n" + prose(root.Description) + "\n")
	page.rules(root)
	for field := range reflect.TypeFor[v1alpha1.MCPServer]().Fields() {
		if name := jsonName(field); name == "spec" || name == "status" {
			schema := root.Properties[name]
			page.object(field.Type, &schema, name)
		}
	}
	if page.fields < 150 {
		t.Errorf("the reference has %d fields: the walk no longer reaches the whole API", page.fields)
	}
	doctable.Check(t, "../../docs/reference/api.md", "MCPServer", page.String()+"\n", "go test ./api/v1alpha1 -update", *update)
}

type reference struct {
	strings.Builder
	t      *testing.T
	fields int
}

func jsonName(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return name
}

// object writes the table of one object, and then those of the objects in it.
func (r *reference) object(typ reflect.Type, schema *apiextensionsv1.JSONSchemaProps, path string) {
	fmt.Fprintf(&r.Builder, "\n### %s\n\n<a id=\"%s\"></a>%s\n\n", strings.TrimSuffix(path, "[]"), anchor(path), prose(schema.Description))
	r.WriteString("| Field | Type | Default | Allowed values | Description |\n|---|---|---|---|---|\n")
	type inner struct {
		typ    reflect.Type
		schema *apiextensionsv1.JSONSchemaProps
		path   string
	}
	var objects []inner
	for field := range typ.Fields() {
		name := jsonName(field)
		property, ok := schema.Properties[name]
		if !ok {
			r.t.Errorf("%s.%s is not in the CRD", path, name)
			continue
		}
		r.fields++
		at, of := path+"."+name, dereferenced(field.Type)
		kind, nested, entries := typeOf(of), of, &property
		switch of.Kind() {
		case reflect.Slice:
			nested, entries, at = dereferenced(of.Elem()), property.Items.Schema, at+"[]"
			kind = strings.Replace("list of "+typeOf(nested), "string", "strings", 1)
		case reflect.Map:
			nested, entries = dereferenced(of.Elem()), property.AdditionalProperties.Schema
			kind = "map of " + typeOf(nested)
		}
		label := fmt.Sprintf("`%s`", at)
		if isOwn(nested) {
			kind = strings.Replace(kind, "object", fmt.Sprintf("[object](#%s)", anchor(at)), 1)
			objects = append(objects, inner{nested, entries, at})
		} else {
			label = fmt.Sprintf("<a id=\"%s\"></a>%s", anchor(at), label)
		}
		if slices.Contains(schema.Required, name) {
			kind += ", required"
		}
		fmt.Fprintf(&r.Builder, "| %s | %s | %s | %s | %s |\n", label, kind, defaultOf(&property), strings.Join(allowed(&property, isOwn(nested)), "<br>"), doctable.Cell(escaped(property.Description)))
	}
	r.rules(schema)
	for _, o := range objects {
		r.object(o.typ, o.schema, o.path)
	}
}

// rules writes what must hold between the fields of an object.
func (r *reference) rules(schema *apiextensionsv1.JSONSchemaProps) {
	if len(schema.XValidations) > 0 {
		r.WriteString("\nThe API server refuses an object that breaks one of these rules:\n\n")
	}
	for _, rule := range schema.XValidations {
		r.WriteString("- " + sentence(rule) + "\n")
	}
}

var (
	literal  = regexp.MustCompile(`'((?:[^'\\]|\\.)*)'`)
	computed = regexp.MustCompile(`%[sd](?: %[sd])*`)
)

// sentence is the message of a rule. Of a message that is computed, it is the longest text, without the values.
func sentence(rule apiextensionsv1.ValidationRule) string {
	text := rule.Message
	if text == "" {
		for _, match := range literal.FindAllStringSubmatch(rule.MessageExpression, -1) {
			if len(match[1]) > len(text) {
				text = match[1]
			}
		}
	}
	return escaped(computed.ReplaceAllString(text, "…"))
}

func dereferenced(typ reflect.Type) reflect.Type {
	if typ.Kind() == reflect.Pointer {
		return typ.Elem()
	}
	return typ
}

func isOwn(typ reflect.Type) bool { return typ.Kind() == reflect.Struct && typ.PkgPath() == ownPackage }

func typeOf(typ reflect.Type) string {
	switch typ {
	case reflect.TypeFor[resource.Quantity]():
		return "quantity"
	case reflect.TypeFor[metav1.Duration]():
		return "duration"
	case reflect.TypeFor[metav1.Time]():
		return "time"
	}
	switch typ.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Int32, reflect.Int64:
		return "integer"
	case reflect.Struct:
		if !isOwn(typ) {
			return "Kubernetes `" + typ.Name() + "`"
		}
	}
	return "object"
}

var (
	toldDefault  = regexp.MustCompile(`Defaults to ([^\s,;]+?)(?:[.,;]?\s|\.?$)`)
	namedDefault = regexp.MustCompile(`(\w+) \(default\)`)
)

// defaultOf is the default of the schema, or else the one in the description: most defaults are the
// manager's, which users do not see in their objects.
func defaultOf(schema *apiextensionsv1.JSONSchemaProps) string {
	if schema.Default != nil {
		return "`" + string(schema.Default.Raw) + "`"
	}
	for _, told := range []*regexp.Regexp{toldDefault, namedDefault} {
		if match := told.FindStringSubmatch(prose(schema.Description)); match != nil && match[1] != "the" {
			return "`" + match[1] + "`"
		}
	}
	return ""
}

// allowed lists what the schema of a field accepts.
func allowed(schema *apiextensionsv1.JSONSchemaProps, isObject bool) []string {
	bounds := values(schema)
	if schema.XListType != nil && *schema.XListType == "set" {
		bounds = append(bounds, "no duplicates")
	}
	if len(schema.XListMapKeys) > 0 {
		bounds = append(bounds, "unique `"+strings.Join(schema.XListMapKeys, "`, `")+"`")
	}
	for _, part := range []*apiextensionsv1.JSONSchemaProps{itemsOf(schema), mapValuesOf(schema)} {
		if part != nil && part.Type == "string" {
			for _, bound := range values(part) {
				bounds = append(bounds, "each: "+bound)
			}
		}
	}
	if !isObject || schema.Type == "array" {
		for _, rule := range schema.XValidations {
			bounds = append(bounds, sentence(rule))
		}
	}
	return bounds
}

func itemsOf(schema *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	if schema.Items == nil {
		return nil
	}
	return schema.Items.Schema
}

func mapValuesOf(schema *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	if schema.AdditionalProperties == nil {
		return nil
	}
	return schema.AdditionalProperties.Schema
}

// values are the bounds of a single value, or of the length of a list or map.
func values(schema *apiextensionsv1.JSONSchemaProps) []string {
	var bounds []string
	if len(schema.Enum) > 0 {
		var names []string
		for _, value := range schema.Enum {
			names = append(names, "`"+strings.Trim(string(value.Raw), `"`)+"`")
		}
		bounds = append(bounds, strings.Join(names, ", "))
	}
	if schema.Minimum != nil || schema.Maximum != nil {
		bounds = append(bounds, between(number(schema.Minimum), number(schema.Maximum), ""))
	}
	bounds = append(bounds, between(count(schema.MinLength), count(schema.MaxLength), " characters"))
	bounds = append(bounds, between(count(schema.MinItems), count(schema.MaxItems), " entries"))
	bounds = append(bounds, between(count(schema.MinProperties), count(schema.MaxProperties), " entries"))
	if schema.Pattern != "" && !schema.XIntOrString {
		bounds = append(bounds, "matches <code>"+strings.NewReplacer("&", "&amp;", "<", "&lt;", "|", "&#124;", "*", "&#42;", "_", "&#95;", "[", "&#91;", "]", "&#93;").Replace(schema.Pattern)+"</code>")
	}
	return slices.DeleteFunc(bounds, func(bound string) bool { return bound == "" })
}

func number(n *float64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(int64(*n), 10)
}

func count(n *int64) string {
	if n == nil || *n == 0 {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}

func between(least, most, unit string) string {
	switch {
	case least == "" && most == "":
		return ""
	case most == "":
		return "at least " + least + unit
	case least == "":
		return "at most " + most + unit
	case least == most:
		return "exactly " + least + unit
	}
	return least + " to " + most + unit
}

// anchor is the path of a field without the sign of lists.
func anchor(path string) string { return strings.ReplaceAll(path, "[]", "") }

func prose(text string) string { return escaped(strings.Join(strings.Fields(text), " ")) }

// escaped keeps Markdown from reading * and < of a text as its own.
func escaped(text string) string {
	return strings.NewReplacer("*", `\*`, "<", "&lt;", "_", `\_`).Replace(text)
}
