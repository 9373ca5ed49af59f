package workload

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

// scribble overwrites every text, number and truth value that can be reached from
// an object.
func scribble(t *testing.T, object any) {
	t.Helper()
	scribbleOn(reflect.ValueOf(object))
}

func scribbleOn(value reflect.Value) {
	if value.Type() == reflect.TypeFor[resource.Quantity]() {
		return
	}
	switch value.Kind() {
	case reflect.Pointer:
		if !value.IsNil() {
			scribbleOn(value.Elem())
		}
	case reflect.Struct:
		for i := range value.NumField() {
			if value.Type().Field(i).IsExported() {
				scribbleOn(value.Field(i))
			}
		}
	case reflect.Slice:
		for i := range value.Len() {
			scribbleOn(value.Index(i))
		}
	case reflect.Map:
		for _, key := range value.MapKeys() {
			value.SetMapIndex(key, reflect.Zero(value.Type().Elem()))
		}
	case reflect.String:
		value.SetString("scribbled")
	case reflect.Bool:
		value.SetBool(!value.Bool())
	case reflect.Int, reflect.Int32, reflect.Int64:
		value.SetInt(-1)
	default: // nothing else is in an apply configuration
	}
}
