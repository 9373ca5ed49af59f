package config

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Load reads the file at path over the defaults and validates the result. An
// empty path means no file: the defaults.
func Load(path string) (Manager, error) {
	if path == "" {
		return Default(), nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return Manager{}, fmt.Errorf("read configuration: %w", err)
	}
	config, err := Decode(content)
	if err != nil {
		return Manager{}, fmt.Errorf("read configuration %s: %w", path, err)
	}
	return config, nil
}

// Decode reads a configuration over the defaults and validates the result. It
// is strict: a field that is not known, or that is there twice, is more likely a
// typing error than a wish to be ignored.
func Decode(content []byte) (Manager, error) {
	document, err := onlyDocument(content)
	if err != nil {
		return Manager{}, err
	}
	// Duplicate keys must be found here: JSON no longer has them.
	asJSON, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return Manager{}, errors.New(strings.Join(strings.Fields(err.Error()), " "))
	}
	if err := checkType(asJSON); err != nil {
		return Manager{}, err
	}
	config := Default()
	strict, err := kjson.UnmarshalStrict(asJSON, &config)
	if errors.Is(err, resource.ErrFormatWrong) || errors.Is(err, resource.ErrNumeric) || errors.Is(err, resource.ErrSuffix) {
		return Manager{}, errors.Join(err, noQuantities(asJSON))
	}
	if err != nil {
		return Manager{}, explain(err)
	}
	if err := errors.Join(strict...); err != nil {
		return Manager{}, err
	}
	if err := config.Validate(); err != nil {
		return Manager{}, err
	}
	return config, nil
}

// onlyDocument returns the one YAML document of the file. A parser would read
// the first and drop the rest without a word.
func onlyDocument(content []byte) ([]byte, error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	var only []byte
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("split documents: %w", err)
		}
		if holdsNothing(document) {
			continue
		}
		if only != nil {
			return nil, errors.New("the file must hold one YAML document, not several")
		}
		only = document
	}
	if only == nil {
		return nil, fmt.Errorf("the file is empty; it must at least hold apiVersion: %s and kind: %s", GroupVersion, Kind)
	}
	return only, nil
}

// holdsNothing is true for a document of blank lines, comments and separators.
func holdsNothing(document []byte) bool {
	for line := range bytes.Lines(document) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && !bytes.Equal(line, []byte("---")) {
			return false
		}
	}
	return true
}

// checkType comes before the fields are looked at: in a file of another kind or
// version every complaint about a field would mislead.
func checkType(asJSON []byte) error {
	var object map[string]any
	if err := json.Unmarshal(asJSON, &object); err != nil {
		return errors.New("the file must hold a YAML mapping, such as apiVersion: " + GroupVersion.String())
	}
	var problems []error
	for _, field := range []struct{ name, want string }{
		{"apiVersion", GroupVersion.String()},
		{"kind", Kind},
	} {
		switch got, found := object[field.name]; {
		case !found:
			problems = append(problems, fmt.Errorf("%s is missing, expected %s", field.name, field.want))
		case got != field.want:
			problems = append(problems, fmt.Errorf("%s is %v, expected %s", field.name, got, field.want))
		}
	}
	return errors.Join(problems...)
}

// explain turns the decoder's complaint about a value of the wrong type into
// words for people who have never seen the Go types.
func explain(err error) error {
	var mismatch *json.UnmarshalTypeError
	if !errors.As(err, &mismatch) {
		return err
	}
	want := map[reflect.Kind]string{
		reflect.Bool:   "true or false",
		reflect.Int:    "a whole number",
		reflect.String: "a string",
		reflect.Slice:  "a list",
		reflect.Struct: "a mapping",
	}[mismatch.Type.Kind()]
	if mismatch.Type == reflect.TypeFor[Duration]() {
		want = "a duration such as 15s or 1m30s"
	}
	return fmt.Errorf("%s must be %s, not %s", mismatch.Field, want, mismatch.Value)
}

// noQuantities names the values of servers that are no quantities: the error of the decoder does not.
func noQuantities(asJSON []byte) error {
	var file struct {
		Servers map[string]any `json:"servers"`
	}
	if err := json.Unmarshal(asJSON, &file); err != nil {
		return err
	}
	var problems []error
	var look func(at string, value any)
	look = func(at string, value any) {
		switch value := value.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(value)) {
				look(at+"."+name, value[name])
			}
		case string:
			if _, err := resource.ParseQuantity(value); err != nil {
				problems = append(problems, fmt.Errorf("%s must be a quantity such as 500m or 64Mi, not %q", at, value))
			}
		case bool, []any:
			problems = append(problems, fmt.Errorf("%s must be a quantity such as 500m or 64Mi, not %v", at, value))
		}
	}
	look("servers", file.Servers)
	return errors.Join(problems...)
}

// Duration is a span of time that is written like 1m30s.
type Duration time.Duration

// String is the form that the file holds.
func (d Duration) String() string { return time.Duration(d).String() }

// UnmarshalJSON reads the form that String writes. Its error is of the decoder's
// own type, because only to that one does the decoder add the field's name.
func (d *Duration) UnmarshalJSON(value []byte) error {
	if string(value) == "null" {
		return nil // As for every other field: the default stays.
	}
	mismatch := &json.UnmarshalTypeError{Value: string(value), Type: reflect.TypeFor[Duration]()}
	text, err := strconv.Unquote(string(value))
	if err != nil {
		return mismatch
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return mismatch
	}
	*d = Duration(parsed)
	return nil
}
