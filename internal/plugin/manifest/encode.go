package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
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

// YAML encodes what programs may have put control characters into. YAML has these only as escapes.
func YAML(value any) ([]byte, error) {
	encoded, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var escaped bytes.Buffer
	for _, char := range string(encoded) {
		if char >= 0x7f && char <= 0xffff && !strconv.IsPrint(char) { // YAML has all above
			fmt.Fprintf(&escaped, `\u%04x`, char)
		} else {
			escaped.WriteRune(char)
		}
	}
	return yaml.JSONToYAML(escaped.Bytes())
}
