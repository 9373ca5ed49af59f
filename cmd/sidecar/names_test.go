package main

import (
	"flag"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/option"
)

// Both names of every option exist.
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
	}
}

// The documentation says for every flag which field sets it, and the fields exist.
func TestFlagsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/adapter.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(page), "## Flags and fields")
	table, _, end := strings.Cut(table, "\n## ")
	if !ok || !end {
		t.Fatal("the page has no such section")
	}
	flags := serveFlags()
	flags.VisitAll(func(f *flag.Flag) {
		if !strings.Contains(table, "`--"+f.Name+"`") {
			t.Errorf("the table lacks --%s", f.Name)
		}
	})
	for _, row := range regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| `([A-Za-z.]+)`").FindAllStringSubmatch(table, -1) {
		if flags.Lookup(row[1]) == nil {
			t.Errorf("there is no flag --%s", row[1])
		}
		at := reflect.TypeFor[mcpv1alpha1.MCPServerSpec]()
		for name := range strings.SplitSeq(row[2], ".") {
			at = fieldOf(at, name)
		}
		if at == nil {
			t.Errorf("there is no field %s", row[2])
		}
	}
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
