package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-mcp/slipway/internal/config"
)

// choices are the values that the manager takes for a type of its configuration.
var choices = map[reflect.Type][]string{
	reflect.TypeFor[config.Protocol]():        {string(config.ProtocolHTTPS), string(config.ProtocolHTTP)},
	reflect.TypeFor[config.Authentication]():  {string(config.AuthenticationKubernetes), string(config.AuthenticationNone)},
	reflect.TypeFor[config.LogFormat]():       {string(config.LogFormatJSON), string(config.LogFormatText)},
	reflect.TypeFor[config.RolloutPolicy]():   {string(config.RolloutRestart), string(config.RolloutIgnore)},
	reflect.TypeFor[config.RegistryMode]():    {string(config.RegistryEnabled), string(config.RegistryDisabled)},
	reflect.TypeFor[config.RunAsUser]():       {string(config.RunAsUserFixed), string(config.RunAsUserAssigned)},
	reflect.TypeFor[config.AuthRequirement](): {string(config.RequireNone), string(config.RequireAll), string(config.RequireSelector)},
	reflect.TypeFor[corev1.PullPolicy]():      {string(corev1.PullAlways), string(corev1.PullIfNotPresent), string(corev1.PullNever)},
	reflect.TypeFor[metav1.LabelSelectorOperator](): {
		string(metav1.LabelSelectorOpIn), string(metav1.LabelSelectorOpNotIn), string(metav1.LabelSelectorOpExists), string(metav1.LabelSelectorOpDoesNotExist),
	},
}

// renderSchema returns the chart's schema with what internal/config has at the property config.
func renderSchema(root string) ([]byte, error) {
	content, err := os.ReadFile(filepath.Join(root, chart, "values.schema.json"))
	if err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	var schema map[string]any
	if err := json.Unmarshal(content, &schema); err != nil {
		return nil, fmt.Errorf("parse schema: %w", err)
	}
	properties, ok := schema["properties"].(map[string]any)
	if !ok {
		return nil, errors.New("parse schema: it has no properties")
	}
	file, err := schemaOf(reflect.TypeFor[config.Manager]())
	if err != nil {
		return nil, err
	}
	of := file["properties"].(map[string]any)
	of["apiVersion"] = map[string]any{"const": config.GroupVersion.String()}
	of["kind"] = map[string]any{"const": config.Kind}
	properties["config"] = file
	out, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("print schema: %w", err)
	}
	return append(out, '\n'), nil
}

// schemaOf returns what the manager's decoder takes for a type. It says less than the manager checks: what is wrong
// in a way that a schema cannot explain well is left to the manager, whose old pod serves on.
func schemaOf(of reflect.Type) (map[string]any, error) {
	if values, ok := choices[of]; ok {
		return map[string]any{"enum": values}, nil
	}
	switch of {
	case reflect.TypeFor[config.Duration]():
		return map[string]any{"type": "string", "pattern": `^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`}, nil
	case reflect.TypeFor[resource.Quantity]():
		return map[string]any{"type": []string{"string", "number"}}, nil
	}
	switch of.Kind() {
	case reflect.Pointer:
		return schemaOf(of.Elem())
	case reflect.String:
		return map[string]any{"type": "string"}, nil
	case reflect.Bool:
		return map[string]any{"type": "boolean"}, nil
	case reflect.Int, reflect.Int32, reflect.Int64:
		return map[string]any{"type": "integer"}, nil
	case reflect.Slice:
		items, err := schemaOf(of.Elem())
		return map[string]any{"type": "array", "items": items}, err
	case reflect.Map:
		values, err := schemaOf(of.Elem())
		return map[string]any{"type": "object", "additionalProperties": orNull(values)}, err
	case reflect.Struct:
		return schemaOfStruct(of)
	default:
		return nil, fmt.Errorf("no schema for %s", of)
	}
}

func schemaOfStruct(of reflect.Type) (map[string]any, error) {
	properties := map[string]any{}
	for field := range fieldsOf(of) {
		schema, err := schemaOf(field.Type)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", field.Name, err)
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		properties[name] = orNull(schema)
	}
	return map[string]any{"type": "object", "additionalProperties": false, "properties": properties}, nil
}

// orNull has a schema accept null, too. With null, the manager uses its own default: a user can undo in one values file
// what an earlier values file sets.
func orNull(schema map[string]any) map[string]any {
	switch types := schema["type"].(type) {
	case string:
		schema["type"] = []string{types, "null"}
	case []string:
		schema["type"] = append(slices.Clone(types), "null")
	}
	if values, ok := schema["enum"].([]string); ok {
		schema["enum"] = append(anys(values), nil)
	}
	return schema
}

func anys(values []string) []any {
	all := make([]any, 0, len(values)+1)
	for _, value := range values {
		all = append(all, value)
	}
	return all
}

// fieldsOf goes through the fields that the decoder knows.
func fieldsOf(of reflect.Type) func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for field := range of.Fields() {
			if field.IsExported() && field.Tag.Get("json") != "" && !yield(field) {
				return
			}
		}
	}
}
