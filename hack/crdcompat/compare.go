package main

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// compare lists what the later CRD breaks of the earlier one.
func compare(before, after *apiextensionsv1.CustomResourceDefinition) []string {
	c := &comparison{}
	c.same("", "group", before.Spec.Group, after.Spec.Group)
	c.same("", "scope", before.Spec.Scope, after.Spec.Scope)
	c.same("", "kind", before.Spec.Names.Kind, after.Spec.Names.Kind)
	c.same("", "plural name", before.Spec.Names.Plural, after.Spec.Names.Plural)
	c.keeps("", "short name", before.Spec.Names.ShortNames, after.Spec.Names.ShortNames)
	c.keeps("", "category", before.Spec.Names.Categories, after.Spec.Names.Categories)
	for i := range before.Spec.Versions {
		old := &before.Spec.Versions[i]
		at := slices.IndexFunc(after.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == old.Name })
		if at < 0 || old.Served && !after.Spec.Versions[at].Served {
			c.add(old.Name, "the version is not served any more")
			continue
		}
		c.version(old, &after.Spec.Versions[at])
	}
	slices.Sort(c.problems)
	return c.problems
}

type comparison struct{ problems []string }

func (c *comparison) add(path, format string, args ...any) {
	c.problems = append(c.problems, strings.TrimPrefix(path+": ", ": ")+fmt.Sprintf(format, args...))
}

func (c *comparison) same(path, what string, before, after any) {
	if !reflect.DeepEqual(before, after) {
		c.add(path, "%s was %v and is %v", what, show(before), show(after))
	}
}

// keeps requires that a list loses nothing.
func (c *comparison) keeps(path, what string, before, after []string) {
	for _, value := range before {
		if !slices.Contains(after, value) {
			c.add(path, "%s %s is gone", what, value)
		}
	}
}

func (c *comparison) version(before, after *apiextensionsv1.CustomResourceDefinitionVersion) {
	if before.Subresources != nil {
		c.same(before.Name, "subresources", before.Subresources, after.Subresources)
	}
	paths := func(fields []apiextensionsv1.SelectableField) []string {
		var all []string
		for _, field := range fields {
			all = append(all, field.JSONPath)
		}
		return all
	}
	c.keeps(before.Name, "selectable field", paths(before.SelectableFields), paths(after.SelectableFields))
	c.schema(before.Name, before.Schema.OpenAPIV3Schema, after.Schema.OpenAPIV3Schema)
}

// schema compares what two schemas accept. A field that only the later one has is of no concern.
func (c *comparison) schema(path string, before, after *apiextensionsv1.JSONSchemaProps) {
	c.same(path, "type", before.Type, after.Type)
	c.same(path, "format", before.Format, after.Format)
	c.same(path, "nullable", before.Nullable, after.Nullable)
	c.same(path, "int or string", before.XIntOrString, after.XIntOrString)
	c.same(path, "list type", before.XListType, after.XListType)
	c.same(path, "list map keys", before.XListMapKeys, after.XListMapKeys)
	c.same(path, "map type", before.XMapType, after.XMapType)
	c.same(path, "preserving of unknown fields", before.XPreserveUnknownFields, after.XPreserveUnknownFields)
	c.same(path, "default", raw(before.Default), raw(after.Default))
	c.same(path, "alternatives", [][]apiextensionsv1.JSONSchemaProps{before.AnyOf, before.OneOf, before.AllOf}, [][]apiextensionsv1.JSONSchemaProps{after.AnyOf, after.OneOf, after.AllOf})
	for name := range maps.Keys(before.Properties) {
		if _, ok := after.Properties[name]; !ok {
			c.add(path+"."+name, "the field is gone")
		}
	}
	for _, name := range after.Required {
		if _, known := before.Properties[name]; !slices.Contains(before.Required, name) {
			c.add(path+"."+name, "the field is required now%s", map[bool]string{false: ", and did not exist"}[known])
		}
	}
	c.values(path, before, after)
	c.rules(path, before.XValidations, after.XValidations)
	for name, property := range before.Properties {
		if other, ok := after.Properties[name]; ok {
			c.schema(path+"."+name, &property, &other)
		}
	}
	c.items(path, before, after)
}

