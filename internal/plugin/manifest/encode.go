package manifest

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v2"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
)

// Encode writes the objects of a result as YAML documents, with sorted fields and without those that only a
// cluster fills in. The comment of an object stands above it.
func Encode(w io.Writer, result Result) error {
	for number, object := range result.Objects {
		document, err := encode(object)
		if err != nil {
			return err
		}
		if comment := result.Comments[object]; comment != "" {
			document = append([]byte("# "+strings.ReplaceAll(comment, "\n", "\n# ")+"\n"), document...)
		}
		if number > 0 {
			document = append([]byte("---\n"), document...)
		}
		if _, err := w.Write(document); err != nil {
			return fmt.Errorf("write manifest: %w", err)
		}
	}
	return nil
}

func encode(object runtime.Object) ([]byte, error) {
	kind := object.GetObjectKind().GroupVersionKind().Kind
	encoded, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", kind, err)
	}
	var fields map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(encoded, &fields); err != nil {
		return nil, fmt.Errorf("encode %s: %w", kind, err)
	}
	delete(fields, "status")
	if metadata, found := fields["metadata"].(map[string]any); found {
		delete(metadata, "creationTimestamp")
	}
	document, err := YAML(fields)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", kind, err)
	}
	return document, nil
}

// YAML encodes a value as sigs.k8s.io/yaml does, with the same order and indentation. That package reads JSON as
// YAML on the way, and so fails on keys of more than 1,024 characters and on some control characters.
func YAML(value any) ([]byte, error) {
	encoded, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var plain any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(encoded, &plain); err != nil {
		return nil, err
	}
	return yaml.Marshal(plain)
}
