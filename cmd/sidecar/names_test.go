package main

import (
	"reflect"
	"strings"
	"testing"

	mcpv1alpha1 "github.com/slipway-mcp/slipway/api/v1alpha1"
	"github.com/slipway-mcp/slipway/internal/sidecar/config"
	"github.com/slipway-mcp/slipway/internal/sidecar/option"
)

// Both names of every option exist.
func TestOptionsExist(t *testing.T) {
	flags := newFlags("sidecar serve")
	var c config.Config
	bindConfig(flags, &c)
	for _, o := range option.All() {
		if flags.Lookup(strings.TrimPrefix(o.Flag, "--")) == nil {
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

// fieldOf is the type of the field with that JSON name; nil if there is none.
func fieldOf(in reflect.Type, name string) reflect.Type {
	if in != nil && in.Kind() == reflect.Pointer {
		in = in.Elem()
	}
	if in == nil || in.Kind() != reflect.Struct {
		return nil
	}
	for field := range in.Fields() {
		if tag, _, _ := strings.Cut(field.Tag.Get("json"), ","); tag == name {
			return field.Type
		}
	}
	return nil
}
