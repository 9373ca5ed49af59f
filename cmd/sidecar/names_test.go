package main

import (
	"flag"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/option"
	"github.com/slipway-mcp/slipway/test/doctable"
)

var update = flag.Bool("update", false, "write the table into the documentation")

// Both names of every option exist, and only a quantity is rendered as one.
func TestOptionsExist(t *testing.T) {
	flags := serveFlags()
	for o := range option.All() {
		if flags.Lookup(o.Name()) == nil {
			t.Errorf("there is no flag %s", o.Flag)
		}
		at := reflect.TypeFor[mcpv1alpha1.MCPServer]()
		for name := range strings.SplitSeq(o.Field, ".") {
			at = fieldOf(at, name)
		}
		if at == nil {
			t.Errorf("there is no field %s", o.Field)
		}
		if isQuantity := at == reflect.TypeFor[*resource.Quantity](); isQuantity && o.As == option.AsItIs || !isQuantity && o.As == option.AsBytes {
			t.Errorf("%s is a %s: AsBytes is for quantities, and for nothing else", o.Field, at)
		}
	}
}

// Every field of spec.session and spec.adapter sets an option.
func TestFieldsAreOptions(t *testing.T) {
	var set strings.Builder
	for o := range option.All() {
		set.WriteString(o.Field + ".\n")
	}
	set.WriteString("spec.session.keyRotation.\n") // is for the manager: adapters read the keys that there are
	var check func(in reflect.Type, at string)
	check = func(in reflect.Type, at string) {
		if in.Kind() == reflect.Pointer {
			in = in.Elem()
		}
		if in.Kind() == reflect.Struct && in.PkgPath() == reflect.TypeFor[mcpv1alpha1.MCPServer]().PkgPath() {
			for field := range in.Fields() {
				tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
				check(field.Type, at+"."+tag)
			}
		} else if !strings.Contains(set.String(), at+".") {
			t.Errorf("package option has no row for %s", at)
		}
	}
	check(reflect.TypeFor[mcpv1alpha1.Session](), "spec.session")
	check(reflect.TypeFor[mcpv1alpha1.Adapter](), "spec.adapter")
}

// The documentation says for every flag which field sets it.
func TestFlagsAreDocumented(t *testing.T) {
	doctable.Check(t, "../../docs/adapter.md", "flags", flagTable(), "go test ./cmd/sidecar -update", *update)
}

// flagTable says which field sets which flag. The manager sets the flags that have no field.
func flagTable() string {
	var table strings.Builder
	table.WriteString("| flag | field of the spec |\n|---|---|\n")
	known := map[string]bool{}
	for o := range option.All() {
		known[o.Name()] = true
		table.WriteString("| `" + o.Flag + "` | `" + strings.TrimPrefix(o.Field, "spec.") + "`")
		switch {
		case o == option.Upstream:
			table.WriteString(" or `transport.sse`: `port` and `path`")
		case o.As == option.BySettings:
			table.WriteString(", by the settings")
		}
		table.WriteString(" |\n")
	}
	var others []string
	serveFlags().VisitAll(func(f *flag.Flag) {
		if !known[f.Name] {
			others = append(others, "`--"+f.Name+"`")
		}
	})
	table.WriteString("| " + strings.Join(others, ", ") + " | none: the manager decides |\n")
	return strings.Replace(table.String(), "the settings", "the [settings](#settings)", 1)
}

// serveFlags are all flags of adapter serve.
func serveFlags() *flag.FlagSet {
	flags := newFlags("adapter serve")
	bindOptions(flags, &options{})
	(&config.Config{}).BindFlags(flags)
	return flags
}

// fieldOf is the type of the field with that JSON name, or of any key of a map; nil if there is none.
func fieldOf(in reflect.Type, name string) reflect.Type {
	if in != nil && in.Kind() == reflect.Pointer {
		in = in.Elem()
	}
	switch {
	case in == nil:
		return nil
	case in.Kind() == reflect.Map:
		return in.Elem()
	case in.Kind() != reflect.Struct:
		return nil
	}
	for field := range in.Fields() {
		if tag, _, _ := strings.Cut(field.Tag.Get("json"), ","); tag == name {
			return field.Type
		}
	}
	return nil
}