// items compares the schemas of what lists and maps hold.
func (c *comparison) items(path string, before, after *apiextensionsv1.JSONSchemaProps) {
	one, other := before.Items, after.Items
	c.same(path, "a schema of its items", one != nil, other != nil)
	if one != nil && other != nil {
		c.schema(path+"[]", one.Schema, other.Schema)
	}
	values, others := before.AdditionalProperties, after.AdditionalProperties
	c.same(path, "a schema of its values", values != nil, others != nil)
	if values != nil && others != nil && values.Schema != nil && others.Schema != nil {
		c.schema(path+"{}", values.Schema, others.Schema)
	}
}

// values compares bounds of single values.
func (c *comparison) values(path string, before, after *apiextensionsv1.JSONSchemaProps) {
	if before.Pattern != after.Pattern && after.Pattern != "" {
		c.add(path, "the pattern was %q and is %q", before.Pattern, after.Pattern)
	}
	c.enum(path, before.Enum, after.Enum)
	atMost(c, path, "maximum", before.Maximum, after.Maximum)
	atMost(c, path, "maximal length", before.MaxLength, after.MaxLength)
	atMost(c, path, "maximal number of items", before.MaxItems, after.MaxItems)
	atMost(c, path, "maximal number of members", before.MaxProperties, after.MaxProperties)
	if before.Minimum == nil && after.Minimum != nil || before.Minimum != nil && after.Minimum != nil && *after.Minimum > *before.Minimum {
		c.add(path, "the minimum was %v and is %v", show(before.Minimum), *after.Minimum)
	}
	atLeast(c, path, "minimal length", before.MinLength, after.MinLength)
	atLeast(c, path, "minimal number of items", before.MinItems, after.MinItems)
	atLeast(c, path, "minimal number of members", before.MinProperties, after.MinProperties)
	c.same(path, "exclusive bounds", [2]bool{before.ExclusiveMaximum, before.ExclusiveMinimum}, [2]bool{after.ExclusiveMaximum, after.ExclusiveMinimum})
	c.same(path, "divisor", before.MultipleOf, after.MultipleOf)
	if after.UniqueItems && !before.UniqueItems {
		c.add(path, "items must be unique now")
	}
}

// enum compares lists of values. An empty list allows every value.
func (c *comparison) enum(path string, before, after []apiextensionsv1.JSON) {
	values := func(all []apiextensionsv1.JSON) (texts []string) {
		for i := range all {
			texts = append(texts, string(all[i].Raw))
		}
		return texts
	}
	switch {
	case len(after) == 0:
	case len(before) == 0:
		c.add(path, "only %s are allowed now", strings.Join(values(after), ", "))
	default:
		c.keeps(path, "the value", values(before), values(after))
	}
}

func atMost[T cmp.Ordered](c *comparison, path, what string, before, after *T) {
	if after != nil && (before == nil || *after < *before) {
		c.add(path, "the %s was %v and is %v", what, show(before), *after)
	}
}

// atLeast is for lengths and numbers of things: none of them is below zero.
func atLeast(c *comparison, path, what string, before, after *int64) {
	if after != nil && (before == nil && *after > 0 || before != nil && *after > *before) {
		c.add(path, "the %s was %v and is %v", what, show(before), *after)
	}
}

// rules reports every rule that the earlier schema did not have: what it refuses cannot be known.
func (c *comparison) rules(path string, before, after apiextensionsv1.ValidationRules) {
	for i := range after {
		if !slices.ContainsFunc(before, func(rule apiextensionsv1.ValidationRule) bool { return rule.Rule == after[i].Rule }) {
			c.add(path, "a rule is new or has changed: %s", cmp.Or(after[i].Message, after[i].Rule))
		}
	}
}

func raw(value *apiextensionsv1.JSON) string {
	if value == nil {
		return ""
	}
	return string(value.Raw)
}

// show makes a value, or what a pointer leads to, readable.
func show(value any) string {
	v := reflect.ValueOf(value)
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return "none"
		}
		v = v.Elem()
	}
	return fmt.Sprintf("%v", v)
}
